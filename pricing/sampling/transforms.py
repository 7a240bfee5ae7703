"""Standard normals from random words, by vectorizable polynomials: in pairs, or by inversion.

Pairs: z = sqrt(-2 log u) (cos a, sin a), with u uniform on (0, 1) and a on the circle (Box and Muller 1958).

The angle is a sign for each coordinate and an angle in the first quadrant, a = pi/4 + b with |b| <= pi/4, so
(cos a, sin a) = (cos b - sin b, cos b + sin b) / sqrt(2), and z = sqrt(-log u) (cos b - sin b, cos b + sin b).

Inversion: z with P(Z > z) = exp(-v) / 2 is v times a ratio of polynomials of v with positive coefficients,
which is as accurate near 0 as in the tail.

All fits are minimax and our own (computed in 50 digits); relative errors are given beside them.
"""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, UInt32

Word = UInt32[Array, "..."]
Real = Float[Array, "..."]


class _Numbers(NamedTuple):
    """The constants for one precision; polynomials have the constant term first.

    log: for -log(1 + m) / m, sqrt(1/2) <= 1 + m < sqrt(2); sine, cosine: for sin(pi y / 2) / y and
    cos(pi y / 2) in y * y, |y| <= 1/2; over, under: for z / v, 0 <= v <= 22.3; half: the bits of sqrt(1/2).
    """

    log: tuple[float, ...]
    sine: tuple[float, ...]
    cosine: tuple[float, ...]
    over: tuple[float, ...]
    under: tuple[float, ...]
    integer: type
    mantissa: int
    half: int


# fmt: off
_SINGLE = _Numbers(
    (-0.999999974060490947, 0.499999879557643449, -0.333341882150448573, 0.250020764038301127,
     -0.199567556816700054, 0.165623000556084811, -0.149528987121155112, 0.143676955877905766,
     -0.0872174358748299417),
    (1.57079632171147884, -0.645963460337012234, 0.0796800332361082426, -0.00460165811657387756),
    (0.999999967619114357, -1.23369667085113364, 0.25359499449580298, -0.0203986414409553697),
    (1.253314133144612479, 2.754777032132535485, 1.870301857914399165, 0.4533678074095456335,
     0.03633490136574031923, 0.0007462264592616802442, 1.690330131423264292e-6),
    (1.0, 2.697993640267731262, 2.412824040399771749, 0.8464502476382887037,
     0.1110787582703400111, 0.004552057843589186233, 0.0000373388683104953523),
    np.int32, 23, 0x3F3504F3,
)  # errors 2.6e-8, 3.2e-9, 3.3e-8, 5.3e-9
_DOUBLE = _Numbers(
    (-1.00000000000000005, 0.499999999999999612, -0.333333333333255619, 0.250000000000145627,
     -0.200000000021248961, 0.166666666663138135, -0.14285714061351543, 0.124999998072119768,
     -0.111111229364036835, 0.100000195773296774, -0.0909056499229661411, 0.083325133032915376,
     -0.0769791078858835252, 0.0716082172438730493, -0.0662059107652328761, 0.0603700892628927582,
     -0.0597401624866208752, 0.0679916216151694218, -0.0633531362424471216, 0.0282974505548518315),
    (1.57079632679489661, -0.645964097506244242, 0.0796926262460395829, -0.00468175413228267982,
     0.000160441150292931799, -3.59864175690752087e-6, 5.63372111230154373e-8),
    (0.999999999999999945, -1.233700550136149, 0.253669507899756024, -0.0208634807330952994,
     0.00091925993578442148, -0.0000252000846400136927, 4.65462193980451826e-7),
    (1.25331413731548592, 4.986028005148464867, 7.663122690590590469, 5.812427356393680732,
     2.323759105087070909, 0.4903489651834380866, 0.05258520279527846263, 0.002654357172735813784,
     0.00005493392693681314224, 3.519588931152111939e-7, 2.942124245575641083e-10),
    (1.0, 4.478274765034812249, 7.924958610615500123, 7.11570237861138861, 3.482061869420350462,
     0.9359371367087141009, 0.1341636691463216086, 0.00963478263402236843,
     0.0003113936086521023414, 3.725638597928821589e-6, 1.048679746578495917e-8),
    np.int64, 52, 0x3FE6A09E667F3BCD,
)  # errors 4.8e-17, 3.3e-18, 5.6e-17, 1.7e-14
# fmt: on


def normal_pair(words: tuple[Word, ...], dtype) -> tuple[Real, Real]:
    """Return two independent standard normals from two words (float32) or four words (float64).

    The first half of the words gives the radius: u is a multiple of 2**-32 (2**-64) plus half a unit, so |z| is
    at most 6.76 (9.49) and never infinite. The second half gives the angle.
    """
    numbers = _SINGLE if dtype == jnp.float32 else _DOUBLE
    high, low, scale = _halves(words, dtype)
    uniform = high[0].astype(dtype) * scale + low[0]
    quarter = lax.bitcast_convert_type(high[1] << np.uint32(2), jnp.int32)
    place = quarter.astype(dtype) * scale + low[1] * np.asarray(4.0, dtype)
    square = place * place
    sine = place * _polynomial(numbers.sine, square)
    cosine = _polynomial(numbers.cosine, square)
    radius = jnp.sqrt(_minus_log(uniform, numbers))
    first = _signed(high[1], radius * (cosine - sine))
    return first, _signed(high[1] << np.uint32(1), radius * (cosine + sine))


def inverse_normal(word: Word, dtype) -> Real:
    """Return the standard normal quantile of (word + 1/2) / 2**32; |z| is at most 6.34."""
    numbers = _SINGLE if dtype == jnp.float32 else _DOUBLE
    nearer = jnp.where(word >= np.uint32(2**31), ~word, word)
    twice_tail = (nearer.astype(dtype) + np.asarray(0.5, dtype)) * np.asarray(2.0**-31, dtype)
    v = _minus_log(twice_tail, numbers)
    return _signed(~word, v * _polynomial(numbers.over, v) / _polynomial(numbers.under, v))


def _halves(words: tuple[Word, ...], dtype):
    """Return the high words of radius and angle, the parts from their low words, and a high word's unit."""
    scale = np.asarray(2.0**-32, dtype)
    if dtype == jnp.float32:
        return words, (scale * np.asarray(0.5, dtype), np.zeros((), dtype)), scale
    low = [(w.astype(dtype) + np.asarray(0.5, dtype)) * scale * scale for w in words[1::2]]
    return words[::2], low, scale


def _minus_log(u: Real, numbers: _Numbers) -> Real:
    """Return -log(u) for a normal float u in (0, 1]: u = 2**e (1 + m), sqrt(1/2) <= 1 + m < sqrt(2).

    There is no division: a CPU compiler would consider it too costly to fuse, and draw the words twice. A TPU
    represents float64 as two float32, without an exponent and mantissa in its bits: there XLA's logarithm is
    used.
    """
    by_bits = functools.partial(_minus_log_by_bits, numbers=numbers)
    if u.dtype == jnp.float32:
        return by_bits(u)
    return lax.platform_dependent(u, tpu=lambda u: -jnp.log(u), default=by_bits)


def _minus_log_by_bits(u: Real, numbers: _Numbers) -> Real:
    bits = lax.bitcast_convert_type(u, numbers.integer)
    exponent = (bits - numbers.integer(numbers.half)) >> numbers.integer(numbers.mantissa)
    m = lax.bitcast_convert_type(bits - (exponent << numbers.integer(numbers.mantissa)), u.dtype)
    m = m - np.ones((), u.dtype)
    halvings = exponent.astype(jnp.int32).astype(u.dtype) * np.asarray(-np.log(2.0), u.dtype)
    return halvings + m * _polynomial(numbers.log, m)


def _polynomial(coefficients: tuple[float, ...], x: Real) -> Real:
    value = jnp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * x + np.asarray(coefficient, x.dtype)
    return value


def _signed(word: Word, value: Real) -> Real:
    """Return the value with its sign flipped if the word's first bit is set."""
    return jnp.where(word >= np.uint32(2**31), -value, value)
