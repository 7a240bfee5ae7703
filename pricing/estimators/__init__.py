from .estimator import AbstractEstimator as AbstractEstimator
from .estimator import Draw as Draw
from .estimator import Needs as Needs
from .registry import ESTIMATORS as ESTIMATORS
