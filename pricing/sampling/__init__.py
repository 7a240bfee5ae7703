from .gaussian import normals as normals
from .gaussian import uniforms as uniforms
from .sampler import AbstractSampler as AbstractSampler
from .sampler import Noise as Noise
from .sampler import PseudoRandom as PseudoRandom
from .sampler import Sobol as Sobol
from .time_grid import refined as refined
