"""Surfaces that are broken on purpose, drawn from a seed; each says what is wrong with it."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibration import Job
from pricing import Heston, VolSurface

Dice = np.random.Generator
Numbers = dict[str, Any]  # expiries, strikes, vols, spot, rate

EXPIRIES, STRIKES = np.array([0.1, 0.5, 1.0, 2.0]), np.linspace(80.0, 125.0, 8)


def sound(dice: Dice) -> Numbers:
    """A smile as markets have them, with noise: never an arbitrage by much, never a perfect fit."""
    level, slope, bend = dice.uniform((0.1, -0.3, 0.0), (0.4, 0.1, 0.4))
    k = np.log(STRIKES / 100.0)[None, :] / np.sqrt(EXPIRIES)[:, None]
    vols = level * (1.0 + slope * k + bend * k**2) + dice.normal(0.0, 1e-3, k.shape)
    return {"expiries": EXPIRIES, "strikes": STRIKES, "vols": vols, "spot": 100.0, "rate": 0.02}


def _put(field: str, value: Callable[[Dice], float], most: int = 1) -> Callable:
    """Return what puts a value at some places of a field."""

    def broken(numbers: Numbers, dice: Dice) -> Numbers:
        array = np.array(numbers[field], dtype=float)
        count = min(dice.integers(1, most + 1), array.size)
        places = dice.choice(array.size, count, replace=False) if count else []
        array.ravel()[places] = [value(dice) for _ in places]
        return numbers | {field: array}

    return broken


def _scaled(field: str, low: float, high: float) -> Callable:
    """Return what multiplies a whole field by a number between two, in the logarithm."""

    def broken(numbers: Numbers, dice: Dice) -> Numbers:
        scale = np.exp(dice.uniform(*np.log((low, high))))
        return numbers | {field: np.asarray(numbers[field]) * scale}

    return broken


def _shuffled(field: str, axis: int) -> Callable:
    """Return what puts strikes or expiries out of order, with their vols."""

    def broken(numbers: Numbers, dice: Dice) -> Numbers:
        order = dice.permutation(numbers[field].size)
        return numbers | {
            field: numbers[field][order],
            "vols": np.take(numbers["vols"], order, axis),
        }

    return broken


def _repeated(field: str) -> Callable:
    """Return what gives two strikes or expiries one number, with vols that contradict each other."""

    def broken(numbers: Numbers, dice: Dice) -> Numbers:
        array = np.array(numbers[field])
        place = dice.integers(1, array.size)
        array[place] = array[place - 1]
        return numbers | {field: array}

    return broken


def _arbitrage(numbers: Numbers, dice: Dice) -> Numbers:
    spread = np.exp(dice.uniform(1.0, 3.0))
    board = np.where(np.indices(numbers["vols"].shape).sum(0) % 2, spread, 1.0 / spread)
    return numbers | {"vols": numbers["vols"] * board}


def _few(numbers: Numbers, dice: Dice) -> Numbers:
    """Leave no quote, or up to six."""
    vols = np.full(numbers["vols"].shape, np.nan)
    places = dice.choice(vols.size, dice.integers(0, 7), replace=False)
    vols.ravel()[places] = numbers["vols"].ravel()[places]
    return numbers | {"vols": vols}


def _one(numbers: Numbers, dice: Dice) -> Numbers:
    del dice
    first = {name: numbers[name][:1] for name in ("expiries", "strikes")}
    return numbers | first | {"vols": numbers["vols"][:1, :1]}


def _batch(numbers: Numbers, dice: Dice) -> Numbers:
    return numbers | {"vols": np.stack([numbers["vols"]] * int(dice.integers(1, 4)))}


def _noise(numbers: Numbers, dice: Dice) -> Numbers:
    return numbers | {"vols": np.exp(dice.normal(-1.5, 1.0, numbers["vols"].shape))}


def _one_of(*values: float) -> Callable[[Dice], float]:
    return lambda dice: float(dice.choice(values))


BREAKS: dict[str, Callable[[Numbers, Dice], Numbers]] = {
    "sound": lambda numbers, dice: numbers,
    "vols missing": _put("vols", _one_of(np.nan), 30),
    "vols not finite": _put("vols", _one_of(np.inf, -np.inf), 3),
    "vols zero or below": _put("vols", _one_of(0.0, -0.0, -0.2, -1e-300), 3),
    "vols tiny": _put("vols", lambda dice: 10.0 ** dice.uniform(-300.0, -3.0), 3),
    "vols huge": _put("vols", lambda dice: 10.0 ** dice.uniform(0.5, 300.0), 3),
    "all vols tiny": _scaled("vols", 1e-12, 1e-2),
    "all vols huge": _scaled("vols", 3.0, 1e12),
    "vols in percent": _scaled("vols", 100.0, 100.0001),
    "arbitrage": _arbitrage,
    "noise": _noise,
    "strikes unsorted": _shuffled("strikes", 1),
    "expiries unsorted": _shuffled("expiries", 0),
    "strikes repeated": _repeated("strikes"),
    "expiries repeated": _repeated("expiries"),
    "strikes bad": _put("strikes", _one_of(0.0, -5.0, np.nan, np.inf), 2),
    "strikes huge": _scaled("strikes", 3.0, 1e200),
    "strikes tiny": _scaled("strikes", 1e-200, 0.3),
    "one strike far": _put("strikes", lambda dice: 10.0 ** dice.uniform(-300.0, 300.0)),
    "expiries bad": _put("expiries", _one_of(0.0, -0.5, np.nan, np.inf), 2),
    "expiries huge": _scaled("expiries", 30.0, 1e200),
    "expiries tiny": _scaled("expiries", 1e-200, 1e-2),
    "few": _few,
    "one": _one,
    "batch": _batch,
    "spot bad": lambda numbers, dice: numbers | {"spot": _one_of(np.nan, np.inf, -1.0, 0.0)(dice)},
    "rate bad": lambda numbers, dice: numbers | {"rate": _one_of(np.nan, -np.inf, np.inf)(dice)},
    "rate huge": lambda numbers, dice: numbers | {"rate": dice.uniform(-900.0, 900.0)},
    "spot far": lambda numbers, dice: numbers | {"spot": 10.0 ** dice.uniform(-300.0, 300.0)},
}
"""What is wrong -> what makes it so."""


def job_of(name: str, numbers: Numbers) -> Job:
    """Return the job as it comes from outside: past the checks of the constructors."""
    flat = VolSurface([1.0], [1.0], [[0.2]])
    surface = _with(flat, {field: numbers[field] for field in ("expiries", "strikes", "vols")})
    start = Heston(100.0, 0.02, 0.05, 2.0, 0.05, 0.5, -0.5, 0.01)
    return Job(name, surface, _with(start, {field: numbers[field] for field in ("spot", "rate")}))


def _with(module: Any, numbers: Numbers) -> Any:
    """Return a module with other numbers, which nobody has looked at."""
    leaves, structure = jax.tree.flatten(module)
    names = [
        jax.tree_util.keystr(path, simple=True) for path, _ in jax.tree.leaves_with_path(module)
    ]
    found = [
        jnp.asarray(numbers.get(name, leaf), float)
        for name, leaf in zip(names, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, found)


def hostile(count: int, seed: int = 20261124) -> Iterator[tuple[str, Job]]:
    """Yield what is wrong with each of so many surfaces, and its job; some are wrong in two ways."""
    dice, names = np.random.default_rng(seed), list(BREAKS)
    for index in range(count):
        name, numbers = names[index % len(names)], sound(dice)
        numbers = BREAKS[name](numbers, dice)
        if name != "batch" and dice.uniform() < 0.1:
            other = names[dice.integers(1, 11)]
            name, numbers = f"{name}, {other}", BREAKS[other](numbers, dice)
        yield name, job_of(f"{index} {name}", numbers)
