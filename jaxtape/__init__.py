"""The tape: differentiate a long chain of operations in bounded memory."""

from .jax_settings import startup

startup.guard()  # must run before JAX is imported

# ruff: noqa: E402
from importlib.metadata import version as _version

from .checks import check_duality as check_duality
from .checks import check_gradient as check_gradient
from .implicit import fixed_point as fixed_point
from .implicit import root as root
from .jax_settings.kernels import set_kernels as set_kernels
from .jax_settings.single_on_devices import use_single_on_devices as use_single_on_devices
from .jax_settings.xla_flags import without_ynn_fusions as _without_ynn_fusions
from .programs.compile_for import compile_for as compile_for
from .programs.compiled_report import CompiledReport as CompiledReport
from .programs.exported import Program as Program
from .programs.exported import export as export
from .programs.exported import load as load
from .programs.no_inline import no_inline as no_inline
from .programs.registers import Registers as Registers
from .programs.scheduled_program import Collective as Collective
from .programs.scheduled_program import Loop as Loop
from .programs.stored_jit import set_program_store as set_program_store
from .programs.stored_jit import stored_jit as stored_jit
from .public_names import public_dir as _public_dir
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
from .schedules.store_last import StoreLast as StoreLast
from .schedules.table import advances as advances
from .schedules.table import beta as beta
from .second_order import hvp as hvp
from .tape.loops import scan as scan
from .tape.loops import while_loop as while_loop
from .tape.plan import Plan as Plan
from .tape.plan import plan as plan
from .tape.recording import Recording as Recording
from .tape.roofline import Roofline as Roofline
from .tape.tape import Tape as Tape

__version__ = _version("jaxtape")
__dir__ = _public_dir(globals(), "torch")
_without_ynn_fusions()
