from .barrier import Barrier as Barrier
from .digital import Digital as Digital
from .european import European as European
from .product import AbstractProduct as AbstractProduct
from .product import TerminalClaim as TerminalClaim
