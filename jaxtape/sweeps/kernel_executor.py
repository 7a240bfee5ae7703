"""Run the sweeps of a chain of independent paths as kernels in programs lowered for a GPU or a TPU."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import jax
from jax import lax

from ..jax_settings.kernels import kernels_are_on
from ..jax_settings.platform import platforms_in_use
from .chain import Active, Arrays, Chain
from .executor import TableExecutor
from .leaves import avals, first_node, is_symbolic, merge, pick, shapes, zeros_stack
from .pullback import SharedValues
from .sums_of_ys import added_up, of_each_node

_KINDS = {"cuda": "gpu", "tpu": "tpu"}

_are_open: ContextVar[bool] = ContextVar("are_open", default=False)

INTERPRETED_FOR: str | None = None
"""The kind of accelerator whose kernels other platforms interpret; for tests."""


@dataclasses.dataclass(frozen=True)
class KernelExecutor(TableExecutor):
    """The executor that runs a chain in kernels, or in another executor if it has none.

    Both sweeps decide by the same facts. In a kernel, slot j holds the state before block j, while `otherwise`
    may keep other states. JAX differentiates `otherwise`, with its own first sweep, and checkify checks it.

    Attributes:
        otherwise: The other executor.
    """

    otherwise: TableExecutor = dataclasses.field(kw_only=True)

    def run(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple]:
        without = lambda arrays: added_up(chain, self.otherwise.run(chain, arrays))

        def within(kernels: Any, interpret: bool, arrays: Arrays):
            return kernels.run(*arrays, interpret)

        return _chosen(chain, within, without, lambda run, arrays: without(arrays), arrays)

    def first_sweep(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple, Any]:
        without = lambda arrays: added_up(chain, self.otherwise.first_sweep(chain, arrays))

        def within(kernels: Any, interpret: bool, arrays: Arrays):
            state, ys, slots = kernels.first(*arrays, interpret)
            return state, ys, ((), slots)

        def open_to_jax(run: Callable, arrays: Arrays):
            *_, kept = run(lax.stop_gradient(arrays))
            return *without(arrays)[:2], kept

        return _chosen(chain, within, without, open_to_jax, arrays)

    def reverse_sweep(self, chain: Chain, active: Active, arrays: Arrays, kept, bars) -> Arrays:
        def without(arrays: Arrays, kept, bars):
            bars = of_each_node(chain, bars)
            return self.otherwise.reverse_sweep(chain, active, arrays, kept, bars)

        whole = chain.pulled
        assert whole is not None and active[:3] == whole[:3]

        def within(kernels: Any, interpret: bool, arrays: Arrays, kept, bars):
            state_bar, ys_bar = bars
            count = chain.length // chain.sum_ys
            zeros = tuple(zeros_stack(count, aval) for aval in chain.y_avals)
            ys_bar = pick(whole.ys, merge(active.ys, ys_bar, zeros))
            return Arrays(*kernels.second(*arrays, kept[1], (state_bar, ys_bar), interpret))

        def open_to_jax(run: Callable, arrays: Arrays, kept, bars):
            del run, kept
            return without(arrays, self.otherwise.first_sweep(chain, arrays)[2], bars)

        return _chosen(chain, within, without, open_to_jax, arrays, kept, bars)


@contextlib.contextmanager
def open_kernels() -> Iterator[None]:
    """Within the block, trace sweeps by ordinary operations: checkify cannot see into kernels."""
    token = _are_open.set(True)
    try:
        yield
    finally:
        _are_open.reset(token)


def kind_of_kernels() -> str | None:
    """Return the kind of accelerator that programs traced now are for, if kernels support it."""
    kinds = {(_KINDS | {"gpu": "gpu"}).get(platform) for platform in platforms_in_use()}
    return kinds.pop() if len(kinds) == 1 else None


def kernels_here() -> str | None:
    """Return the kind of accelerator whose kernels programs traced now use, if `jt.set_kernels` is on."""
    return (INTERPRETED_FOR or kind_of_kernels()) if kernels_are_on() else None


def kernels_are_interpreted() -> bool:
    """Return True if Pallas interprets the kernels of programs traced now, as tests want it."""
    return INTERPRETED_FOR is not None


def has_kernel(chain: Chain, types: tuple) -> bool:
    """Return True if a chain traced now, with arrays of these types, runs in a kernel."""
    kind = kernels_here()
    return bool(kind) and not isinstance(kernels_or_reason(chain, types, kind), str)


def _chosen(chain: Chain, within: Callable, without: Callable, open_to_jax: Callable, *args):
    """Return `within(kernels, interpret, *args)` if the chain has kernels, or `without(*args)`.

    `open_to_jax(run, *args)` computes the same as the first, `run(*args)`, by operations that JAX can
    transform.
    """
    types = avals(tuple(args[0]))

    def on(kind: str | None, interpret: bool) -> Callable:
        kernels = kernels_or_reason(chain, types, kind) if kind else ""
        if isinstance(kernels, str):
            return without
        run = functools.partial(within, kernels, interpret)
        if (
            kind == "tpu"
        ):  # its kernels read vectors that no batch may have: one member after the other
            run = jax.custom_batching.sequential_vmap(run)
        run = jax.custom_jvp(run)
        seen = functools.partial(open_to_jax, run)
        run.defjvp(functools.partial(jax.jvp, seen))
        return seen if _are_open.get() else run

    by_kind = {platform: on(kind, False) for platform, kind in _KINDS.items()}
    by_kind["default"] = on(INTERPRETED_FOR, True)
    if all(sweep is without for sweep in by_kind.values()):
        return without(*args)
    return lax.platform_dependent(*args, **by_kind)


def kernels_or_reason(chain: Chain, types: tuple, kind: str) -> Any:
    """Return the kernels of a chain, from the types of its arrays, or the reason why it has none.

    They are the `KernelSweeps` of a prepared chain, or the `KernelRun` of any other.
    """
    chain = dataclasses.replace(chain, broadcasts=False, in_bits=True)
    draws = jax.config.jax_threefry_partitionable  # pyright: ignore[reportAttributeAccessIssue]
    return _found(chain, types[0], types[1], types[2], kind, draws)


@functools.lru_cache(maxsize=64)
def _found(chain: Chain, consts: tuple, init: tuple, xs: tuple, kind: str, draws: bool) -> Any:
    del draws  # part of the cache key: the walk reads it if a step draws
    from ..kernels.chain_leaves import ChainTypes
    from ..kernels.paths import NoKernelError
    from ..kernels.run import KernelRun
    from ..kernels.sweeps import KernelSweeps

    if reason := _reason_outside_steps(chain, (consts, init, xs)):
        return reason
    active, arrays = chain.pulled, Arrays(*map(shapes, (consts, init, xs)))
    types = ChainTypes(arrays.consts, arrays.init, first_node(arrays.xs), tuple(chain.y_avals))
    of_nodes = {"length": chain.length, "reverse": chain.reverse, "sum_ys": chain.sum_ys}
    try:
        if active is None:
            return KernelRun.of_chain(kind, chain.step, types, **of_nodes)
        return KernelSweeps.of(
            kind,
            chain.step,
            functools.partial(_pull_of, chain),
            types,
            **of_nodes,
            slots=chain.executor.table.slots,
            needed=chain.needed,
            active=tuple(active),
        )
    except NoKernelError as error:
        return str(error)


def _pull_of(chain: Chain, step: Callable, types: tuple, active: tuple) -> Callable:
    """Return the pullback of a step with these types: of the active leaves before a node."""
    chain = dataclasses.replace(chain, closed=jax.make_jaxpr(step)(*types[:3]))

    def pull(consts, state, x, state_bar, y_bar) -> tuple:
        shared = SharedValues.of(chain, Active(*active), consts)
        return shared.pull(state, x, (state_bar, y_bar))

    return pull


def _reason_outside_steps(chain: Chain, types: tuple) -> str:
    """Return a reason against kernels that lies outside the step; "" if there is none."""
    leaves, executor = jax.tree.leaves(types), chain.executor
    if chain.jaxpr.effects:
        return "the step has side effects"
    if chain.pulled is not None and executor.checkpoint_dtype is not None:
        return "slots are of lower precision"
    if chain.pulled is not None and executor.table.host_slots:
        return "states are in the host's memory"
    if executor.length > len(executor.table):
        return "residuals are kept"
    if is_symbolic(shapes(types)):
        return "a shape is symbolic"
    if any(x.manual_axis_type.varying or not x.sharding.mesh.empty for x in leaves):
        return "arrays are on a mesh of devices"
    return ""
