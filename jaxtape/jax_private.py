"""The private and experimental interfaces of JAX that this library uses, in one file.

Tested with JAX 0.10.2, 0.11.2 and 0.12.0.1. `tests/jaxtape/test_jax_private.py` tests each interface: run it
first with a new version. No other file of the library imports from `jax._src`, `jax.interpreters`,
`jax.extend`, `jax.experimental.hijax` or `jaxlib`.

Three functions change JAX for the whole process:

- `replace_linearization_rule` and `replace_check_rule`, which `jaxtape.sweeps` calls on import. The new rules
  pass every primitive that is not this library's to JAX's own rule.
- `share_executables_among_devices`, which the commands call when they turn JAX's persistent cache on. It
  removes the device's number from the names of single-device executables.
"""

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import jax
import jax.core
from jax._src import cache_key, checkify, config, xla_bridge
from jax._src.array import ArrayImpl
from jax._src.core import trace_state_clean
from jax._src.dispatch import apply_primitive
from jax._src.hijax import call_hi_primitive_p
from jax._src.interpreters import ad, batching, mlir
from jax._src.interpreters.ad import primitive_jvps, primitive_linearizations
from jax._src.interpreters.partial_eval import lower_jaxpr2
from jax._src.lax.lax import split_p as split_p
from jax._src.lax.lax import stack_p as stack_p
from jax._src.lax.lax import unstack_p as unstack_p
from jax.experimental import hijax
from jax.extend.core import ClosedJaxpr as ClosedJaxpr
from jax.extend.core import Jaxpr as Jaxpr
from jax.extend.core import JaxprEqn as JaxprEqn
from jax.extend.core import Literal as Literal
from jax.extend.core import Primitive as Primitive
from jax.extend.core import Var as Var
from jax.extend.core import jaxpr_as_fun as jaxpr_as_fun
from jax.extend.core import jaxprs_in_params as jaxprs_in_params
from jax.extend.core import primitives as primitives
from jax.interpreters.ad import Zero as Zero
from jax.interpreters.ad import instantiate_zeros as instantiate_zeros
from jax.interpreters.ad import zeros_like_aval as zeros_like_aval
from jax.interpreters.partial_eval import dce_jaxpr as dce_jaxpr
from jaxlib.mlir.passmanager import PassManager
from jaxlib.version import __version_info__ as jaxlib_version

HiPrimitive: Any = getattr(hijax, "HiPrim", None) or hijax.VJPHiPrimitive
"""The base class of primitives whose rules are methods: `VJPHiPrimitive` before JAX 0.11, `HiPrim` since."""

JAXLIB_VERSION: tuple[int, ...] = jaxlib_version
"""The version of jaxlib, such as (0, 10, 2)."""


def backends_are_initialized() -> bool:
    """Return True if JAX has started a backend, after which it no longer reads XLA_FLAGS."""
    return xla_bridge.backends_are_initialized()


def is_tracing() -> bool:
    """Return True within a function that JAX transforms or compiles."""
    return not trace_state_clean()


def uncommitted(array: Any) -> jax.Array:
    """Return a single-device array that JAX may move to another device, like a result of a jitted function.

    The results of an exported program are committed to their device.
    """
    return ArrayImpl(array.aval, array.sharding, [array], committed=False)


linearize_hi_primitive: Callable = primitive_linearizations[call_hi_primitive_p]
"""JAX's rule by which `jax.vjp` and `jax.linearize` treat a `HiPrimitive`."""

check_hi_primitive: Callable = checkify.error_checks[call_hi_primitive_p]
"""JAX's rule by which `jax.experimental.checkify` treats a `HiPrimitive`."""


def replace_linearization_rule(rule: Callable) -> None:
    """Replace `linearize_hi_primitive` by a rule of the same arguments, for the whole process."""
    primitive_linearizations[call_hi_primitive_p] = rule


def replace_check_rule(rule: Callable) -> None:
    """Replace `check_hi_primitive` by a rule of the same arguments, for the whole process."""
    checkify.error_checks[call_hi_primitive_p] = rule


def lowered_primitive(
    name: str,
    types: Callable,
    *,
    lowered: dict[str | None, Callable],
    batched: Callable,
    pushed: Callable,
    linearized: Callable,
) -> Any:
    """Return a primitive with several results, whose lowering depends on the platform.

    Args:
        name: Its name.
        types: The function from types and params to the types of the outputs and the effects.
        lowered: For each platform, the function to trace when a program is lowered for it; the key None covers
            all others. The params may be jaxprs.
        batched: Its rule for `jax.vmap`.
        pushed: Its rule for `jax.jvp`.
        linearized: Its rule for `jax.linearize`.
    """
    primitive = Primitive(name)
    primitive.multiple_results = True
    primitive.def_impl(functools.partial(apply_primitive, primitive))
    primitive.def_effectful_abstract_eval(types)
    for platform, function in lowered.items():
        rule = mlir.lower_fun(function, multiple_results=True)
        mlir.register_lowering(primitive, rule, platform=platform)
    primitive.to_lojax = lambda *args, **params: primitive.bind(
        *args, **jax.tree.map(_without_hi_primitives, params)
    )
    batching.fancy_primitive_batchers[primitive] = batched
    primitive_jvps[primitive] = pushed
    primitive_linearizations[primitive] = _of_this_version(linearized)
    return primitive


def _of_this_version(linearized: Callable) -> Callable:
    """Return a rule for `jax.linearize` as JAX calls it; newer versions also have structured residuals."""
    if "structured_res" not in ad.LinearizeTrace.process_primitive.__code__.co_varnames:
        return linearized

    def rule(*args, **params):
        out, moving, residuals, pushed = linearized(*args, **params)
        return out, moving, residuals, None, lambda held, _, *dots: pushed(held, *dots)

    return rule


def _without_hi_primitives(param: Any) -> Any:
    return lower_jaxpr2(param) if isinstance(param, ClosedJaxpr) else param


def batch_jaxpr(jaxpr: ClosedJaxpr, axis: Any, dims: Sequence[int | None]):
    """Return the batched jaxpr, and the batch axis of each output or None."""
    batched, out_dims = batching.batch_jaxpr2(jaxpr, axis, tuple(dims))
    return batched, [dim if isinstance(dim, int) else None for dim in out_dims]


def jvp_jaxpr(jaxpr: ClosedJaxpr, moving: Sequence[bool]) -> tuple[ClosedJaxpr, tuple[bool, ...]]:
    """Return the JVP of a jaxpr, and the mask of the outputs that have a tangent.

    It takes the inputs, then the tangents of the `moving` ones, and returns the outputs, then their tangents.
    """
    pushed, out_moving = ad.jvp_jaxpr(jaxpr, moving, False)
    return pushed, tuple(out_moving)


def counts_of_scan(params: dict[str, Any]) -> tuple[int, int]:
    """Return the numbers of constants and of carried values of a `scan`, from the params of its equation."""
    if "num_consts" in params:  # before JAX 0.12
        return params["num_consts"], params["num_carry"]
    constants, carry, _ = params["ft_in"].unpack()
    return len(constants), len(carry)


def platform_branches(params: dict[str, Any]) -> dict[str, ClosedJaxpr]:
    """Return the branches of `lax.platform_dependent` by platform, from the params of an equation.

    That of all other platforms is "default". Any other equation has none.
    """
    found: dict[str, ClosedJaxpr] = {}
    platforms = params.get("branches_platforms") or ()
    for names, branch in zip(platforms, params["branches"] if platforms else (), strict=True):
        found |= dict.fromkeys(names or ("default",), branch)
    return found


def outputs_of(jaxpr: Jaxpr, eqn: JaxprEqn, inputs: Sequence) -> list:
    """Evaluate one equation of a jaxpr at some inputs, as a jaxpr of its own."""
    pairs = zip(eqn.invars, inputs, strict=True)
    read = {v: value for v, value in pairs if not isinstance(v, Literal)}
    names = jaxpr.debug_info.with_unknown_names()
    alone = jaxpr.replace(
        constvars=list(read), invars=[], outvars=list(eqn.outvars), eqns=[eqn], debug_info=names
    )
    return jax.core.eval_jaxpr(alone, list(read.values()))


def hi_primitive_of(eqn: JaxprEqn) -> Any:
    """Return the `HiPrimitive` of an equation, or None if it has another primitive."""
    return eqn.params["_prim"] if eqn.primitive is call_hi_primitive_p else None


def set_check_rule(primitive: Any, rule: Callable) -> None:
    """Set the rule by which `jax.experimental.checkify` treats a primitive."""
    checkify.error_checks[primitive] = rule


def check_jaxpr(context: tuple, jaxpr: ClosedJaxpr, kinds: frozenset, error: Any, *args: Any):
    """Return the errors and the outputs of a jaxpr whose operations are checked.

    Args:
        context: The leading arguments of a rule of checkify: none before JAX 0.12, one context since.
        jaxpr: The jaxpr.
        kinds: The kinds of errors to check.
        error: The errors before.
        args: The arguments of the jaxpr.
    """
    return checkify.checkify_jaxpr(*context, jaxpr, kinds, error, *args)


def kinds_of_effects(error: Any) -> Collection[Any]:
    """Return the effects that an error of checkify carries."""
    return error._pred.keys()


def with_placeholders(error: Any, effects: Collection[Any]) -> Any:
    """Return an error of checkify with placeholders for these effects: a loop keeps its structure."""
    return error._add_placeholder_effects(effects)


@contextlib.contextmanager
def every_program_kept() -> Iterator[None]:
    """Let JAX's persistent cache keep every program that this thread compiles in this context, however small.

    Other threads keep their settings.
    """
    with (
        config.persistent_cache_min_compile_time_secs(0.0),
        config.persistent_cache_min_entry_size_bytes(-1),
    ):
        yield


def without_names(lowered: Any) -> Any:
    """Return a lowered program (`jax.jit(function).lower`) without the names of its operations.

    Names and source locations are a quarter of an executable on a CPU, and a sixth of the time to load it.
    """
    module = lowered.compiler_ir()
    with module.context:
        PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)
    return lowered


def share_executables_among_devices() -> None:
    """Let JAX's persistent cache reuse a single-device program on other devices of the same kind.

    JAX does so on GPUs; elsewhere the file name contains the device's number. Of several processes only the
    first writes, so the others would compile at every run. A second call changes nothing.
    """
    original = getattr(cache_key, "_hash_serialized_compile_options", None)
    if original is None or hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def of_any_device(digest: Any, options: Any, strip_device_assignment: bool = False) -> Any:
        devices = options.device_assignment
        is_one = devices and devices.replica_count() * devices.computation_count() == 1
        return original(digest, options, strip_device_assignment or is_one)

    cache_key._hash_serialized_compile_options = of_any_device
