from .backward import Rule as Rule
from .backward import fit as fit
from .build import chain_of as chain_of
from .build import lacking as lacking
from .build import usual_degree as usual_degree
from .forward import Samples as Samples
from .forward import follow as follow
