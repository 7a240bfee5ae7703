from .calibrate import calibrate as calibrate
from .risk import risk as risk
