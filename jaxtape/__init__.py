"""The tape: differentiate a long chain of operations in bounded memory."""

from .binomial import advances as advances
from .binomial import beta as beta
from .checks import check_duality as check_duality
from .checks import check_gradient as check_gradient
from .loops import scan as scan
from .loops import while_loop as while_loop
from .online import loop_advances as loop_advances
from .plan import Plan as Plan
from .plan import plan as plan
from .recording import Recording as Recording
from .schedule import AbstractSchedule as AbstractSchedule
from .schedule import Fit as Fit
from .schedule import Marked as Marked
from .schedule import MultiStage as MultiStage
from .schedule import Periodic as Periodic
from .schedule import Recursive as Recursive
from .schedule import Revolve as Revolve
from .schedule import StoreAll as StoreAll
from .second_order import hvp as hvp
from .tape import Tape as Tape
from .xla_flags import without_ynn_fusions

without_ynn_fusions()
