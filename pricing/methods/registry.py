"""The methods that are tried if the user names none, best first."""

from ..sampling import Sobol
from .closed_form import ClosedForm
from .finite_difference import FiniteDifference
from .fourier import Fourier
from .integral_equation import IntegralEquation
from .least_squares import LeastSquares
from .monte_carlo import MonteCarlo
from .quadrature import Quadrature

METHODS = (
    ClosedForm(),
    IntegralEquation(),
    Quadrature(),
    Fourier(),
    FiniteDifference(),
    MonteCarlo(16384, sampler=Sobol()),
    LeastSquares(),
)
"""The methods that are tried if the user names none, best first."""
