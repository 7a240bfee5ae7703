from ..sampling import Sobol
from .closed_form import ClosedForm as ClosedForm
from .finite_difference import FiniteDifference as FiniteDifference
from .fourier import Fourier as Fourier
from .integral_equation import IntegralEquation as IntegralEquation
from .least_squares import LeastSquares as LeastSquares
from .method import AbstractMethod as AbstractMethod
from .method import Fitted as Fitted
from .method import Prepared as Prepared
from .method import Tiled as Tiled
from .method import Tiling as Tiling
from .method import missing as missing
from .monte_carlo import MonteCarlo as MonteCarlo
from .quadrature import Quadrature as Quadrature

METHODS = (
    ClosedForm(),
    IntegralEquation(),
    Quadrature(),
    Fourier(),
    FiniteDifference(),
    MonteCarlo(16384, sampler=Sobol()),
    LeastSquares(),
)  # the best first
