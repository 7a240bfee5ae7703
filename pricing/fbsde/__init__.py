from . import problems as problems
from .backward_dp import BackwardDP as BackwardDP
from .deep_bsde import DeepBSDE as DeepBSDE
from .networks import Architecture as Architecture
from .one_step_malliavin import OneStepMalliavin as OneStepMalliavin
from .problem import Problem as Problem
from .solution import Solution as Solution
from .solve import solve as solve
