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
# # 1. The tape
#
# A Monte Carlo path is a chain: one state in, one state out, thousands of times. Its gradient needs the states
# in reverse order. Here we write such a chain as a tape, choose how much of it is kept, and compare the
# gradient with a closed form.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax.scipy.stats import norm

jax.config.update("jax_enable_x64", True)
import jaxtape as jt

# %% [markdown]
# ## One step, and many nodes
#
# A step takes the parameters of its node and the state before it. Ours moves 4,096 spots by a day. Its noise
# is drawn beforehand, so that we know the answer.

# %%
days, paths, rate = 252, 4096, 0.05
noise = jax.random.normal(jax.random.key(0), (days, paths))


def day(node, spot):
    dt = 1.0 / days
    drift = (rate - 0.5 * node["vol"] ** 2) * dt
    return spot * jnp.exp(drift + node["vol"] * jnp.sqrt(dt) * node["noise"])


nodes = {"vol": jnp.full(days, 0.2), "noise": noise}
tape = jt.Tape().append(day, nodes)
print(tape)

# %% [markdown]
# You call a tape like a function. It is a pytree, so `jit`, `grad` and `vmap` accept it like an array.

# %%
start = jnp.full(paths, 100.0)
spots = tape(start)
print(f"{len(tape)} nodes; mean spot {spots.mean():.3f}, forward {100.0 * np.exp(rate):.3f}")

# %% [markdown]
# How far off is that, in standard errors? Expect a number between −2 and 2.

# %%
forward_error = float(spots.std(ddof=1) / np.sqrt(paths))
forward_z = float((spots.mean() - 100.0 * np.exp(rate)) / forward_error)
print(f"off by {forward_z:.2f} standard errors")

# %% [markdown]
# ## The gradient of a tape is a tape
#
# The price of a call is the mean of its discounted payoff. Its gradient has a cotangent for every node: here
# each day's vega.


# %%
def price(tape):
    payoff = jnp.maximum(tape(start) - 100.0, 0.0)
    return jnp.exp(-rate) * payoff.mean()


value, tape_bar = jax.value_and_grad(price)(tape)
vega_by_day = tape_bar.segments[0].params["vol"]
print(f"value {value:.4f}; vega {vega_by_day.sum():.3f}, the sum of {vega_by_day.size} days'")

# %% [markdown]
# Black–Scholes gives both in closed form. The error bars come from the spread of payoffs and derivatives over
# paths.

# %%
d1 = (rate + 0.5 * 0.2**2) / 0.2
exact_value = float(100.0 * norm.cdf(d1) - 100.0 * np.exp(-rate) * norm.cdf(d1 - 0.2))
exact_vega = float(100.0 * norm.pdf(d1))
in_the_money = spots > 100.0
slopes = jnp.exp(-rate) * in_the_money * spots * (noise.sum(0) / np.sqrt(days) - 0.2)
value_error = float((jnp.exp(-rate) * jnp.maximum(spots - 100.0, 0.0)).std(ddof=1) / np.sqrt(paths))
vega_error = float(slopes.std(ddof=1) / np.sqrt(paths))
vega = float(vega_by_day.sum())
print(f"value {value:.3f} ± {value_error:.3f}, exact {exact_value:.3f}")
print(f"vega  {vega:.2f} ± {vega_error:.2f}, exact {exact_vega:.2f}")

# %% [markdown]
# Both are within two standard errors.
#
# ## What is kept
#
# By default every state is kept, as in `jax.lax.scan`. A *schedule* keeps fewer and recomputes the others.
# `Revolve(slots)` takes the fewest steps possible with that number of slots. `jt.plan` gives the cost in
# advance.

# %%
for slots in (4, 8, 16, 64):
    plan = jt.plan(tape, start, slots=slots)
    print(f"{slots:3} slots: {plan.evaluations:5} steps, {plan.peak_bytes / 1e6:6.2f} MB")

# %% [markdown]
# `plan.draw()` plots it. The blue line rises with forward steps and falls as nodes are reversed; an orange line
# is a kept state. Here are sixty days with five slots.

# %%
sixty = jt.Tape().append(day, {"vol": nodes["vol"][:60], "noise": noise[:60]})
_ = jt.plan(sixty, start, slots=5).draw()

# %% [markdown]
# The gradient is the same to rounding, whatever is kept.

# %%
lean = tape.with_schedule(jt.Revolve(slots=8))
lean_bar = jax.grad(price)(lean)
largest_gap = float(jnp.abs(lean_bar.segments[0].params["vol"] - vega_by_day).max())
print(f"largest difference of a day's vega: {largest_gap:.1e}")

# %%
slots = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 252])
steps = np.array([jt.advances(days, int(s)) + 1 + days for s in slots])
fig, axes = plt.subplots(figsize=(6.0, 3.2), layout="constrained")
axes.loglog(slots, steps, "o-")
axes.set(xlabel="slots", ylabel="steps of a gradient", title=f"A chain of {days} nodes")
axes.grid(True, which="both", alpha=0.3)

# %% [markdown]
# The curve falls steeply at first. A gradient that keeps every state takes 504 steps. With eight slots, a
# thirtieth of the states, it takes 1,041: about twice as many.
#
# ## Edits
#
# A tape can be cut, rolled and marked. Each edit returns a new tape. Tomorrow the oldest day is dropped at the
# front, and a new one is appended at the end.

# %%
tomorrow = {"vol": jnp.full(1, 0.2), "noise": jax.random.normal(jax.random.key(1), (1, paths))}
rolled = tape.drop(1).append(day, tomorrow)
print(len(rolled), f"value {price(rolled):.4f}")

# %% [markdown]
# The result equals that of a tape built from scratch.

# %%
fresh = {
    "vol": jnp.full(days, 0.2),
    "noise": jnp.concatenate([noise[1:], tomorrow["noise"]]),
}
edit_gap = float(abs(price(rolled) - price(jt.Tape().append(day, fresh))))
print(f"difference: {edit_gap:.1e}")

# %% [markdown]
# ## Check it
#
# `jt.check_gradient` compares a gradient with central differences. It raises if they disagree.


# %%
def price_of(vol):
    return price(jt.Tape().with_schedule(jt.Revolve(slots=4)).append(day, nodes | {"vol": vol}))


checked = jt.check_gradient(price_of, nodes["vol"])
print(f"largest relative difference: {checked.max_relative_difference:.1e}")

# %% [markdown]
# More: [the tape in ten minutes](../tape.md), [memory against recomputation](../memory.md).
