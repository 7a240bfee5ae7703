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
# # 4. A backward equation in a hundred dimensions
#
# A grid with ten points per dimension has 10 to the hundredth nodes in a hundred dimensions. A backward
# stochastic differential equation needs only paths. We solve two: one with a known closed form, and a published
# one, checked by a method that shares nothing with the solver. Each figure has its own standard error.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from pricing.fbsde import (
    DeepBSDE,
    GradientRegression,
    Problem,
    SeparableBasis,
    certify,
    multilevel_picard,
    problems,
    solve,
)

# %% [markdown]
# ## The equation
#
# A problem has a forward equation for the state X and a backward one for the value Y:
#
# dX = b dt + s dW, and −dY = f(t, X, Y, Z) dt − Z dW with Y = g(X) at the end.
#
# Then Y = u(t, X) and Z = s' grad u. We take a hundred Brownian motions, f = −r y, and g(x) = |x|². The
# solution is
#
# u(t, x) = exp(−r (T − t)) (|x|² + d (T − t)).

# %%
dim, rate, maturity = 100, 0.05, 1.0
problem = Problem(
    dim=dim,
    maturity=maturity,
    num_steps=10,
    x0=jnp.full(dim, 0.5),
    drift=lambda t, x: jnp.zeros(dim),
    diffusion=lambda t, x: 1.0,
    driver=lambda t, x, y, z: -rate * y,
    terminal=lambda x: jnp.sum(x**2),
)
known_value = float(np.exp(-rate) * (dim * 0.25 + dim))
known_delta = float(np.exp(-rate) * 2.0 * 0.5)

# %% [markdown]
# ## Solve it
#
# `GradientRegression` steps backward over the dates and fits a few basis functions to values and their changes.
# |x|² is a sum of functions of one coordinate, so `SeparableBasis(2)`, polynomials of each coordinate alone,
# can be exact.

# %%
solver = GradientRegression(8192, bases=(SeparableBasis(2),))
solution = solve(problem, solver, key=jax.random.key(0))
value = float(solution.value(0.0, problem.x0))
delta = np.asarray(solution.delta(0.0, problem.x0))
print(f"value {value:.3f}, known {known_value:.3f}: {value / known_value - 1.0:+.3%}")
print(
    f"delta {delta.mean():.4f}, known {known_delta:.4f}; largest of a hundred off "
    f"{np.abs(delta - known_delta).max():.4f}"
)

# %% [markdown]
# ## How far off, if nothing is known?
#
# `certify` draws fresh paths and sums the solution's defects over the steps. That gives standard errors without
# a known answer.

# %%
told = certify(solution, key=jax.random.key(1), num_paths=2048)
mean, error = float(told.value.mean), float(told.value.std_error)
z = (mean - known_value) / error
print(f"certified {mean:.3f} ± {error:.3f}: off by {z:+.2f} of its standard errors")

# %% [markdown]
# The known answer is within the range of the standard error.
#
# ## A nonlinear equation
#
# Allen and Cahn's equation has f = y − y³. It has no closed form. Its value in a hundred dimensions was
# published as .0527813. `DeepBSDE` trains a network for Z and a number for the value, by the squared error at
# the end.

# %%
allen_cahn = problems.allen_cahn(100)
trained = solve(allen_cahn, DeepBSDE(num_iterations=600), key=jax.random.key(0))
deep_value, published = float(trained.value(0.0, allen_cahn.x0)), 0.0527813
print(f"DeepBSDE {deep_value:.6f}, published {published}: {deep_value / published - 1.0:+.2%}")

# %%
losses = np.asarray(trained.stats["losses"]).ravel()
fig, axes = plt.subplots(figsize=(6.0, 3.0), layout="constrained")
axes.semilogy(losses)
_ = axes.set(xlabel="stage", ylabel="loss", title="Allen–Cahn in a hundred dimensions")

# %% [markdown]
# ## An independent check
#
# A multilevel Picard iteration has no network, no basis functions and no time grid, but a standard error.

# %%
picard = multilevel_picard(allen_cahn, key=jax.random.key(2), levels=4, repeats=16)
picard_value, picard_error = float(picard.mean), float(picard.std_error)
gap = deep_value - picard_value
print(f"Picard {picard_value:.6f} ± {picard_error:.6f}; DeepBSDE is {gap:+.6f} away")

# %% [markdown]
# And the certificate of the trained solution, on fresh paths:

# %%
deep_told = certify(trained, key=jax.random.key(3), num_paths=1024)
deep_mean, deep_error = float(deep_told.value.mean), float(deep_told.value.std_error)
deep_z = (deep_mean - published) / deep_error
print(
    f"certified {deep_mean:.6f} ± {deep_error:.6f}: {deep_z:+.2f} standard errors from the published value"
)

# %% [markdown]
# Three methods agree on one number. `solve(problem, key=key)` without a solver chooses one, and refuses figures
# that it cannot certify. `jaxtape solve --help` lists the published problems. More: [backward
# equations](../fbsde.md).
