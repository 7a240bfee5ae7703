from .errors import InputError as InputError
from .errors import UnreadableFile as UnreadableFile
from .errors import listed as listed
from .errors import show as show
from .field_types import closest as closest
from .field_types import number as number
from .locator import Locator as Locator
