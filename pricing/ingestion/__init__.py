from .errors import InputError as InputError
from .errors import UnreadableFile as UnreadableFile
