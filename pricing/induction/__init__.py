"""Backward induction over dates by quadrature: exercise, knock-out, American options by extrapolation."""

from .exercise import CashFlow as CashFlow
from .exercise import Exercise as Exercise
from .exercise import cash_flows as cash_flows
from .exercise import induction as induction
from .exercise import nothing_later as nothing_later
