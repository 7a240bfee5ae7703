from pricing.models import Exp as Exp
from pricing.models import ForwardVols as ForwardVols
from pricing.models import Identity as Identity
from pricing.models import Tanh as Tanh

from .calibration import Calibration as Calibration
from .calibration import calibrate as calibrate
from .many import Calibrations as Calibrations
from .many import Job as Job
from .many import calibrate_many as calibrate_many
from .market_fit import fit as fit
from .objectives import AbstractObjective as AbstractObjective
from .objectives import ImpliedVolError as ImpliedVolError
from .objectives import SwapLegs as SwapLegs
from .objectives import SwaptionVolError as SwaptionVolError
from .optimizers import levenberg_marquardt as levenberg_marquardt
from .quote_sensitivities import quote_sensitivities as quote_sensitivities
from .results import RESULTS as RESULTS
