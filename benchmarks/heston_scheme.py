"""The scheme and the call of `heston_gradient`; JAX and PyTorch share the function of a step."""

NAMES = ("spot", "first variance", "speed", "level", "vol of vol", "correlation", "rate")
PARAMETERS = (100.0, 0.04, 1.5, 0.05, 0.4, -0.7, 0.03)
STRIKE = 100.0


def step(xp, p, dt: float, state, first, second):
    """Take one step of the scheme, smoothed at zero variance; `xp` is `jax.numpy` or `torch`."""
    _, _, speed, level, vol_of_vol, correlation, rate = p
    x, v = state
    v_plus = xp.clip(v, min=0.0)
    root = xp.sqrt((v_plus + 1e-12) * dt)
    other = correlation * first + xp.sqrt(1.0 - correlation * correlation) * second
    x = x + (rate - 0.5 * v_plus) * dt + root * other
    return x, v + speed * (level - v_plus) * dt + vol_of_vol * root * first


def payoff(xp, p, log_spot):
    """Return the discounted payoff of the one-year call."""
    return xp.exp(-p[6]) * xp.clip(p[0] * xp.exp(log_spot) - STRIKE, min=0.0)
