"""Valuation adjustments (XVA) of a netting set for default, funding and collateral."""

# for a benchmark with nested paths
from .close_out import Weights as Weights
from .close_out import cost_samples as cost_samples
from .close_out import weights_of as weights_of
from .exposure_paths import Exposure as Exposure
from .exposure_paths import ExposurePaths as ExposurePaths
