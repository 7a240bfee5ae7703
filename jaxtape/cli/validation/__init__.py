"""Known values beside the library's, and the command `jaxtape validate`."""

from .reference import Found as Found
from .reference import Group as Group
from .reference import Reference as Reference
from .reference import Table as Table
from .reference import Verdict as Verdict
from .reference import verdicts_of as verdicts_of
from .reference_tables import read_tables as read_tables
