from .fits import ManyFits as ManyFits
from .fits import SurfaceFit as SurfaceFit
from .positions import Position as Position
from .positions import positions_of as positions_of
from .positions import write_positions as write_positions
from .quotes import QuoteRisk as QuoteRisk
from .quotes import quote_risks as quote_risks
from .quotes import write_quote_risks as write_quote_risks
