"""Noise: words by known answers, laws by statistics, points by their nets, blocks by what is independent."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.sharding import Mesh, PartitionSpec

from pricing.sampling import PseudoRandom, Sobol, normals, uniforms
from pricing.sampling.bridge import bridged
from pricing.sampling.gaussian import _at_once, _each_its_pair, _pair
from pricing.sampling.low_discrepancy import sobol_words, uniform_of_sobol
from pricing.sampling.threefry import random_bits, threefry_2x32, words_of
from pricing.sampling.transforms import inverse_normal, normal_pair
from tests.helpers import double

KEY = jax.random.key(2024)
SINGLE, DOUBLE = jnp.float32, jnp.float64
both = pytest.mark.parametrize("dtype", [SINGLE, pytest.param(DOUBLE, marks=double)], ids=str)


# --- words --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "counter, key, words",
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_known_answers_of_threefry(counter, key, words):
    """Random123's table of known answers, threefry2x32 with 20 rounds (Salmon et al. 2011)."""
    found = threefry_2x32(*(tuple(map(jnp.uint32, pair)) for pair in (key, counter)))
    assert tuple(map(int, found)) == words


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5, 2)], ids=str)
def test_bits_are_those_of_jax(shape):
    np.testing.assert_array_equal(random_bits(KEY, shape), jax.random.bits(KEY, shape, jnp.uint32))


@pytest.mark.parametrize("draw", [normals, uniforms, random_bits])
def test_keys_of_another_kind_are_named(draw):
    with pytest.raises(TypeError, match=r"one key of the generator threefry2x32, got .*rbg"):
        draw(jax.random.key(0, impl="rbg"), (4,))


@pytest.mark.parametrize("draw", [normals, uniforms, random_bits])
def test_old_style_keys_are_the_same(draw):
    np.testing.assert_array_equal(draw(jax.random.key_data(KEY), (4,)), draw(KEY, (4,)))


def test_other_precisions_are_named():
    with pytest.raises(ValueError, match="dtype must be float32 or float64, got bfloat16"):
        normals(KEY, (4,), jnp.bfloat16)


# --- rows ---------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("draw", [normals, uniforms])
@pytest.mark.parametrize("row", [(5,), (2, 3001)], ids=str)
def test_rows_can_be_drawn_alone(draw, row, dtype):
    """Also by tiles, and with an index known when it runs. One row differs from the next."""
    whole = draw(KEY, (9, *row), dtype)
    part = jax.jit(lambda first: draw(KEY, (3, *row), dtype, first_row=first))(4)
    assert whole.dtype == part.dtype == dtype and part.shape == (3, *row)
    np.testing.assert_allclose(part, whole[4:7], rtol=0.0, atol=8.0 * jnp.finfo(dtype).eps)
    assert not np.isclose(part[0], part[1]).all()
    alone = draw(KEY, row if len(row) == 1 else (1, *row), dtype, first_row=4).reshape(row)
    np.testing.assert_allclose(alone, whole[4], rtol=0.0, atol=8.0 * jnp.finfo(dtype).eps)


@both
@pytest.mark.parametrize("length", [7, 5000])
def test_complex_normals_are_the_two_halves_of_a_row(length, dtype):
    pairs = normals(KEY, (3, length), np.result_type(dtype, np.complex64))
    halves = jnp.concatenate([pairs.real, pairs.imag], axis=1)
    assert halves.dtype == dtype
    digits = 8.0 * jnp.finfo(dtype).eps
    np.testing.assert_allclose(halves, normals(KEY, (3, 2 * length), dtype), rtol=0.0, atol=digits)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (20001,), (0,), (4, 0)], ids=str)
def test_any_shape_can_be_drawn(shape):
    assert normals(KEY, shape, SINGLE).shape == shape


def test_draws_under_vmap_and_shard_map():
    """Compiled in parts, as users have it: in one part products are fused with other sums."""
    jit = functools.partial(jax.jit, compiler_options={"xla_cpu_parallel_codegen_split_count": 32})
    keys = jax.random.split(KEY, 3)
    draw = functools.partial(normals, shape=(2, 10_001), dtype=SINGLE)
    alone = np.stack([jit(draw)(key) for key in keys])
    np.testing.assert_array_equal(jit(jax.vmap(draw))(keys), alone)
    mesh = Mesh(np.array(jax.devices()[:1]), ("paths",))
    spread = jax.shard_map(
        jax.vmap(draw), mesh=mesh, in_specs=PartitionSpec("paths"), out_specs=PartitionSpec("paths")
    )
    np.testing.assert_array_equal(jit(spread)(keys), alone)


# --- laws ---------------------------------------------------------------------------------------------

_SIZE = 2**20  # standard errors below are of so many


@functools.cache
def _sample(dtype):
    return np.asarray(normals(KEY, (64, _SIZE // 64), dtype)).astype(np.float64)


@both
def test_normals_are_normal(dtype):
    z = _sample(dtype).ravel()
    assert scipy.stats.kstest(z, "norm").pvalue > 1e-3
    for power, moment in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0), (6, 15.0)):
        spread = np.sqrt((_even_moment(2 * power) - moment**2) / _SIZE)
        assert abs(np.mean(z**power) - moment) < 4.0 * spread


def _even_moment(power: int) -> float:
    return float(np.prod(np.arange(1, power, 2)))


@both
def test_tails_are_normal(dtype):
    """Counts beyond each threshold are Poisson's."""
    z = _sample(dtype)
    for threshold in (3.0, 3.5, 4.0, 4.5):
        expected = _SIZE * scipy.stats.norm.sf(threshold)
        for tail in (z > threshold, z < -threshold):
            assert abs(tail.sum() - expected) < 4.0 * np.sqrt(expected) + 1.0


@both
def test_neighbors_and_streams_are_independent(dtype):
    """Correlations of values and of squares: along a row, between rows, halves of a row, keys."""
    z = _sample(dtype)
    other = np.asarray(normals(jax.random.fold_in(KEY, 1), z.shape, dtype)).astype(np.float64)
    half = z.shape[1] // 2
    pairs = [(z[:, 1:], z[:, :-1]), (z[1:], z[:-1]), (z[:, :half], z[:, half:]), (z, other)]
    for a, b in pairs:
        assert abs(np.mean(a * b)) < 4.5 / np.sqrt(a.size)
        assert abs(np.mean((a**2 - 1.0) * (b**2 - 1.0))) < 4.5 * 2.0 / np.sqrt(a.size)


@both
def test_uniforms_fill_the_open_interval(dtype):
    u = np.asarray(uniforms(KEY, (_SIZE,), dtype))
    assert u.min() > 0.0 and u.max() < 1.0
    assert scipy.stats.kstest(u.astype(np.float64), "uniform").pvalue > 1e-3
    np.testing.assert_array_equal(1.0 - (1.0 - u), u)
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 4.0 / np.sqrt(_SIZE)


def _words(count: int) -> list:
    """Corners and random words, each of the corners with each."""
    corners = np.array([0, 1, 2**29, 2**30, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1], np.uint32)
    grid = np.stack(np.meshgrid(*[corners] * count), -1).reshape(-1, count)
    random = np.random.default_rng(3).integers(0, 2**32, (50_000, count), np.uint32)
    return list(map(jnp.asarray, np.concatenate([grid, random]).T))


@both
def test_numbers_that_draw_their_own_pairs_are_the_same(dtype):
    """As GPUs and TPUs draw them."""
    first = jnp.int32(4), jnp.uint32(2)
    pair = functools.partial(_pair, normal_pair, words_of(KEY), first, jnp.dtype(dtype))
    ways = lambda: (
        _each_its_pair(pair, 3, 5),
        _each_its_pair(pair, 3, 5, in_rows=True).ravel(),
        _at_once(pair, False, 3, 5).ravel(),
    )
    *found, expected = jax.jit(ways)()
    for each in found:
        np.testing.assert_allclose(each, expected, rtol=4 * jnp.finfo(dtype).eps)


@both
def test_pairs_are_box_and_mullers(dtype):
    """Against the formula in float64: to the last digits, of u where it is near 1."""
    words = _words(2 if dtype == SINGLE else 4)
    found = np.stack(normal_pair(tuple(words), dtype))
    w = np.array(words, np.float64)
    high, low = (w, np.zeros_like(w)) if dtype == SINGLE else (w[::2], w[1::2] + 0.5)
    down = (high[0] + (0.5 if dtype == SINGLE else low[0] * 2.0**-32)) * 2.0**-32
    radius = np.sqrt(-2.0 * np.log(down))
    in_quarter = high[1] % 2**30 + low[1] * 2.0**-32
    turn = np.where(in_quarter < 2**29, in_quarter, in_quarter - 2**30) * (np.pi / 2**31)
    angle = turn + np.pi / 4.0
    sign = np.where(np.stack([high[1] >= 2**31, high[1] % 2**31 >= 2**30]), -1.0, 1.0)
    exact = radius * sign * np.stack([np.cos(angle), np.sin(angle)])
    assert np.isfinite(found).all()
    digits = 2e-6 if dtype == SINGLE else 4e-15
    if dtype == SINGLE:
        digits = digits + 2.0**-24 / np.maximum(radius, 2.0**-12)
    assert np.all(np.abs(found - exact) < digits)
    largest = np.abs(found).max()
    assert abs(largest - (6.764 if dtype == SINGLE else 9.492)) < 2e-3, "the tail that u allows"


@both
def test_inverse_law(dtype):
    word = np.array(_words(1)[0])
    share = (word.astype(np.float64) + 0.5) * 2.0**-32
    above = ((2**32 - 1 - word.astype(np.int64)) + 0.5) * 2.0**-32
    exact = np.where(share < 0.5, scipy.stats.norm.ppf(share), -scipy.stats.norm.ppf(above))
    found = inverse_normal(jnp.asarray(word), dtype)
    scale = 4e-7 if dtype == SINGLE else 1e-13
    np.testing.assert_allclose(found, exact, rtol=scale, atol=scale)
    assert np.all(np.diff(np.asarray(found)[np.argsort(word)]) > -scale)


@double
@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
@pytest.mark.parametrize(
    "draw", [inverse_normal, lambda word, dtype: normal_pair((word,) * 4, dtype)]
)
def test_no_bits_of_a_float64_are_read_on_a_tpu(draw, platform):
    """It holds one as two float32, whose bits are no exponent and mantissa; the logarithm is XLA's there."""
    words = jnp.arange(8, dtype=jnp.uint32)

    def reads(dtype):
        """Return two flags: the program casts the bits of a number; it takes a logarithm."""
        traced = jax.jit(lambda words: draw(words, dtype)).trace(words)
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        return bool(re.search(r"bitcast_convert.*xf", text)), "stablehlo.log " in text

    assert reads(DOUBLE) == ((False, True) if platform == "tpu" else (True, False))
    assert reads(SINGLE) == (True, False)


# --- Sobol' points ------------------------------------------------------------------------------------


def sobol(key, num_points, dimension, dtype):
    words = sobol_words(key, num_points, dimension)
    return uniform_of_sobol(words, dtype).reshape(dimension, num_points)


points_of = functools.partial(jax.jit, static_argnums=(1, 2, 3))(sobol)


@double
@pytest.mark.parametrize("dimension, num_points", [(1, 2), (5, 64), (40, 512)])
def test_points_without_scramble_are_scipys(dimension, num_points):
    ours = np.asarray(points_of(None, num_points, dimension, DOUBLE)).T - 2.0**-33
    theirs = scipy.stats.qmc.Sobol(dimension, scramble=False).random(num_points)
    assert set(map(tuple, ours)) == set(map(tuple, theirs))


@both
@pytest.mark.parametrize("num_points", [1, 2, 256, 4096])
def test_every_dimension_is_stratified(num_points, dtype):
    points = np.asarray(points_of(KEY, num_points, 50, dtype))
    cells = np.sort(np.floor(points * num_points), axis=1)
    np.testing.assert_array_equal(cells, np.broadcast_to(np.arange(num_points), cells.shape))
    assert points.min() > 0.0 and points.max() < 1.0


@double
def test_scramble_keeps_the_net_of_two_dimensions():
    """The first two dimensions are a (0, 10, 2)-net: one point in every box of volume 2**-10."""
    x, y = np.asarray(points_of(KEY, 1024, 2, DOUBLE))
    for k in range(11):
        box = np.floor(x * 2**k) * 2 ** (10 - k) + np.floor(y * 2 ** (10 - k))
        assert len(np.unique(box)) == 1024


def test_scrambles_differ_and_are_uniform():
    """Over scrambles each point is uniform, digits and all; two keys share no scramble."""
    keys = jax.random.split(KEY, 4096)
    points = np.asarray(jax.jit(jax.vmap(lambda key: sobol(key, 4, 3, SINGLE)))(keys))
    for point in points.reshape(4096, -1).T:
        assert scipy.stats.kstest(point.astype(np.float64), "uniform").pvalue > 1e-4
    gap = points[:, :, 1] - points[:, :, 0]
    assert len(np.unique(np.abs(gap), axis=0)) > 4000, "a shift alone would keep few distances"


@double
def test_means_are_unbiased_and_better_than_pseudo_random():
    """A lognormal mean in 8 dimensions, which is known."""

    def estimate(key):
        normals = inverse_normal(sobol_words(key, 256, 8), DOUBLE)
        return jnp.mean(jnp.prod(jnp.exp(0.1 * normals), axis=0))

    found = np.asarray(jax.jit(jax.vmap(estimate))(jax.random.split(KEY, 512)))
    exact = np.exp(8 * 0.1**2 / 2.0)
    error = found.std(ddof=1) / np.sqrt(512)
    assert abs(found.mean() - exact) < 3.5 * error
    plain = exact * np.sqrt((np.exp(8 * 0.1**2) - 1.0) / (256 * 512))
    assert error < plain / 10.0


@pytest.mark.parametrize("num_points", [0, 3, 1000])
def test_number_of_points_must_be_a_power_of_two(num_points):
    with pytest.raises(
        ValueError, match=f"num_points must be a power of 2, got {num_points}; .* is near"
    ):
        sobol_words(KEY, num_points, 2)


@pytest.mark.parametrize("dimension", [0, 21202])
def test_dimension_has_a_limit(dimension):
    with pytest.raises(ValueError, match=f"from 1 to 21201, got {dimension}; use fewer steps"):
        sobol_words(KEY, 4, dimension)


# --- the bridge ---------------------------------------------------------------------------------------

steps_of_all_kinds = pytest.mark.parametrize("steps", [1, 2, 3, 5, 7, 8, 12, 50, 64])


def bridge_rotation(steps):
    return np.asarray(bridged(jnp.eye(steps, dtype=DOUBLE)))


@double
@steps_of_all_kinds
def test_bridge_is_a_rotation(steps):
    rotation = bridge_rotation(steps)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(steps), atol=1e-13)


@double
@steps_of_all_kinds
def test_first_coordinate_carries_the_end_point(steps):
    """The end point is the sum of the increments: all its variance, steps, is the first coordinate's."""
    weights = bridge_rotation(steps).sum(axis=0)
    np.testing.assert_allclose(weights, np.sqrt(steps) * np.eye(steps)[0], atol=1e-13)


@double
def test_second_coordinate_carries_the_middle():
    """Given the end point, the middle of 8 steps is the second coordinate's alone: variance 8 / 4."""
    to_middle = bridge_rotation(8)[:4].sum(axis=0)
    np.testing.assert_allclose(to_middle, [2**0.5, 2**0.5, *[0.0] * 6], atol=1e-13)


@double
@steps_of_all_kinds
def test_bridge_of_paths_is_the_rotation(steps):
    z = np.random.default_rng(steps).standard_normal((steps, 2, 3), np.float32)
    expected = np.tensordot(bridge_rotation(steps), np.asarray(z, np.float64), 1)
    np.testing.assert_allclose(jax.jit(bridged)(z), expected, atol=2e-6)


# --- samplers -----------------------------------------------------------------------------------------

_SAMPLERS = [PseudoRandom(), PseudoRandom(antithetic=True), Sobol(), Sobol(replicates=4)]
samplers = pytest.mark.parametrize("sampler", _SAMPLERS, ids=repr)


@samplers
def test_samplers_are_values(sampler):
    again = eval(repr(sampler), {"PseudoRandom": PseudoRandom, "Sobol": Sobol})
    assert again == sampler and hash(again) == hash(sampler)
    assert sum(sampler == other for other in _SAMPLERS) == 1
    assert not jax.tree.leaves(sampler)


@both
@samplers
def test_noise_has_the_laws_it_says(sampler, dtype):
    """Over blocks: means, variances, correlations of steps, motions, and uniforms with both."""
    paths, steps, dims = 64, 3, 2

    def block(index):
        (z, once), u = sampler.noise(KEY, index, paths, ((steps, dims), (1,)), steps, dtype)
        assert z.shape == (steps, dims, paths) and u.shape == (steps, paths)
        assert once.shape == (1, paths)
        assert z.dtype == u.dtype == once.dtype == dtype
        columns = jnp.concatenate([z.reshape(-1, paths), once, (u - 0.5) * 12**0.5])
        return columns.mean(axis=1), columns @ columns.T / paths

    count = 1024
    means, products = jax.jit(lambda: jax.lax.map(block, jnp.arange(count)))()
    for found, expected in ((means, np.zeros(10)), (products, np.eye(10))):
        found = np.asarray(found, np.float64)
        error = found.std(axis=0, ddof=1) / np.sqrt(count)
        slack = 1e-6 if dtype == SINGLE else 1e-14
        assert np.all(np.abs(found.mean(axis=0) - expected) < 4.5 * error + slack)


@samplers
def test_blocks_depend_on_key_and_index(sampler):
    draw = jax.jit(
        lambda key, index: sampler.noise(key, index, 16, ((2, 1),), 0, SINGLE).normals[0]
    )
    other = jax.random.key(5)
    assert not np.isin(draw(KEY, 1), [draw(KEY, 0), draw(other, 1)]).any()
    np.testing.assert_array_equal(draw(KEY, 1), draw(jax.random.key(2024), 1))


def test_streams_have_the_keys_of_a_split():
    key = jax.random.key(3)
    noise = PseudoRandom().noise(key, 5, 8, ((2, 1), (3,)), 2)
    first, second, last = jax.random.split(jax.random.fold_in(key, 5), 3)
    np.testing.assert_array_equal(noise.normals[0], normals(first, (2, 1, 8)))
    np.testing.assert_array_equal(noise.normals[1], normals(second, (3, 8)))
    np.testing.assert_array_equal(noise.uniforms, uniforms(last, (2, 8)))


@samplers
@pytest.mark.parametrize("normals", [(), ((3,),), ((0,), (2, 4))])
@pytest.mark.parametrize("uniforms", [0, 5])
def test_kinds_of_noise_are_asked_for(sampler, normals, uniforms):
    noise = jax.eval_shape(lambda: sampler.noise(KEY, 0, 8, normals, uniforms))
    assert tuple(z.shape for z in noise.normals) == tuple((*shape, 8) for shape in normals)
    assert noise.uniforms.shape == (uniforms, 8)


@samplers
@pytest.mark.parametrize("num_paths, block", [(1, 1), (1000, 128), (4096, 4096), (65536, 4096)])
def test_blocks_hold_all_paths(sampler, num_paths, block):
    count, paths = sampler.blocks(num_paths, block)
    assert count * paths >= num_paths
    values = jnp.arange(2.0 * paths, dtype=SINGLE).reshape(paths, 2)
    samples = sampler.reduce(values)
    assert samples.shape[1:] == (2,)
    np.testing.assert_allclose(samples.mean(axis=0), values.mean(axis=0), rtol=1e-5)


def test_what_counts_as_one_sample():
    values = jnp.asarray([1.0, 2.0, 3.0, 8.0])
    np.testing.assert_array_equal(PseudoRandom().reduce(values), values)
    np.testing.assert_array_equal(PseudoRandom(antithetic=True).reduce(values), [2.0, 5.0])
    np.testing.assert_array_equal(Sobol().reduce(values), [3.5])


def test_antithetic_halves_are_mirrors():
    (z,), u = PseudoRandom(antithetic=True).noise(KEY, 3, 10, ((4, 2),), 4, SINGLE)
    np.testing.assert_array_equal(z[..., 5:], -z[..., :5])
    np.testing.assert_array_equal(u[..., 5:], 1.0 - u[..., :5])
    assert PseudoRandom(antithetic=True).blocks(7, 100) == (1, 8)
    with pytest.raises(ValueError, match="antithetic paths come in pairs, got 7"):
        PseudoRandom(antithetic=True).noise(KEY, 0, 7, ((1,),), 0)


def test_first_sobol_dimensions_go_to_the_end_points():
    """The end points of both motions are the first two dimensions: jointly a net, one point a box."""
    z = jax.jit(lambda: Sobol().noise(KEY, 0, 256, ((6, 2),), 0, SINGLE).normals[0])()
    z = np.asarray(z, np.float64)
    x, y = scipy.stats.norm.cdf(z.sum(axis=0) / np.sqrt(6))
    for k in range(1, 8):
        box = np.floor(x * 2**k) * 2 ** (8 - k) + np.floor(y * 2 ** (8 - k))
        assert len(np.unique(box)) > 250, "but for points at an edge, moved by rounding"


def test_samplers_name_bad_input():
    with pytest.raises(ValueError, match=r"21201 dimensions, and a path .* needs 22000"):
        Sobol().noise(KEY, 0, 4, ((11000,),), 11000)
    with pytest.raises(ValueError, match="replicates must be at least 2, got 1"):
        Sobol(1)
    with pytest.raises(ValueError, match="num_paths must be at least 1, got 0"):
        PseudoRandom().blocks(0, 4)
    with pytest.raises(ValueError, match="num_points must be a power of 2, got 12"):
        Sobol().noise(KEY, 0, 12, ((2,),), 0)
