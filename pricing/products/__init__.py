# In the order in which messages list the kinds of trade.
# isort: off
from .product import AbstractProduct as AbstractProduct
from .terminal import Claim as Claim
from .terminal import TerminalClaim as TerminalClaim
from .average import Average as Average
from .average import AverageClaim as AverageClaim
from .monitored import Monitored as Monitored
from .monitored import Payoff as Payoff
from .exercise import EarlyExercise as EarlyExercise
from .exercise import Exercisable as Exercisable
from .exercise import SpotOption as SpotOption
from .european import European as European
from .barrier_option import BarrierOption as BarrierOption
from .barrier_option import SingleBarrier as SingleBarrier
from .swap_entry import SwapEntry as SwapEntry
from .swap_entry import SwapOption as SwapOption
from .digital import Digital as Digital
from .barrier import Barrier as Barrier
from .american import American as American
from .bermudan import Bermudan as Bermudan
from .asian import Asian as Asian
from .double_barrier import DoubleBarrier as DoubleBarrier
from .autocallable import Autocallable as Autocallable
from .basket import Basket as Basket
from .swap import Swap as Swap
from .swaption import Swaption as Swaption
from .bermudan_swaption import BermudanSwaption as BermudanSwaption
