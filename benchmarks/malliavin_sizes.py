"""The common parts of both sides of `one_step_malliavin`: dates, learning rates, and sizes of a training."""

import math
from typing import NamedTuple

STEPS, MATURITY = 20, 1.0
FIRST_STAGES, ROUNDS = 5, 3
RATE, LATER_RATE = 1e-2, 3e-3
DT = MATURITY / STEPS
DIFFUSION = math.sqrt(2.0)
TEST_DATE = STEPS // 2
PATHS, BATCH = 16384, 256


class Size(NamedTuple):
    dim: int
    width: int  # of hidden layers
    iterations: int  # per date
    paths: int = PATHS
    batch: int = BATCH
