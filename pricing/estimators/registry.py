"""The Monte Carlo estimators, in the order in which they are tried."""

from .average import ArithmeticAverage, GeometricAverage
from .best_of import BestOf
from .bridged import BridgedBarrier
from .callable_note import WorstNote
from .estimator import AbstractEstimator
from .one_step_survival import OneStepSurvival
from .path_claim import PathClaimEstimator
from .terminal import Terminal

ESTIMATORS: tuple[AbstractEstimator, ...] = (
    Terminal(),
    ArithmeticAverage(),
    GeometricAverage(),
    BestOf(),
    OneStepSurvival(),
    BridgedBarrier(),
    WorstNote(),
    WorstNote(all_times=True),
    PathClaimEstimator(),
)
