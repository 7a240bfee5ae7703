from .bid_ask import BidAskError as BidAskError
from .defaults import objective_of as objective_of
from .implied_vols import ImpliedVolError as ImpliedVolError
from .implied_vols import model_vols as model_vols
from .objective import AbstractObjective as AbstractObjective
from .prices import PriceError as PriceError
from .swap_legs import SwapLegs as SwapLegs
from .swaption_vols import SwaptionVolError as SwaptionVolError
