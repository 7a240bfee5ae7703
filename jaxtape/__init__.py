"""The tape: differentiate a long chain of operations in bounded memory."""

from .checks import check_duality as check_duality
from .checks import check_gradient as check_gradient
from .loops import scan as scan
from .loops import while_loop as while_loop
from .recording import Recording as Recording
from .schedule import AbstractSchedule as AbstractSchedule
from .schedule import Periodic as Periodic
from .schedule import Recursive as Recursive
from .schedule import Revolve as Revolve
from .schedule import StoreAll as StoreAll
from .schedule import advances as advances
from .schedule import beta as beta
from .second_order import hvp as hvp
from .tape import Tape as Tape
