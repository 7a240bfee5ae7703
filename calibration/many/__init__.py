from .blocks import calibrate_many as calibrate_many
from .calibrations import Calibrations as Calibrations
from .job import Job as Job
