"""The base of all primitives here: JAX's own, with what JAX does not ask such a primitive for."""

from jax._src.interpreters import ad as rules  # there is no public way to add to a rule

try:
    from jax.experimental.hijax import VJPHiPrimitive as _HiPrimitive
except ImportError:  # its name since JAX 0.11
    from jax.experimental.hijax import HiPrim as _HiPrimitive  # pyright: ignore[reportAttributeAccessIssue]

from jax._src.hijax import call_hi_primitive_p


class Primitive(_HiPrimitive):  # pyright: ignore[reportGeneralTypeIssues]
    """A primitive whose `vjp_fwd` and `lin` return last which of the outputs have a tangent."""

    skip_linearization_on_zero_tangents = True


_linearize = rules.primitive_linearizations[call_hi_primitive_p]


def _linearize_with_zeros(is_vjp, nonzeros, *args, _prim):
    """Return what JAX's rule does, with a `Zero` for each output without a tangent: JAX 0.10 makes arrays."""
    out, moving, *residuals, linearized = _linearize(is_vjp, nonzeros, *args, _prim=_prim)
    if not isinstance(_prim, Primitive):
        return out, moving, *residuals, linearized

    def dots(*args):
        zeros = (rules.Zero(aval.to_tangent_aval()) for aval in _prim.out_avals_flat)
        found = zip(moving, linearized(*args), zeros, strict=True)
        return [rules.instantiate_zeros(dot) if moves else zero for moves, dot, zero in found]

    return out, moving, *residuals, dots


rules.primitive_linearizations[call_hi_primitive_p] = _linearize_with_zeros
