from .calibrations import Calibrations as Calibrations
from .job import Job as Job
from .kept_rounds import finish as finish
from .kept_rounds import forget as forget
from .rounds import calibrate_many as calibrate_many
from .sources import read_jobs as read_jobs
