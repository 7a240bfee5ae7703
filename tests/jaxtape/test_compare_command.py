"""`jaxtape compare`: named cases, functions and modules from a file, planted errors, mistakes."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from jaxtape.command_line import app

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
