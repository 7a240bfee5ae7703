"""Slots in the host's memory: moved there as on an accelerator, and left where they are on a CPU."""

import functools

import jax
import jax.experimental
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxtape as jt
from jaxtape.sweeps import host_memory, leaves, state_store

from ..cases import others_later
from ..helpers_tape import assert_close, loss_of, mixed_arguments
from .test_scan import transformed, transformed_without_schedule

STAGES = jt.MultiStage(device=1, host=2)
ON_CPU = jax.default_backend() == "cpu"
one_memory = pytest.mark.skipif(not ON_CPU, reason="host and device are two")
refused = pytest.mark.xfail(not ON_CPU, reason="XLA for GPUs stacks no host's slots in a scan")


class TestApart:
    """Where host and device are two, as on an accelerator; the state of these chains has a key."""

    @pytest.fixture(autouse=True)
    def _apart(self, monkeypatch):
        monkeypatch.setattr(state_store, "host_is_separate", lambda: True)

    def test_slots_are_placed_there(self):
        jaxpr = str(jax.make_jaxpr(jax.grad(loss_of(STAGES)))(*mixed_arguments(n=9)))
        assert any(name in jaxpr for name in ("<host>", "Space.Host"))

    @pytest.mark.costly
    @pytest.mark.parametrize(
        "name",
        others_later(
            ["vmap of grad", "hessian", "checkpoint", "cond", "scan in scan"],
            ["vmap of grad", "checkpoint", "cond", "scan in scan"],
        ),
    )
    def test_transformation(self, name):
        assert_close(transformed(name, STAGES), transformed_without_schedule(name))

    @refused
    @pytest.mark.costly
    def test_a_gradient_through_a_scan_of_such_chains(self):
        assert_close(transformed("scan", STAGES), transformed_without_schedule("scan"))

    @pytest.mark.parametrize(
        "name", others_later(["vmap of grad", "hessian", "scan in scan"], ["vmap of grad"])
    )
    def test_nothing_is_read_that_was_not_put(self, name, monkeypatch):
        """XLA for GPUs drops what a slot holds before a state is put into it."""

        def dropped(length, aval, axis):
            real = jnp.issubdtype(aval.dtype, jnp.floating)
            stack = leaves.zeros_stack(length, aval, axis)
            return stack + (jnp.nan if real else jnp.iinfo(aval.dtype).max)

        empty = functools.cache(host_memory._host_empty.__wrapped__)
        monkeypatch.setattr(host_memory, "_host_empty", empty)
        monkeypatch.setattr(host_memory, "zeros_stack", dropped)
        assert_close(transformed(name, STAGES), transformed_without_schedule(name))

    @pytest.mark.parametrize("way", ["shard_map", "explicit axes"])
    def test_on_a_mesh(self, way):
        """Slots vary and are sharded as the state is."""

        def loss(a, xs, schedule=STAGES):
            step = lambda c, x: (jnp.sin(c) * x, None)
            return jnp.sum(jt.scan(step, a, xs, schedule=schedule)[0])

        a, xs = jnp.linspace(0.1, 0.9, 4), jnp.ones((9, 4))
        gradient = jax.grad(loss, (0, 1))
        expected = jax.grad(functools.partial(loss, schedule=None), (0, 1))(a, xs)
        each = PartitionSpec("paths"), PartitionSpec(None, "paths")
        if way == "shard_map":
            mesh = jax.make_mesh((1,), ("paths",), axis_types=(AxisType.Auto,))
            found = jax.shard_map(gradient, mesh=mesh, in_specs=each, out_specs=each)(a, xs)
        else:
            mesh = jax.make_mesh((1,), ("paths",), axis_types=(AxisType.Explicit,))
            with jax.set_mesh(mesh):
                placed = jax.device_put((a, xs), tuple(NamedSharding(mesh, of) for of in each))
                found = jax.jit(gradient)(*placed)
        assert_close(jax.device_get(found), expected)

    def test_ordered_effects_are_refused(self):
        def step(c, x):
            jax.experimental.io_callback(lambda: None, None, ordered=True)
            return jnp.sin(c) * x, None

        gradient = jax.grad(lambda a: jt.scan(step, a, jnp.ones(9), schedule=STAGES)[0])
        with pytest.raises(ValueError, match=r"OrderedIO.*ordered=False.*Revolve"):
            gradient(0.7)


@one_memory
@pytest.mark.parametrize(
    "name", others_later(["vmap of grad", "cond", "scan", "checkpoint"], ["vmap of grad", "scan"])
)
def test_under_the_checks_of_jax(name):
    """Where host and device are one, two stages have nothing that JAX's checks or a select refuse."""
    with jax.enable_checks(True):
        found = transformed(name, STAGES)
    assert_close(found, transformed_without_schedule(name))


@one_memory
def test_in_a_batched_cond():
    def branch(x, schedule):
        step = lambda c, z: (jnp.sin(c) * z, c)
        run = lambda x: jt.scan(step, x, jnp.ones(9), schedule=schedule)[0]
        return lax.cond(x > 0.5, run, lambda x: x, x)

    gradient = jax.vmap(jax.grad(branch), (0, None))
    x = jnp.linspace(0.1, 0.9, 4)
    assert_close(gradient(x, STAGES), gradient(x, None))


@one_memory
def test_nothing_is_moved_where_they_are_one():
    jaxpr = str(jax.make_jaxpr(jax.grad(loss_of(STAGES)))(*mixed_arguments(n=9)))
    assert not any(name in jaxpr for name in ("<host>", "Space.Host"))
