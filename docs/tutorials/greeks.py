# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 2. Greeks and their errors
#
# Every Monte Carlo figure has an error. This page computes a call's value and Greeks, and asks two questions of
# each: how far is it from the closed form, and did its standard error predict that?

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

jax.config.update("jax_enable_x64", True)
from pricing import (
    Barrier,
    BlackScholes,
    ClosedForm,
    European,
    Fourier,
    Heston,
    MonteCarlo,
    greeks,
    price,
)

# %% [markdown]
# ## A price without noise
#
# `price` selects the best method that applies. For a call under Black–Scholes that is a closed form.

# %%
call = European(strike=100.0, expiry=1.0)
model = BlackScholes(spot=100.0, rate=0.05, vol=0.2)
exact = greeks(call, model)
print(f"by {exact.stats['method']}: {exact.value:.6f}, standard error {exact.std_errors.value:g}")

# %% [markdown]
# ## The same by simulation
#
# A method that draws random numbers needs a key. The same key gives the same number.

# %%
key, method = jax.random.key(0), MonteCarlo(num_paths=16384)
found = greeks(call, model, method, key=key)
names = ("value", "delta", "gamma", "vega", "rho", "theta", "vanna", "volga")
z = {}
print(f"{'':6} {'found':>11} {'error':>9} {'exact':>11} {'off/error':>9}")
for name in names:
    mean, error, known = (float(getattr(x, name)) for x in (found, found.std_errors, exact))
    z[name] = (mean - known) / error
    print(f"{name:6} {mean:11.5f} {error:9.5f} {known:11.5f} {z[name]:9.2f}")

# %% [markdown]
# The last column matters: the number of standard errors by which each figure is off. All figures share the same
# paths, so their errors are correlated: this key drew low spots, and every figure but volga is one to two
# standard errors off. One key in forty is as bad.
#
# Are the standard errors right in the long run? We value the call with 200 keys. 95 % of the intervals of ±1.96
# standard errors should contain the exact Gamma.


# %%
@jax.jit
@jax.vmap
def gamma_of(key):
    found = greeks(call, model, MonteCarlo(num_paths=1024, block=1024), key=key)
    return found.gamma, found.std_errors.gamma


gammas, errors = gamma_of(jax.random.split(jax.random.key(1), 200))
scores = np.asarray((gammas - exact.gamma) / errors)
coverage = float(np.mean(np.abs(scores) < 1.96))
print(f"{coverage:.1%} of 200 intervals hold the exact Gamma")

# %%
fig, axes = plt.subplots(figsize=(6.0, 3.0), layout="constrained")
axes.hist(scores, bins=24, density=True, alpha=0.6)
grid = np.linspace(-4.0, 4.0, 200)
axes.plot(grid, np.exp(-0.5 * grid**2) / np.sqrt(2.0 * np.pi))
_ = axes.set(xlabel="Gamma off, in its standard errors", title="200 runs, and the normal density")

# %% [markdown]
# ## Second derivatives of a kink
#
# A call's payoff has a kink. Its slope is 0 or 1, and the second derivative is 0 almost everywhere. So the
# naive Gamma, which differentiates each path's payoff twice, is silently 0.


# %%
normals = jax.random.normal(jax.random.key(2), (16384,))


def naive(spot):
    last = spot * jnp.exp((0.05 - 0.5 * 0.2**2) + 0.2 * normals)
    return jnp.exp(-0.05) * jnp.mean(jnp.maximum(last - 100.0, 0.0))


naive_gamma = float(jax.grad(jax.grad(naive))(100.0))
print(f"differentiated twice by hand: {naive_gamma}")

# %% [markdown]
# Here the last part of each path is integrated in closed form, so that the rest is smooth. Then `jax.grad`
# twice is right.


# %%
def value(spot):
    return price(call, BlackScholes(spot, 0.05, 0.2), method, key=key).value


our_gamma = float(jax.grad(jax.grad(value))(100.0))
print(f"jax.grad(jax.grad(price)): {our_gamma:.6f}; exact {exact.gamma:.6f}")

# %% [markdown]
# Where no estimator is unbiased, nothing is returned. A continuously monitored barrier has no second derivative
# by Monte Carlo here, and asking for it raises an error.

# %%
knock_out = Barrier(strike=100.0, expiry=1.0, barrier=80.0, kind="down-and-out")


def barrier_value(spot):
    return price(knock_out, BlackScholes(spot, 0.05, 0.2), method, key=key).value


try:
    jax.grad(jax.grad(barrier_value))(100.0)
    refusal = ""
except Exception as error:
    refusal = str(error)
print(refusal.splitlines()[0])

# %% [markdown]
# Its first derivative is available.

# %%
barrier_delta = float(jax.grad(barrier_value)(100.0))
barrier_exact = float(
    jax.grad(lambda spot: price(knock_out, BlackScholes(spot, 0.05, 0.2), ClosedForm()).value)(
        100.0
    )
)
print(f"delta by Monte Carlo {barrier_delta:.4f}, by the closed form {barrier_exact:.4f}")

# %% [markdown]
# ## Another model, the same lines
#
# Under Heston the call's value is an integral. Fourier and Monte Carlo share only the model.

# %%
heston = Heston(100.0, 0.05, 0.04, 2.5, 0.04, 0.66, -0.8)
by_fourier = price(call, heston, Fourier())
by_paths = price(call, heston, method, key=key)
heston_z = float((by_paths.value - by_fourier.value) / by_paths.std_error)
print(f"{by_paths.value:.5f} ± {by_paths.std_error:.5f}, by Fourier {by_fourier.value:.5f}")
print(f"off by {heston_z:+.2f} standard errors")

# %% [markdown]
# ## Twice the accuracy, four times the paths
#
# The standard error falls with the root of the number of paths.

# %%
counts = np.array([2**10, 2**13, 2**16])
errors_by_count = np.array(
    [float(price(call, model, MonteCarlo(int(n)), key=key).std_error) for n in counts]
)
order = float(np.polyfit(np.log(counts), np.log(errors_by_count), 1)[0])
for n, error in zip(counts, errors_by_count, strict=True):
    print(f"{n:6,} paths: {error:.5f}")
print(f"the slope on logarithms is {order:.3f}; in theory -0.5")

# %% [markdown]
# `ClosedForm()` and `Fourier()` can be named, too. A pair that no method prices raises, with each method's
# reason.

# %%
try:
    price(call, heston, ClosedForm())
    no_pair = ""
except TypeError as error:
    no_pair = str(error)
print(no_pair)

# %% [markdown]
# More: [pricing](../pricing.md), and [how to choose](../how_to_choose.md) a method.
