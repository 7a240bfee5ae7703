"""Every method on every product and model that it applies to: what all of them promise."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pricing.methods
import pricing.models
import pricing.products
from pricing import (
    RESULTS,
    American,
    Bermudan,
    ClosedForm,
    European,
    FiniteDifference,
    FirstPassage,
    FixedPayments,
    LeastSquares,
    Quadrature,
    price,
)
from pricing.models import AbstractEquityModel
from pricing.products import PathClaim, SingleBarrier
from pricing.sensitivities import with_gamma
from tests.cases import cover, others_later
from tests.helpers import (
    EPS,
    all_methods,
    all_models,
    all_products,
    build,
    double,
    first_difference,
    float_leaves,
    moved,
    rescaled,
    restruck,
    triples,
    value,
)

registries = (all_products, all_models, all_methods)


@functools.cache
def types(triple):
    """Those of the product in its canonical form, of the model and of the method.

    Products of one ability are one to a method that prices all of them in the same way.
    """
    product, *others = (r[name]() for r, name in zip(registries, triple, strict=True))
    kind, method = type(product.form), type(others[-1])
    if method is not ClosedForm:
        kind = next((each for each in (PathClaim, SingleBarrier) if issubclass(kind, each)), kind)
    return kind, *map(type, others)


def _one_of_a_kind():
    """The first triple of each combination of types: of each program."""
    kinds = {types(triple): triple for triple in reversed(triples)}
    return list(reversed(kinds.values()))


KINDS = _one_of_a_kind()
COST = lambda triple: list(all_methods).index(triple[2])
FEW = cover(KINDS, types, COST)
BY_METHOD = cover(KINDS, lambda triple: types(triple)[2:], COST)
BY_MODEL = cover(KINDS, lambda triple: types(triple)[1:], COST)
QUICK = [kind for kind in FEW if kind in BY_METHOD or kind[2] in ("closed form", "Fourier")]


def of(cases, fast, later=()):
    """In the scope of the module, so that the tests of one triple follow one another and share its programs."""
    chosen = others_later(cases, fast, later)
    return pytest.mark.parametrize("triple", chosen, ids=" / ".join, scope="module")


# each method, and what has a formula; each product, model and method that go together in CI; their words and
# numbers where there is time
every_triple = of(triples, QUICK, KINDS)
# each method, regressions in CI; each product, model and method in CI; all that go together where there is time
every_kind = of(KINDS, [kind for kind in BY_METHOD if types(kind)[2] is not LeastSquares], FEW)


@eqx.filter_jit
def reverse(product, model, method, key):
    """The value and its derivatives in reverse mode: to all numbers, and to a shift of the underlying."""
    pair, rest = eqx.partition((product, model), eqx.is_inexact_array)

    def shifted(pair, shift):
        product, model = eqx.combine(pair, rest)
        return _value_and_error(product, model.shifted(underlying=shift), method, key)

    differentiated = jax.value_and_grad(shifted, argnums=(0, 1), has_aux=True)
    (value, _), (gradient, slope) = differentiated(pair, jnp.asarray(0.0))
    return value, gradient, slope


@eqx.filter_jit
def forward(product, model, method, key):
    """The value, its standard error and its derivative to a shift of the underlying, in forward mode."""
    at = jnp.asarray(0.0)
    shifted = lambda by: _value_and_error(product, model.shifted(underlying=by), method, key)
    value, slope, error = jax.jvp(shifted, (at,), (jnp.ones_like(at),), has_aux=True)
    return value, error, slope


@eqx.filter_jit
def curvature_and_gamma(product, model, method, key):
    """The second derivative to a shift of the underlying, forward over reverse, and Gamma as books have it."""
    at = jnp.asarray(0.0)
    slope = jax.grad(
        lambda by: _value_and_error(product, model.shifted(underlying=by), method, key)[0]
    )
    _, curvature = jax.jvp(slope, (at,), (jnp.ones_like(at),))
    samples = lambda at: method.samples(product, at, key=key)
    return curvature, with_gamma(samples, product, model, method)[1]


def _value_and_error(product, model, method, key):
    found = price(product, model, method, key=key, throw=False)
    return found.value, found.std_error


def final_classes(base):
    """What a user may build. Classes are abstract or final: the final ones are those without a subclass."""
    offered = [kind for kind in vars(pricing).values() if isinstance(kind, type)]
    kinds = {kind for kind in offered if issubclass(kind, base)}
    return {kind for kind in kinds if not any(kind in other.__mro__[1:] for other in kinds)}


@pytest.mark.parametrize(
    ("base", "registry"),
    [
        (pricing.models.AbstractModel, all_models),
        (pricing.products.AbstractProduct, all_products),
        (pricing.methods.AbstractMethod, all_methods),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_every_member_is_registered(base, registry):
    """But for `WithDividends`, a model around another one, which test_dividends.py tests likewise."""
    registered = {type(make()) for make in registry.values()}
    assert registered == final_classes(base) - {pricing.models.WithDividends}


def test_every_member_is_reached():
    for registry, names in zip(registries, zip(*triples, strict=True), strict=True):
        assert set(registry) == set(names)


@of(triples, QUICK, [kind for kind in KINDS if types(kind)[2] is not LeastSquares])
def test_the_value_is_a_finite_scalar_of_the_working_precision(triple):
    product, model, method, key = build(*triple)
    found = price(product, model, method, key=key)
    assert found.result == RESULTS.successful
    assert eqx.tree_equal(found.stats["method"], method)
    assert found.value.shape == found.std_error.shape == ()
    assert found.value.dtype == jnp.result_type(float)
    assert 0.0 < found.value < 100.0
    # of a grid: by a second one
    has_error = method.is_random or isinstance(method, (FiniteDifference, FirstPassage))
    assert (found.std_error > 0.0) == has_error


@double
@pytest.mark.parametrize("numbers", ["together", pytest.param("alone", marks=pytest.mark.slow)])
@every_triple
def test_the_gradient_is_that_of_central_differences(triple, numbers):
    """The numbers of an array move together, each by a weight of its own; or one alone where there is time.

    A jump near by spoils a wide step and rounding a narrow one; a wrong gradient agrees with none.
    Floor: 100 ulp of the value over the narrowest.
    """
    if types(triple)[2] is LeastSquares:
        pytest.skip(
            "holds more than its rule still: test_least_squares.py has its Greeks beside exact ones"
        )
    product, model, method, key = build(*triple)
    pair = (product, model)
    _, gradient, _ = reverse(product, model, method, key)
    exact = float_leaves(gradient)
    floor = 100.0 * np.spacing(max(10.0, float(value(*pair, method, key)))) / 1e-6
    still = jax.tree.map(jnp.zeros_like, eqx.filter(pair, eqx.is_inexact_array))
    for i, leaf in enumerate(float_leaves(pair)):
        for weights in _weights(leaf.shape, numbers):
            direction = weights * np.maximum(1.0, np.abs(leaf))
            slope = np.vdot(exact[i], direction)
            along = eqx.tree_at(
                lambda tree, i=i: jax.tree.leaves(tree)[i], still, jnp.asarray(direction)
            )
            bumped = lambda step, along=along: value(*moved(pair, along, step), method, key)
            for step in (1e-6, 1e-5, 1e-4):
                quotient = first_difference(bumped, step)
                if np.isclose(slope, quotient, rtol=1e-6, atol=floor):
                    break
            np.testing.assert_allclose(slope, quotient, rtol=1e-6, atol=floor)


def _weights(shape, numbers):
    """How far the numbers of an array move: all of them at once, or each in its turn."""
    size = int(np.prod(shape))
    if numbers == "alone":
        return np.eye(size).reshape(size, *shape)
    dice = np.random.default_rng(size)
    return [dice.uniform(0.5, 1.5, shape) * dice.choice([-1.0, 1.0], shape)] if size else []


@every_kind
def test_forward_and_reverse_mode_agree_with_each_other_and_with_plain_calls(triple):
    product, model, method, key = build(*triple)
    found, (_, bar), slope_in_reverse = reverse(product, model, method, key)
    again, _, slope = forward(product, model, method, key)
    tol = {"rtol": 1e-12, "atol": 1e-12} if found.dtype == np.float64 else {"rtol": 1e-5}
    np.testing.assert_allclose([found, again], value(product, model, method, key), **tol)
    np.testing.assert_allclose(slope_in_reverse, slope, **tol)
    zero = jnp.asarray(0.0)
    along = jax.jvp(lambda by: model.shifted(underlying=by), (zero,), (jnp.ones_like(zero),))[1]
    terms = itertools.starmap(jnp.vdot, zip(float_leaves(bar), float_leaves(along), strict=True))
    np.testing.assert_allclose(sum(terms), slope, **tol)
    is_known = isinstance(product, FixedPayments) and isinstance(model, AbstractEquityModel)
    assert (slope == 0.0) == is_known  # no spot moves what is known


@double
@of(
    KINDS,
    [kind for kind in BY_METHOD if types(kind)[2] not in (FiniteDifference, Quadrature)],
    BY_METHOD + BY_MODEL,
)
def test_hessian_vector_products_are_the_second_derivatives_of_greeks(triple):
    """Forward over reverse, in the spot; where there is no Gamma without bias, asking for it raises.

    A forward start has no Gamma: what is found is rounding.
    """
    product, model, method, key = build(*triple)
    if "gamma" not in method.second_order(product, model):
        along = jax.grad(lambda by: value(product, model.shifted(underlying=by), method, key))
        with pytest.raises(TypeError, match="second derivative"):
            jax.eval_shape(lambda by: jax.jvp(along, (by,), (by,)), jnp.asarray(0.0))
    else:
        curvature, gamma = curvature_and_gamma(product, model, method, key)
        np.testing.assert_allclose(curvature, jnp.sum(gamma), rtol=1e-8, atol=EPS)


@every_kind
def test_a_batch_is_its_contracts_and_is_traced_once(triple, monkeypatch):
    product, model, method, key = build(*triple)
    calls, samples = [], type(method).samples

    def counted(*args, **kwargs):
        calls.append(args)
        return samples(*args, **kwargs)

    monkeypatch.setattr(type(method), "samples", counted)
    strikes = [0.93, 1.0, 1.07]
    contracts = [restruck(product, scale) for scale in strikes]
    batch = restruck(product, strikes)
    found = value(batch, model, method, key)
    once = len(calls)
    assert once == 1 + len(method.compared_with(model))  # other grids give the error
    for scale in (np.float64(0.9), 0.5, 1):  # other numbers, of any type, and the same program
        value(restruck(product, [scale * k for k in strikes]), model, method, key)
        value(batch, rescaled(model, scale), method, key)
    assert len(calls) == once
    one_by_one = [value(contract, model, method, key) for contract in contracts]
    np.testing.assert_allclose(found, one_by_one, rtol=1e-12)


@double
@every_kind
def test_single_precision_gives_single_precision(triple):
    """To 1e-4; the random numbers of the two precisions are others, which allows six standard errors."""
    exact = forward(*build(*triple))
    with jax.enable_x64(False):
        found = forward(*build(*triple))
    assert {x.dtype for x in found} == {np.dtype(np.float32)}
    error = float(np.hypot(exact[1], found[1])) * build(*triple)[2].is_random
    np.testing.assert_allclose(found[0], exact[0], rtol=1e-4, atol=6.0 * error)
    np.testing.assert_allclose(found[2], exact[2], rtol=1e-4 if error == 0.0 else 0.3)


SHARED = {
    pair: [triple for triple in triples if triple[:2] == pair]
    for pair in dict.fromkeys(triple[:2] for triple in triples)
}
COMPARED = [alternatives for alternatives in SHARED.values() if len(alternatives) > 1]


def of_two(alternatives):
    """Every two types that meet."""
    return {pair for triple in alternatives for pair in itertools.combinations(types(triple), 2)}


def methods_of(alternatives):
    return {type(all_methods[method]()) for *_, method in alternatives}


LARGEST_FIRST = lambda alternatives: -len(alternatives)


@double
@pytest.mark.parametrize(
    "alternatives",
    others_later(
        COMPARED,
        cover(COMPARED, methods_of, LARGEST_FIRST),
        cover(COMPARED, of_two, LARGEST_FIRST),
    ),
    ids=lambda found: " / ".join(found[0][:2]),
)
def test_methods_agree(alternatives):
    best, *others = (build(*triple) for triple in alternatives)
    for product, model, method, key in others:
        found = price(product, model, method, key=key)
        expected, allowed = expectation(best, method)
        error = jnp.hypot(expected.std_error, found.std_error)
        assert abs(found.value - expected.value) < allowed + 4.0 * error


def expectation(best, other):
    """What another method should give for the contract of `best`, and to how many units of currency.

    Least squares has an American option exercised on its dates, and today; quadrature extrapolates in dates;
    finite differences stand on their usual grid.
    """
    product, model, method, key = best
    on_grid = isinstance(method, FiniteDifference)
    if on_grid:
        method = FiniteDifference()
    if isinstance(product, American) and isinstance(other, LeastSquares):
        dates = product.expiry * jnp.linspace(0.0, 1.0, other.num_steps + 1)[1:]
        vanilla = European(product.strike, product.expiry, product.option)
        exact = FiniteDifference() if on_grid else Quadrature()
        held = price(Bermudan(vanilla, dates), model, exact)
        now = product.side * (model.spot - product.strike)
        found = eqx.tree_at(lambda found: found.value, held, jnp.maximum(held.value, now))
    else:
        found = price(product, model, method, key=key)
    extrapolated = isinstance(product, American) and isinstance(other, Quadrature)
    allowed = 1e-4 * model.spot if on_grid else 1e-5 * product.strike if extrapolated else 1e-9
    return found, allowed
