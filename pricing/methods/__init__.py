from .closed_form import ClosedForm as ClosedForm
from .fourier import Fourier as Fourier
from .method import AbstractMethod as AbstractMethod
from .monte_carlo import MonteCarlo as MonteCarlo

METHODS = (ClosedForm(), Fourier(), MonteCarlo())  # the best first
