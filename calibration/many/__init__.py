from .calibrations import Calibrations as Calibrations
from .checkpoints import finish as finish
from .checkpoints import forget as forget
from .job import Job as Job
from .rounds import calibrate_many as calibrate_many
from .sources import read_jobs as read_jobs
