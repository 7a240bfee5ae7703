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
# # 5. From PyTorch to jaxtape
#
# You have a payoff or a network in PyTorch. This page moves it to JAX in three steps, and compares values and
# gradients at each: write the same chain as a tape, call a JAX function from PyTorch, and copy weights by name.

# %%
import jax
import jax.numpy as jnp
import numpy as np
import torch

jax.config.update("jax_enable_x64", True)
import equinox as eqx

import jaxtape as jt
from jaxtape.torch import compare_gradients, from_state_dict, module_case, to_torch

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)

# %% [markdown]
# ## What you have
#
# An Asian call in PyTorch: a loop over dates, and `backward`.

# %%
dates, paths = 64, 4096
noise = np.random.default_rng(0).standard_normal((dates, paths))


def asian_torch(spot, vol, noise):
    log_spot, total = torch.log(spot) + torch.zeros(paths), torch.zeros(paths)
    for z in noise:
        log_spot = log_spot + (0.05 - 0.5 * vol**2) / dates + vol * z / dates**0.5
        total = total + torch.exp(log_spot)
    return np.exp(-0.05) * torch.clamp(total / dates - 100.0, min=0.0).mean()


spot, vol = torch.tensor(100.0, requires_grad=True), torch.tensor(0.2, requires_grad=True)
value = asian_torch(spot, vol, torch.tensor(noise))
value.backward()
print(f"value {value.item():.6f}  delta {spot.grad.item():.6f}  vega {vol.grad.item():.6f}")

# %% [markdown]
# ## The same as a chain
#
# The loop has one state, the log-spot and the running total. `jt.scan` is `jax.lax.scan` with a schedule:
# here it keeps 8 of 64 states.


# %%
def asian_jax(spot, vol, noise):
    def date(state, z):
        log_spot, total = state
        log_spot = log_spot + (0.05 - 0.5 * vol**2) / dates + vol * z / dates**0.5
        return (log_spot, total + jnp.exp(log_spot)), None

    start = jnp.full(paths, jnp.log(spot)), jnp.zeros(paths)
    (_, total), _ = jt.scan(date, start, noise, schedule=jt.Revolve(slots=8))
    return jnp.exp(-0.05) * jnp.maximum(total / dates - 100.0, 0.0).mean()


ours, (delta, vega) = jax.jit(jax.value_and_grad(asian_jax, argnums=(0, 1)))(100.0, 0.2, noise)
print(f"value {ours:.6f}  delta {delta:.6f}  vega {vega:.6f}")
value_gap = abs(float(ours) / value.item() - 1.0)
print(f"values are apart by {value_gap:.1e}")

# %% [markdown]
# `compare_gradients` runs both on the same inputs, and prints the error of each gradient, including those with
# respect to all 262,144 noise values.

# %%
inputs = (np.float64(100.0), np.float64(0.2), noise)
compared = compare_gradients(asian_jax, asian_torch, inputs)
print(compared)

# %% [markdown]
# ## One function inside the other
#
# You need not move everything at once. `to_torch` turns the JAX function into a function of tensors, which
# `backward` differentiates.

# %%
asian = to_torch(asian_jax)
spot.grad = vol.grad = None
inside = asian(spot, vol, torch.tensor(noise))
inside.backward()
inside_gap = abs(spot.grad.item() / float(delta) - 1.0)
print(f"delta through torch.autograd {spot.grad.item():.6f}; apart by {inside_gap:.1e}")

# %% [markdown]
# ## Gamma
#
# In PyTorch, a second `backward` of this payoff gives 0. Each path's payoff is piecewise linear in the spot,
# and all its curvature is at the kink, where no path ends. `pricing` has an estimator whose second derivative
# is right.

# %%
from pricing import Asian, BlackScholes, MonteCarlo, greeks

product = Asian(strike=100.0, dates=np.arange(1, dates + 1) / dates)
found = greeks(
    product, BlackScholes(100.0, 0.05, 0.2), MonteCarlo(num_paths=16384), key=jax.random.key(0)
)
torch_spot = torch.tensor(100.0, requires_grad=True)
(first,) = torch.autograd.grad(
    asian_torch(torch_spot, torch.tensor(0.2), torch.tensor(noise)), torch_spot, create_graph=True
)
(second,) = torch.autograd.grad(first, torch_spot)
torch_gamma = second.item()
print(
    f"PyTorch, twice: {torch_gamma:.6f}; pricing: {found.gamma:.6f} ± {found.std_errors.gamma:.6f}"
)

# %% [markdown]
# A central difference of Delta, with the spot bumped up and down, shows which is right.


# %%
def delta_at(level, count=200):
    total = 0.0
    for seed in range(count):
        noise = np.random.default_rng([1, seed]).standard_normal((dates, paths))
        total += float(delta_of(level, 0.2, noise))
    return total / count


delta_of = jax.jit(jax.grad(asian_jax))
bumped_gamma = (delta_at(101.0) - delta_at(99.0)) / 2.0
print(f"by a bump of 1, on 819,200 paths: {bumped_gamma:.6f}")

# %% [markdown]
# ## Weights
#
# Weights of a trained network are copied by name. Equinox and `Sequential` name layers differently, so we map
# the names.

# %%
theirs = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
names = {"layers.0": "0", "layers.1": "2"}
network = from_state_dict(
    eqx.nn.MLP(3, 1, 16, 1, key=jax.random.key(0)), theirs.state_dict(), names
)
batch = np.random.default_rng(1).standard_normal((5, 3))
out_gap = float(
    np.abs(
        jax.vmap(network)(jnp.asarray(batch)) - theirs(torch.tensor(batch)).detach().numpy()
    ).max()
)
print(f"outputs are apart by {out_gap:.1e}")

# %% [markdown]
# `module_case` compares weights, outputs of every part and gradients. `parts_at` names the first part that
# differs: here there is none.

# %%
case = module_case(network, theirs, (batch,), names=names)
parted = case.table("double").parts_at(1e-10)
print("both part at:", parted)

# %% [markdown]
# From a shell, `jaxtape compare all` does this for seven cases that come with the library, `jaxtape compare
# mine.py:case` for your own. More: [the tape and PyTorch](../pytorch.md).
