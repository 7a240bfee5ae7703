"""The tape: differentiate a long chain of operations in bounded memory."""

from . import startup

startup.guard()  # before JAX is imported

# ruff: noqa: E402
from .checks import check_duality as check_duality
from .checks import check_gradient as check_gradient
from .loops import scan as scan
from .loops import while_loop as while_loop
from .planning import Plan as Plan
from .planning import plan as plan
from .programs.outlined import outlined as outlined
from .programs.program import Program as Program
from .programs.program import export as export
from .programs.program import load as load
from .programs.store import set_program_store as set_program_store
from .programs.store import stored_jit as stored_jit
from .recording import Recording as Recording
from .schedules.online import loop_advances as loop_advances
from .schedules.schedule import AbstractSchedule as AbstractSchedule
from .schedules.schedule import Budget as Budget
from .schedules.schedule import Marked as Marked
from .schedules.schedule import MultiStage as MultiStage
from .schedules.schedule import Periodic as Periodic
from .schedules.schedule import Recursive as Recursive
from .schedules.schedule import Revolve as Revolve
from .schedules.schedule import StoreAll as StoreAll
from .schedules.schedule import Weighted as Weighted
from .schedules.table import advances as advances
from .schedules.table import beta as beta
from .second_order import hvp as hvp
from .tape import Tape as Tape
from .xla_flags import without_ynn_fusions

without_ynn_fusions()
