"""JAX functions inside PyTorch: right derivatives, no wrong ones, and the same as PyTorch's own."""

import contextlib
import functools
import io
import itertools
import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtape as jt

from ..helpers_tape import Heston, heston, heston_call, heston_noise

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'jaxtape[torch]'"
)

from jaxtape.torch import compare_gradients, to_torch  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),  # PyTorch's own
    pytest.mark.filterwarnings("ignore:The .grad attribute"),
]
DOCS = pathlib.Path(__file__).parents[2] / "docs"


@pytest.fixture
def exercise_list(monkeypatch):
    """The example of the docs, as a module."""
    monkeypatch.syspath_prepend(DOCS / "examples")
    import exercise_list

    return exercise_list


def leaf(*shape, seed=0, **options):
    draw = np.random.default_rng(seed).uniform(0.5, 1.5, shape)
    return torch.tensor(draw, requires_grad=True, **options)


def chain(x, n, a):
    """A pytree in and out, an integer of each, a schedule, and random numbers from a key."""
    key = jax.random.key(n)

    def step(carry, i):
        state, key = carry
        key, draw = jax.random.split(key)
        new = jnp.sin(a * state) + x["w"] * jax.random.normal(draw, state.shape)
        return (new, key), new[0] * a

    (state, _), ys = jt.scan(step, (x["s"], key), jnp.arange(7), schedule=jt.Revolve(2))
    return {"state": state, "ys": ys, "count": n + 1, "big": state > 0.0}


def chain_arguments():
    return {"s": leaf(3), "w": leaf(3, seed=1)}, torch.tensor(4), leaf(seed=2)


chain_in_torch = to_torch(chain)


def floats(s, w, a):
    out = chain_in_torch({"s": s, "w": w}, torch.tensor(4), a)
    return out["state"], out["ys"]


def test_gradcheck():
    x, _, a = chain_arguments()
    assert torch.autograd.gradcheck(floats, (x["s"], x["w"], a))
    held = x["w"].detach()
    assert torch.autograd.gradcheck(lambda s: floats(s, held, a.detach()), (x["s"],))


def test_values_and_dtypes():
    x, n, a = chain_arguments()
    out = to_torch(chain)(x, n, a)
    expected = chain({k: jnp.asarray(v.detach().numpy()) for k, v in x.items()}, 4, a.item())
    np.testing.assert_allclose(out["state"].detach(), expected["state"], rtol=1e-12)
    assert (out["count"].item(), out["big"].dtype) == (5, torch.bool)
    assert (
        out["ys"].requires_grad and not out["count"].requires_grad and not out["big"].requires_grad
    )
    with torch.no_grad():
        assert not to_torch(chain)(x, n, a)["ys"].requires_grad


def test_only_inputs_that_require_gradients_get_them():
    x, n, a = chain_arguments()
    x["w"].requires_grad_(False)
    to_torch(chain)(x, n, a)["ys"].sum().backward()
    assert x["w"].grad is None and n.grad is None
    assert x["s"].grad.shape == (3,) and a.grad.shape == ()


def test_one_compilation_a_signature():
    traced = []

    @to_torch
    def f(x, y):
        traced.append(x.shape)
        return jnp.sin(x) * y

    for seed in range(3):
        f(leaf(3, seed=seed), leaf(seed=seed)).sum().backward()
    assert traced == [(3,)]
    f(leaf(3).detach(), leaf()).sum().backward()
    f(leaf(2, 3), leaf()).sum().backward()
    assert len(traced) == 3


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T,
        lambda x: x[:, ::2],
        lambda x: x[1:],
        lambda x: x[:1].expand(4, 5),
        lambda x: x[:0],
    ],
)
def test_any_layout(view):
    x, y = leaf(4, 5), leaf(4, 5)
    to_torch(lambda x: jnp.sin(x).sum(0))(view(x)).pow(2).sum().backward()
    view(y).sin().sum(0).pow(2).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-12, atol=0.0)


def test_tensors_are_not_copied_on_their_way_in(monkeypatch):
    x = leaf(64, 64)
    into, found = jnp.from_dlpack, []
    monkeypatch.setattr(jnp, "from_dlpack", lambda t: found.append(into(t)) or found[-1])
    to_torch(jnp.sin)(x)
    assert [array.unsafe_buffer_pointer() for array in found] == [x.data_ptr()]


def test_no_two_tensors_share_memory():
    """Tensors may be written to: outputs and gradients, though equal, are apart."""
    x, y = leaf(3), leaf(3)
    a, b = to_torch(lambda x, y: (x, x + y))(x, y)
    assert a.data_ptr() != x.data_ptr()
    value = a.detach().clone()
    b.detach().zero_()
    torch.testing.assert_close(a.detach(), value)
    b.sum().backward(retain_graph=True)
    b.sum().backward()
    torch.testing.assert_close(x.grad, 2.0 * torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(y.grad, x.grad)


def test_backward_keeps_the_manners_of_pytorch():
    x = leaf(3)
    y = to_torch(jnp.exp)(x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    torch.testing.assert_close(x.grad, 2.0 * y.detach())
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()
    z = x * 1.0
    y = to_torch(jnp.exp)(z)
    z.zero_()
    with pytest.raises(RuntimeError, match="inplace"):
        y.sum().backward()


def test_saved_tensor_hooks_see_what_is_kept():
    seen = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.shape) or t, lambda t: t):
        y = to_torch(lambda x: jnp.sum(jnp.sin(x)))(leaf(3))
    assert torch.Size([3]) in seen
    y.backward()


def mixed(x, y):
    return jnp.sin(x) * y**2, jnp.sum(x) * jnp.exp(y)


def mixed_in_torch(x, y):
    return x.sin() * y**2, x.sum() * y.exp()


def test_derivatives_of_any_order():
    f = to_torch(mixed)
    x, y = leaf(3), leaf(seed=1)
    assert torch.autograd.gradgradcheck(lambda x, y: f(x, y), (x, y))
    third = []
    for function in (f, mixed_in_torch):
        found = sum(out.sum() for out in function(x, y))
        for _ in range(3):
            (found,) = torch.autograd.grad(found, y, create_graph=True)
        third.append(found.detach())
    torch.testing.assert_close(*third, rtol=1e-12, atol=0.0)


def test_a_second_derivative_through_a_schedule():
    """Reverse over reverse, by JAX's own rule."""

    def chain(x):
        step = lambda x, w: (jnp.sin(x) * w, None)
        return jnp.sum(jt.scan(step, x, jnp.linspace(0.5, 1.5, 6), schedule=jt.Revolve(2))[0])

    x = leaf(2)
    (g,) = torch.autograd.grad(to_torch(chain)(x), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    expected = jnp.sum(jax.hessian(chain)(jnp.asarray(x.detach().numpy())), axis=0)
    np.testing.assert_allclose(h, expected, rtol=1e-10)


def test_non_reentrant_checkpoints():
    """They compute saved tensors anew at their first read."""
    x, y = leaf(3), leaf(seed=1)
    f = to_torch(lambda x, y: jnp.exp(x) * jnp.sin(y))
    found = torch.utils.checkpoint.checkpoint(f, x, y, use_reentrant=False).sum()
    found.backward()
    torch.testing.assert_close(x.grad, (x.exp() * y.sin()).detach(), rtol=1e-12, atol=0.0)
    torch.testing.assert_close(y.grad, (x.exp() * y.cos()).sum().detach(), rtol=1e-12, atol=0.0)


def test_a_compiled_program_calls_it_between_two_graphs():
    f = to_torch(mixed)
    around = torch.compile(lambda x, y: f(2.0 * x, y)[0].sum() + x.sum(), backend="eager")
    x, y = leaf(3), leaf(seed=1)
    around(x, y).backward()
    torch.testing.assert_close(x.grad, (2.0 * (2.0 * x).cos() * y**2 + 1.0).detach())


def test_the_transforms_of_pytorch():
    f, x, y = to_torch(mixed), leaf(4, 3).detach(), leaf(4, seed=1).detach()
    transforms = {
        "grad": lambda f: torch.func.grad(lambda x, y: sum(part.sum() for part in f(x, y)))(
            x[0], y[0]
        ),
        "jacrev": lambda f: torch.func.jacrev(f, argnums=(0, 1))(x[0], y[0]),
        "vmap": lambda f: torch.vmap(f)(x, y),
        "vmap of one argument": lambda f: torch.vmap(f, in_dims=(1, None))(x.T, y[0]),
        "vmap of grad": lambda f: torch.vmap(torch.func.grad(lambda x, y: f(x, y)[1]))(x, y),
        "vmap of vmap": lambda f: torch.vmap(torch.vmap(f, in_dims=(0, None)))(x[..., None], y),
        "grad of vmap": lambda f: torch.func.grad(lambda x: torch.vmap(f)(x, y)[0].sum())(x),
        "hessian": lambda f: torch.func.jacrev(torch.func.grad(lambda x: f(x, y[0])[0].sum()))(
            x[0]
        ),
    }
    for name, transform in transforms.items():
        found, expected = transform(f), transform(mixed_in_torch)
        message = lambda text, name=name: f"{name}: {text}"
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14, msg=message)
    with pytest.raises(RuntimeError, match="has no forward mode in PyTorch: take it in JAX"):
        torch.func.jvp(f, (x[0], y[0]), (x[0], y[0]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_crosses_as_it_is(dtype):
    x, y = leaf(5, dtype=dtype), leaf(5, dtype=dtype)
    to_torch(lambda x: x * x + x)(x).sum().backward()
    (y * y + y).sum().backward()
    assert x.grad.dtype == dtype
    torch.testing.assert_close(x.grad, y.grad, rtol=4.0 * torch.finfo(dtype).eps, atol=0.0)


def test_arguments_by_name():
    f = to_torch(lambda x, *, scale: x * scale["by"])
    x, scale = leaf(3), leaf(seed=1)
    f(x, scale={"by": scale}).sum().backward()
    torch.testing.assert_close(scale.grad, x.detach().sum())
    with pytest.raises(TypeError, match=r"kwargs\['scale'\]\['by'\] is 2.0: give a tensor"):
        f(x, scale={"by": 2.0})


def test_keys_among_what_is_kept():
    def noisy(x, seed):
        keys = jax.random.split(jax.random.key(seed), 4)
        step = lambda x, key: (jnp.sin(x) + jax.random.normal(key, x.shape, x.dtype), None)
        return jnp.sum(jt.scan(step, x, keys, schedule=jt.Revolve(2))[0])

    x = leaf(3)
    to_torch(noisy)(x, torch.tensor(3)).backward()
    expected = jax.grad(noisy)(jnp.asarray(x.detach().numpy()), 3)
    np.testing.assert_allclose(x.grad, expected, rtol=1e-12)


def test_second_derivatives_are_taken_in_jax():
    x = leaf(3)
    g = to_torch(jax.grad(lambda x: jnp.sum(jnp.sin(x))))
    assert torch.autograd.gradcheck(g, (x,))
    h = to_torch(lambda x, v: jt.hvp(lambda x: jnp.sum(jnp.sin(x)), (x,), (v,))[0])
    torch.testing.assert_close(h(x, torch.ones_like(x)), -x.sin())


def test_float32():
    x = leaf(5, dtype=torch.float32)
    y = to_torch(lambda x: jnp.sum(jnp.exp(x)))(x)
    y.backward()
    assert y.dtype == x.grad.dtype == torch.float32
    torch.testing.assert_close(x.grad, x.detach().exp())


def test_arguments_are_checked():
    f = to_torch(lambda x: x["a"] * 2)
    with pytest.raises(TypeError, match=r"args\[0\]\['a'\] is 3.0: give a tensor"):
        f({"a": 3.0})
    with pytest.raises(TypeError, match=r"args\[0\]\['a'\] is complex128: convert"):
        f({"a": torch.ones(2, dtype=torch.complex128)})
    with pytest.raises(TypeError, match=r"output\[0\] is complex128: convert"):
        to_torch(lambda x: (jax.lax.complex(x, x),))(leaf(2))
    with pytest.raises(TypeError, match="incompatible shapes"):
        to_torch(jnp.add)(leaf(2), leaf(3))
    with jax.enable_x64(False):
        for tensor in (leaf(2), torch.arange(3)):
            with pytest.raises(TypeError, match=r"64 and JAX would round it to .*jax_enable_x64"):
                f({"a": tensor})


@pytest.mark.costly
def test_jaxtape_does_not_import_pytorch():
    code = "import sys, jaxtape; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.costly
def test_without_pytorch_the_remedy_is_named():
    code = "import sys; sys.modules['torch'] = None; import jaxtape.torch"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "jaxtape.torch needs PyTorch: pip install 'jaxtape[torch]'" in found.stderr


def torch_heston_call(p, noise, dt):
    """`heston_call`, in plain PyTorch."""
    x = torch.zeros(noise.shape[-1], dtype=noise.dtype)
    v = p.initial_variance.expand(noise.shape[-1])
    for z in noise:
        v_plus = torch.clamp(v, min=0.0)
        root = torch.sqrt((v_plus + 1e-12) * dt)
        other = p.correlation * z[0] + torch.sqrt(1.0 - p.correlation**2) * z[1]
        x = x + (p.rate - 0.5 * v_plus) * dt + root * other
        v = v + p.mean_reversion * (p.long_run_variance - v_plus) * dt + p.vol_of_vol * root * z[0]
    return torch.clamp(torch.exp(x) - 1.0, min=0.0).mean()


def check(table):
    print(table)
    assert table.value_difference <= 1e-12
    assert table.max_relative_difference <= 1e-10


def test_gradients_of_heston_monte_carlo_agree():
    n, scan = 50, functools.partial(jt.scan, schedule=jt.Revolve(5))
    table = compare_gradients(
        lambda p, noise: heston_call(scan, p, noise, 1 / n),
        lambda p, noise: torch_heston_call(p, noise, 1 / n),
        (heston, heston_noise(n, 512)),
    )
    check(table)
    assert [row.name for row in table.rows[:2]] == ["inputs[0].rate", "inputs[0].initial_variance"]
    assert table.rows[-1].shape == (n, 2, 512)
    assert Heston._fields[-1] in str(table)


def test_gradients_of_a_network_agree():
    rng, sizes = np.random.default_rng(0), (4, 16, 16, 2)
    weights = [
        {"w": rng.standard_normal((n, m)) / np.sqrt(n), "b": rng.standard_normal(m)}
        for n, m in itertools.pairwise(sizes)
    ]

    def network(tanh, weights, x):
        for layer in weights[:-1]:
            x = tanh(x @ layer["w"] + layer["b"][None])
        return x @ weights[-1]["w"] + weights[-1]["b"][None]

    nets = (functools.partial(network, tanh) for tanh in (jnp.tanh, torch.tanh))
    check(compare_gradients(*nets, (weights, rng.standard_normal((32, 4)))))


@pytest.mark.parametrize("schedule", [jt.StoreAll(), jt.Revolve(3)], ids=str)
def test_gradients_of_a_bermudan_recursion_agree(exercise_list, schedule):
    inputs, dates = exercise_list.make_inputs()
    table = compare_gradients(
        lambda *x: exercise_list.by_tape(*x, dates, 0.2, schedule),
        lambda *x: exercise_list.by_list(*x, dates, 0.2),
        inputs,
    )
    check(table)
    assert table.max_relative_difference <= 1e-12
    assert [row.shape for row in table.rows] == [(1000,), (12,), (12, 1000)]


def test_differences_are_seen():
    x = np.ones(3), 2.0, 7
    table = compare_gradients(
        lambda x, y, n: (x * y, jnp.asarray(n)), lambda x, y, n: (x * y + 1e-3 * x.sin(), n), x
    )
    assert [row.name for row in table.rows] == ["inputs[0]", "inputs[1]"]
    np.testing.assert_allclose(table.value_difference, 1e-3 * np.sin(1.0))
    assert table.rows[0].max_difference > 1e-5 and table.rows[1].max_difference < 1e-15
    nan = compare_gradients(lambda x: jnp.sqrt(x - 1.0) * 0.0, lambda x: x * 0.0, (1.0,))
    assert np.isnan(nan.max_relative_difference)
    unused = compare_gradients(lambda x, y: x * 1.0, lambda x, y: x * 1.0, (1.0, 2.0))
    assert unused.rows[1].largest == unused.max_relative_difference == 0.0


def test_comparisons_that_cannot_be_made_say_why():
    with pytest.raises(TypeError, match=r"inputs is .*: give a tuple"):
        compare_gradients(jnp.sin, torch.sin, np.ones(2))
    with pytest.raises(ValueError, match="no float leaf"):
        compare_gradients(jnp.negative, torch.negative, (3,))
    with pytest.raises(
        ValueError, match=r"\['float64\[2\]'\] in JAX and \['float64\[\]'\] in PyTorch"
    ):
        compare_gradients(jnp.sin, torch.sum, (np.ones(2),))


def test_the_page_quotes_the_example_and_prints_what_it_says(exercise_list, monkeypatch):
    blocks = re.findall(
        r"```(?:python|text)\n(.*?)```", (DOCS / "pytorch.md").read_text(), re.DOTALL
    )
    first, says, quoted, tape, program, printed_by_it, *more = blocks
    source = pathlib.Path(exercise_list.__file__).read_text()
    assert quoted in source and tape in source
    names = {}
    for block, said in ((first, says), (program, printed_by_it)):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(block, names)
        assert printed.getvalue() == said
    with contextlib.redirect_stdout(io.StringIO()):
        for block in more[:3]:
            exec(block, names)


@pytest.mark.parametrize("way", ["eager", "func"])
def test_integer_and_boolean_outputs_must_be_equal(way):
    """They were left out, and a mask of exercise that was another ended in "yes"."""
    x = (np.array([0.3, 1.2, -0.7]),)
    compare = lambda ours, theirs: compare_gradients(ours, theirs, x, way=way)
    with_mask = lambda level: lambda x: (torch.sin(x), x > level)
    same = compare(lambda x: (jnp.sin(x), x > 0.0), with_mask(0.0))
    assert same.parts_at(1e-10) is None
    apart = compare(lambda x: (jnp.sin(x), x > 0.0), with_mask(0.5))
    assert apart.parts_at(1e-3) == "integer output 0"
    many = compare(
        lambda x: (jnp.sin(x), jnp.int32(10**6)), lambda x: (torch.sin(x), torch.tensor(10**6 + 1))
    )
    assert many.parts_at(1e-3) == "integer output 0"
    with pytest.raises(ValueError, match=r"have shapes \[\[3\]\] in JAX and \[\] in PyTorch"):
        compare(lambda x: (jnp.sin(x), x > 0.0), torch.sin)
