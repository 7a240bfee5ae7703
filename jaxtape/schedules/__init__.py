"""Schedules, which choose the states to keep and to recompute, and their tables."""

from .table import ScheduleTable as ScheduleTable
from .table import block_table as block_table
from .table import revolve_table as revolve_table
