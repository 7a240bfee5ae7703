from .errors import InputError as InputError
from .errors import UnreadableFile as UnreadableFile
from .errors import listed as listed
from .errors import show as show
from .fields import closest as closest
from .fields import number as number
from .locator import Locator as Locator
