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
# # 3. A calibration
#
# We fit Heston to the DAX of 5 July 2002, ask how far to trust the parameters, and carry the risk of an
# option through the fit to each quote. The market is a sample that comes with the library.

# %%
from importlib.resources import files

import equinox as eqx
import jax
import matplotlib.pyplot as plt
import numpy as np

jax.config.update("jax_enable_x64", True)
from calibration import calibrate, identifiability, profile, quote_sensitivities
from pricing import European, Heston, Market, VolSurface, price

market = Market.read(files("pricing.samples") / "dax_2002-07-05.json")
dax = market.equities["DAX"]
surface = dax.surface
print(f"spot {dax.spot:,.2f}; {surface.vols.shape} expiries and strikes")

# %% [markdown]
# ## The fit
#
# `starting_on` puts the usual starting point on the market's spot and curve. `calibrate` takes damped
# Gauss–Newton steps.

# %%
start = Heston.starting_on(market, "DAX")
found = calibrate(surface, start)
names = list(Heston.free_parameters)
errors = np.sqrt(np.diag(found.stats["covariance"]))
for name, error in zip(names, errors, strict=True):
    print(f"{name:18} {float(getattr(found.model, name)):8.4f} ± {error:.4f}")
squares = float(found.stats["sum_squared_vol_points"])
count = int(found.stats["num_quotes"])
rms = np.sqrt(squares / count)
print(
    f"{int(found.stats['steps'])} steps; {squares:.4f} squared vol points over {count} quotes: "
    f"{rms:.2f} each"
)

# %% [markdown]
# Is that the global optimum? A local search may end in another minimum. We start it at 32 random points, side
# by side.

# %%
many = calibrate(surface, start, num_starts=32, key=jax.random.key(0))
ended = int(many.stats["starts_at_optimum"])
gap = float(many.stats["sum_squared_vol_points"]) / squares - 1.0
print(f"{ended} of 32 starts end at the same optimum; the best differs by {gap:.1e}")

# %% [markdown]
# Here are the smiles: dots are quotes, lines the model.

# %%
fitted = np.asarray(surface.vols) + np.asarray(found.residuals)
fig, panels = plt.subplots(2, 4, figsize=(10.0, 4.4), sharex=True, layout="constrained")
for panel, expiry, quotes, line in zip(
    panels.ravel(), surface.expiries, surface.vols, fitted, strict=True
):
    panel.plot(surface.strikes, 100.0 * quotes, "o", ms=3)
    panel.plot(surface.strikes, 100.0 * line)
    panel.set_title(f"{float(expiry):.2f} years", fontsize=9)
_ = fig.supylabel("implied vol, %")

# %% [markdown]
# The shortest expiry has the largest error. Five parameters cannot fit its smile: that is a model error, which
# no search can remove.

# %%
by_expiry = np.sqrt(np.mean((100.0 * np.asarray(found.residuals)) ** 2, axis=1))
for expiry, off in zip(surface.expiries, by_expiry, strict=True):
    print(f"{float(expiry):5.2f} years: {off:.2f} vol points")

# %% [markdown]
# ## A round trip
#
# To test the search itself, take the market from the model: quote the fitted vols, forget the parameters, and
# refit.

# %%
own = VolSurface(surface.expiries, surface.strikes, fitted)
again = calibrate(own, start)
trip = max(
    abs(float(getattr(again.model, name)) / float(getattr(found.model, name)) - 1.0)
    for name in names
)
print(f"every parameter is back to {trip:.1e} of itself")

# %% [markdown]
# ## How far to trust it
#
# `identifiability` shows which combinations of parameters the quotes hardly identify.

# %%
trust = identifiability(found)
print(trust.summary)
print(f"condition number {float(found.stats['condition_number']):.0f}")

# %% [markdown]
# A standard error assumes a parabola. `profile` fixes one parameter at each value of a grid and refits the
# others. If the curve matches the parabola, you can trust the standard error.

# %%
at = names.index("correlation")
best, error = float(found.model.correlation), float(errors[at])
grid = best + error * np.linspace(-2.5, 2.5, 6)
curve = profile(found, "correlation", grid)
parabola = ((grid - best) / error) ** 2
for value, deviance, expected in zip(grid, curve.deviances, parabola, strict=True):
    print(
        f"correlation {value:.4f}: deviance {float(deviance):6.2f}, by the standard error {expected:.2f}"
    )

# %% [markdown]
# ## Risk through the fit
#
# The fitted model values a put, so the value depends on every quote. The implicit function theorem gives all
# these sensitivities from one linear solve, without differentiating the search.

# %%
put = European(4000.0, 1.0, "put")


def value(model):
    return price(put, model).value


slopes = quote_sensitivities(found, value)
vegas = np.asarray(slopes)
print(
    f"the put is worth {value(found.model):.2f}; all {vegas.size} quotes one point up: "
    f"{0.01 * vegas.sum():+.2f}"
)

# %% [markdown]
# To check by bumping, move one quote by a hundredth of a vol point, recalibrate, and revalue.

# %%
row, column = np.unravel_index(np.abs(vegas).argmax(), vegas.shape)
bump = 1e-5


def value_when_moved(by):
    quotes = eqx.tree_at(lambda s: s.vols, surface, surface.vols.at[row, column].add(by))
    return float(value(calibrate(quotes, found.model, rtol=1e-14).model))


bumped = (value_when_moved(bump) - value_when_moved(-bump)) / (2.0 * bump)
bump_gap = float(vegas[row, column] / bumped - 1.0)
print(f"largest: {vegas[row, column]:.4f}; by bumping {bumped:.4f}; apart by {bump_gap:.1e}")

# %%
fig, axes = plt.subplots(figsize=(7.0, 3.0), layout="constrained")
limit = 0.01 * np.abs(vegas).max()
image = axes.imshow(0.01 * vegas, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
axes.set_xticks(
    range(len(surface.strikes)), [f"{float(k):.0f}" for k in surface.strikes], rotation=60
)
axes.set_yticks(range(len(surface.expiries)), [f"{float(t):.2f}" for t in surface.expiries])
axes.set(
    xlabel="strike", ylabel="expiry, years", title="Value of the put per vol point of each quote"
)
_ = fig.colorbar(image)

# %% [markdown]
# The command line does all of this for a whole book: `jaxtape risk`. More: [calibration](../calibration.md).
