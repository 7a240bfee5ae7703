from .curve import ZeroCurve as ZeroCurve
from .equity import Equity as Equity
from .market import Market as Market
from .surface import SwaptionVols as SwaptionVols
from .surface import VolSurface as VolSurface
from .vol_curve import VolCurve as VolCurve
