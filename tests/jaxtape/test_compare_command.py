"""`jaxtape compare`: named cases, functions and modules from a file, planted errors, mistakes."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from jaxtape.cli.main import app

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'jaxtape[torch]'"
)

MINE = """
import equinox as eqx, jax, jax.numpy as jnp, numpy as np, torch
from jaxtape.torch import Case, from_state_dict

class Net(eqx.Module):
    first: eqx.nn.Linear
    blocks: list
    scale: jax.Array
    drop: eqx.nn.Dropout

    def __init__(self):
        a, b, c = jax.random.split(jax.random.key(0), 3)
        self.first = eqx.nn.Linear(3, 5, key=a)
        self.blocks = [eqx.nn.LayerNorm(5), eqx.nn.Conv1d(1, 2, 3, key=b)]
        self.scale = jnp.ones((5, 2))  # PyTorch has it transposed
        self.drop = eqx.nn.Dropout(0.5)

    def __call__(self, x):
        x = self.drop(self.blocks[0](jnp.tanh(self.first(x))))
        return jnp.sum(self.blocks[1](x[None]), axis=1) + x @ self.scale

class TorchNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 5)
        self.blocks = torch.nn.ModuleList([torch.nn.LayerNorm(5), torch.nn.Conv1d(1, 2, 3)])
        self.scale = torch.nn.Parameter(torch.randn(2, 5))
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        x = self.drop(self.blocks[0](torch.tanh(self.first(x))))
        return self.blocks[1](x[:, None]).sum(2) + x @ self.scale.T

torch.manual_seed(0)
theirs = TorchNet()
ours = from_state_dict(Net(), theirs.state_dict())
planted = eqx.tree_at(lambda n: n.first.weight, ours, ours.first.weight.at[2, 1].add(1e-3))
x = (np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32),)

def square(x): return jnp.sum(x**2)
def torch_square(x): return (x**2).sum()
def torch_wrong(x): return (x**2).sum() * (1.0 + 1e-6)

def steps(xp, wrong):
    def run(w, s):
        nodes = []
        for k in range(4):
            s = xp.sin(w[k] * s) + (1e-6 * s if k == wrong else 0.0)
            nodes.append(s)
        return (*nodes, s.sum())
    return run

names = ("node 0", "node 1", "node 2", "node 3", "value")
draw = lambda rng: (rng.normal(size=(4, 3)), rng.normal(size=3))
right, wrong = (Case(steps(jnp, None), steps(torch, k), draw, names) for k in (None, 2))
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def run(*words):
    """Return exit status, and all that was printed, in one line."""
    found = CliRunner().invoke(app, ["compare", *map(str, words)])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, re.sub(r"\s+", " ", found.output)


CASES = ["bermudan-swaption", "chain", "deep-bsde", "gru", "heston", "lsm", "transformer"]


@pytest.mark.repeat
@pytest.mark.parametrize("name", CASES)
def test_named_cases_agree(name, tmp_path):
    status, _ = run(name, "--out", tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    assert status == 0 and len(found) == 4
    most = {"double": 1e-10, "single": 1e-4}
    for verdict in found:
        assert verdict["tolerance"] == most[verdict["precision"]]
        assert max(row["relative"] for row in verdict["gradients"]) <= verdict["tolerance"]
        assert min(row["cosine"] for row in verdict["gradients"]) > 1.0 - 1e-6
        assert len(verdict["nodes"]) > 4


def test_all_cases_have_a_test():
    status, said = run("--list")
    assert status == 0 and said.split() == CASES


def test_a_module_of_ones_own(mine):
    own = "--jax", f"{mine}:ours", "--torch", f"{mine}:theirs", "--inputs", f"{mine}:x"
    status, said = run(*own, "--leaves", "--precisions", "single")
    assert status == 0
    assert all(name in said for name in ("first.weight", "blocks.1.bias", "scale"))


def test_a_weight_that_is_wrong_is_named(mine):
    own = "--torch", f"{mine}:theirs", "--inputs", f"{mine}:x", "--precisions", "single"
    status, said = run("--jax", f"{mine}:planted", *own, "--tolerance", "1e-4")
    assert status == 1
    assert "the weight first.weight is 0.001 apart at [2, 1]" in said
    assert "both part at weight first.weight" in said


@pytest.mark.parametrize(
    "planted",
    ["w.at[2, 1].add(5e-5)", "w * (1.0 + 5e-7)", "jnp.swapaxes(w.at[:3, :3].get(), 0, 1)"],
    ids=["a little off", "a few units in the last place", "transposed"],
)
@pytest.mark.parametrize("precision", ["single", "double"])
def test_weights_are_compared_as_data_in_every_precision(tmp_path, planted, precision):
    """As a case of a file, whose functions are both of PyTorch's weights."""
    (tmp_path / "mine.py").write_text(f"""
import equinox as eqx, jax, jax.numpy as jnp, numpy as np, torch
from jaxtape.torch import from_state_dict, module_case
torch.manual_seed(0)
theirs = torch.nn.Linear(3, 3)
ours = from_state_dict(eqx.nn.Linear(3, 3, key=jax.random.key(0)), theirs.state_dict())
planted = eqx.tree_at(lambda n: n.weight, ours, (lambda w: {planted})(ours.weight))
x = (np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32),)
right, wrong = module_case(ours, theirs, x), module_case(planted, theirs, x)
""")
    assert run(f"{tmp_path / 'mine.py'}:right", "--precisions", precision)[0] == 0
    status, said = run(f"{tmp_path / 'mine.py'}:wrong", "--precisions", precision)
    assert status == 1 and "the weight weight is" in said and "NO" in said


def test_an_error_of_a_millionth_in_one_weight_is_found(mine):
    mine.write_text(MINE.replace("add(1e-3)", "add(1e-6)"))
    own = "--torch", f"{mine}:theirs", "--inputs", f"{mine}:x", "--precisions", "double"
    status, said = run("--jax", f"{mine}:planted", *own)
    assert status == 1
    found = re.search(r"the weight first.weight is ([\d.e-]+) apart at \[2, 1\]", said)
    assert found is not None and abs(float(found.group(1)) - 1e-6) < 1e-7


def test_functions_of_ones_own(mine):
    own = "--jax", f"{mine}:square", "--inputs", f"{mine}:x"
    assert run(*own, "--torch", f"{mine}:torch_square")[0] == 0
    status, said = run(*own, "--torch", f"{mine}:torch_wrong")
    assert (
        status == 1 and "both part at output 0" in said and "the gradient of inputs[0] is" in said
    )


def test_the_first_node_that_differs_is_named(mine):
    assert run(f"{mine}:right")[0] == 0
    status, said = run(f"{mine}:wrong", "--precisions", "double")
    assert status == 1 and "both part at node 2" in said


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # of Dynamo
def test_compiled_programs_agree():
    assert run("chain", "gru", "--ways", "compile")[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["frobnicate"], "frobnicate: no such case. There are: bermudan-swaption"),
        ([], "nothing to compare"),
        (["chain", "--ways", "quick"], "--ways quick: give some of eager,func,compile"),
        (["chain", "--precisions", ""], "give some of double,single"),
        (["--jax", "os:getcwd"], "--jax, --torch and --inputs belong together"),
        (["nowhere.py:case"], "nowhere.py:case: cannot be read"),
        (["os:nothing"], "os:nothing: cannot be read"),
        (["os:getcwd"], "is a str; give a jaxtape.torch.Case"),
    ],
)
def test_mistakes_are_named(words, said):
    status, found = run(*words)
    assert status == 2 and said in found


def test_modules_of_other_weights_are_refused(mine, tmp_path):
    renamed = MINE.replace("self.scale = torch", "self.other = torch")
    renamed = renamed.replace("self.scale.T", "self.other.T").replace(
        "ours = from", "ours = Net() or from"
    )
    mine.write_text(renamed.replace("planted = ", "planted = None and "))
    own = "--jax", f"{mine}:ours", "--torch", f"{mine}:theirs", "--inputs", f"{mine}:x"
    status, said = run(*own)
    assert status == 2 and "the state has no 'scale'" in said


def test_gates_and_names_are_mapped():
    import equinox as eqx
    import jax

    from jaxtape.torch import from_state_dict

    theirs = torch.nn.LSTMCell(3, 4)
    ours = from_state_dict(eqx.nn.LSTMCell(3, 4, key=jax.random.key(0)), theirs.state_dict())
    x, h, c = (np.random.default_rng(0).normal(size=n).astype(np.float32) for n in (3, 4, 4))
    found = ours(x, (h, c))
    known = theirs(torch.tensor(x), (torch.tensor(h), torch.tensor(c)))
    for a, b in zip(found, known, strict=True):
        np.testing.assert_allclose(a, b.detach(), rtol=1e-5, atol=1e-6)
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    mlp = eqx.nn.MLP(2, 1, 3, 1, key=jax.random.key(0))
    mlp = from_state_dict(mlp, net.state_dict(), {"layers.0": "0", "layers.1": "2"})
    x = np.ones(2, np.float32)
    np.testing.assert_allclose(mlp(x), net(torch.tensor(x)).detach(), rtol=1e-6)


def modules_agree(ours, theirs, shape, names=None, tolerance=1e-5, **options):
    """Load PyTorch's weights, and compare in double precision; return the table."""
    from jaxtape.torch import from_state_dict, module_case

    torch.manual_seed(0)
    for weight in theirs.parameters():
        torch.nn.init.normal_(weight)
    x = np.random.default_rng(0).normal(size=shape)
    theirs = theirs.double()
    ours = from_state_dict(ours, theirs.state_dict(), names)
    table = module_case(ours, theirs, (x,), names=names, **options).table("double")
    assert table.parts_at(1e-10) is None, table
    assert table.max_relative_difference < 1e-10, table
    return table


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kernel", [3, 2])
def test_a_transposed_convolution_has_its_own_layout(groups, kernel):
    """Also with as many channels in as out, where each layout has the same shape."""
    import equinox as eqx
    import jax

    options = {"stride": 2, "padding": 1, "output_padding": 1, "groups": groups}
    theirs = torch.nn.ConvTranspose2d(4, 4, kernel, **options)
    ours = eqx.nn.ConvTranspose2d(4, 4, kernel, **options, key=jax.random.key(0))
    modules_agree(ours, theirs, (2, 4, 5, 5))


def test_a_normalized_weight_is_direction_and_length():
    import equinox as eqx
    import jax

    theirs = torch.nn.Sequential(
        torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 3)), torch.nn.Tanh()
    )
    layer = eqx.nn.WeightNorm(eqx.nn.Linear(3, 3, key=jax.random.key(0)))
    modules_agree(eqx.nn.Sequential([layer, eqx.nn.Lambda(jax.numpy.tanh)]), theirs, (4, 3))


class TiedTorch(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = (
            torch.nn.Linear(3, 3, bias=False),
            torch.nn.Linear(3, 3, bias=False),
        )
        self.outer.weight = self.inner.weight

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x)))


@pytest.mark.parametrize("is_shared", [True, False])
def test_tied_weights_are_one_input(is_shared):
    """Whether the Equinox module shares them by `eqx.nn.Shared`, or has two that are equal."""
    import equinox as eqx
    import jax

    class Pair(eqx.Module):
        inner: eqx.nn.Linear
        outer: eqx.nn.Linear

        def __call__(self, x):
            return self.outer(jax.numpy.tanh(self.inner(x)))

    class Tied(eqx.Module):
        pair: eqx.nn.Shared

        def __call__(self, x):
            return self.pair()(x)

    keys = jax.random.split(jax.random.key(0))
    pair = Pair(*(eqx.nn.Linear(3, 3, use_bias=False, key=key) for key in keys))
    if not is_shared:
        table = modules_agree(pair, TiedTorch(), (4, 3))
    else:
        shared = eqx.nn.Shared(pair, lambda p: p.outer.weight, lambda p: p.inner.weight)
        table = modules_agree(Tied(shared), TiedTorch(), (4, 3), {"pair": ""})
    assert [row.name for row in table.rows] == ["inputs[0]['inner.weight']", "inputs[1]"]


@pytest.mark.parametrize(("layer", "cell"), [("GRU", "GRUCell"), ("LSTM", "LSTMCell")])
def test_a_recurrent_layer_is_a_cell_in_a_loop(layer, cell):
    """Of two layers, in both directions; its outputs are a tuple."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    class Layers(eqx.Module):
        cells: list
        back: list

        def __call__(self, xs):
            ends = []
            for pair in zip(self.cells, self.back, strict=True):
                both = []
                for one, reverse in zip(pair, (False, True), strict=True):
                    zero = jnp.zeros(4, xs.dtype)
                    first = zero if cell == "GRUCell" else (zero, zero)

                    def step(state, x, one=one):
                        state = one(x, state)
                        return state, state if cell == "GRUCell" else state[0]

                    last, states = jax.lax.scan(step, first, xs, reverse=reverse)
                    both.append(states)
                    ends.append(last)
                xs = jnp.concatenate(both, axis=-1)
            stacked = jax.tree.map(lambda *x: jnp.stack(x), *ends)
            return (xs, stacked) if cell == "GRUCell" else (xs, *stacked)

    class Flat(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = getattr(torch.nn, layer)(3, 4, 2, bidirectional=True, batch_first=True)

        def forward(self, x):
            out, last = self.rnn(x)
            return out, *(h.swapaxes(0, 1) for h in (last if layer == "LSTM" else (last,)))

    key = jax.random.key(0)
    cells = [[getattr(eqx.nn, cell)(n, 4, key=key) for n in (3, 8)] for _ in range(2)]
    names = {"cells.0": "rnn", "cells.1": "rnn.*_l1"}
    names |= {f"back.{k}": f"rnn.*_l{k}_reverse" for k in range(2)}
    table = modules_agree(Layers(*cells), Flat(), (2, 5, 3), names)
    assert [row.name for row in table.outputs[-2:]] != ["output"]


def test_a_module_that_writes_over_its_values_agrees():
    import equinox as eqx
    import jax

    theirs = torch.nn.Sequential(
        torch.nn.ReLU(inplace=True), torch.nn.Linear(3, 3), torch.nn.ReLU(inplace=True)
    )
    relu = eqx.nn.Lambda(jax.nn.relu)
    ours = eqx.nn.Sequential([relu, eqx.nn.Linear(3, 3, key=jax.random.key(0)), relu])
    table = modules_agree(ours, theirs, (4, 3))
    assert {"0", "1", "2"} <= {row.name for row in table.outputs}


def test_statistics_in_a_state_are_refused():
    import equinox as eqx
    import jax

    from jaxtape.torch import from_state_dict, module_case

    norm = eqx.nn.Sequential(
        [eqx.nn.Linear(3, 3, key=jax.random.key(0)), eqx.nn.BatchNorm(3, "batch", mode="batch")]
    )
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    for compare in (
        lambda: from_state_dict(norm, theirs.state_dict()),
        lambda: module_case(norm, theirs, (np.ones((2, 3)),)),
    ):
        with pytest.raises(
            ValueError, match=r"1 is a BatchNorm, whose statistics are in an eqx\.nn\.State"
        ):
            compare()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_refused_where_it_is_not_compared(dtype):
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    from jaxtape.torch import Case, module_case

    theirs, ours = torch.nn.Linear(3, 3), eqx.nn.Linear(3, 3, key=jax.random.key(0))
    half = jnp.ones((2, 3), dtype)
    with pytest.raises(ValueError, match=f"a weight or an input is {dtype}"):
        module_case(ours, theirs.to(getattr(torch, dtype)), (np.ones((2, 3), np.float32),))
    with pytest.raises(ValueError, match=f"an input is {dtype}"):
        Case(jnp.sin, torch.sin, lambda rng: (half,)).table("single")


def test_outputs_without_entries_are_not_equal():
    """Without an example any two functions agreed."""
    from jaxtape.torch import Case

    none = Case(jnp.sin, torch.cos, lambda rng: (np.ones((0, 3)),))
    with pytest.raises(ValueError, match="without entries to compare: give inputs with at least"):
        none.table("double")


@pytest.mark.parametrize("way", ["eager", "func"])
def test_outputs_of_other_keys_are_not_compared(way):
    """The outputs of two dictionaries were compared in order, whatever their keys."""
    from jaxtape.torch import Case

    x = np.array([0.3, 0.4])
    named = lambda *keys: lambda x: dict(zip(keys, (x, 2.0 * x), strict=True))
    other = Case(named("a", "b"), named("b", "c"), lambda rng: (x,))
    with pytest.raises(ValueError, match=r"keys \['a', 'b'\] in JAX and \['b', 'c'\] in PyTorch"):
        other.table("double", way=way)
    same = Case(named("a", "b"), lambda x: {"b": 2.0 * x, "a": x}, lambda rng: (x,))
    assert same.table("double", way=way).parts_at(1e-10) is None


def test_a_counter_in_a_module_does_not_run_on():
    """The second comparison of a module that counts its calls began with the count of the first."""
    import equinox as eqx

    from jaxtape.torch import from_state_dict, module_case

    class Counted(torch.nn.Linear):
        def __init__(self):
            super().__init__(3, 2)
            self.register_buffer("calls", torch.tensor(0))

        def forward(self, x):
            self.calls += 1
            return super().forward(x) * self.calls

    theirs, ours = Counted(), eqx.nn.Linear(3, 2, key=jax.random.key(0))
    state = {name: x for name, x in theirs.state_dict().items() if name != "calls"}
    case = module_case(from_state_dict(ours, state), theirs, (np.ones((2, 3), np.float32),))
    assert [case.table("double").parts_at(1e-10) for _ in range(2)] == [None, None]
    assert int(theirs.calls) == 0


def test_modules_with_complex_weights_are_refused():
    import equinox as eqx

    from jaxtape.torch import module_case

    theirs, ours = torch.nn.Linear(3, 2), eqx.nn.Linear(3, 2, key=jax.random.key(0))
    theirs.weight = torch.nn.Parameter(theirs.weight.to(torch.complex64))
    with pytest.raises(ValueError, match="is complex64, and modules are compared in real numbers"):
        module_case(ours, theirs, (np.ones((2, 3), np.float32),))
