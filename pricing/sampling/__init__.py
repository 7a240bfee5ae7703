from .normals import normals as normals
from .normals import uniforms as uniforms
from .threefry import random_bits as random_bits
from .threefry import threefry_2x32 as threefry_2x32
