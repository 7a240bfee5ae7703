from .black_scholes import BlackScholes as BlackScholes
from .heston import Heston as Heston
from .model import AbstractModel as AbstractModel
from .model import BlackVol as BlackVol
from .model import CharacteristicFunction as CharacteristicFunction
from .model import ConditionallyGaussian as ConditionallyGaussian
from .model import Walk as Walk
