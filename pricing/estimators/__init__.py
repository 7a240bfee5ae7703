from .average import ArithmeticAverage, GeometricAverage
from .best_of import BestOf
from .bridged import BridgedBarrier
from .estimator import AbstractEstimator as AbstractEstimator
from .estimator import Draw as Draw
from .estimator import Needs as Needs
from .monitored import OneStepSurvival
from .terminal import Terminal

ESTIMATORS: tuple[AbstractEstimator, ...] = (
    Terminal(),
    ArithmeticAverage(),
    GeometricAverage(),
    BestOf(),
    OneStepSurvival(),
    BridgedBarrier(),
)
