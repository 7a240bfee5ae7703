"""A hook of mkdocs: a block of kind `options` becomes the table of a command's options, by its own `--help`.

The block names the command. The page says beside it what a line of help has no room for.
"""

import re
from typing import Any

from jaxtape.cli.main import Commands

BLOCK = re.compile(r"^```options\n(\w+)\n```$", re.M)


def on_page_markdown(markdown: str, **others) -> str:
    """Replace each block of a page with its table."""
    del others
    return BLOCK.sub(lambda found: table(found[1]), markdown)


def table(name: str) -> str:
    """Return the Markdown of a command's arguments and options, in the order of its help."""
    command: Any = Commands().get_command(None, name)  # type: ignore[arg-type]
    lines = ["| option | default | |", "|---|---|---|"]
    for param in command.params:
        words = [word for word in (*param.opts, *param.secondary_opts) if word.startswith("--")]
        shown = (
            ", ".join(f"`{word}`" for word in words) or f"`{(param.metavar or param.name).upper()}`"
        )
        lines.append(f"| {shown} | {_default(param)} | {_escaped(param.help or '')} |")
    return "\n".join(lines)


def _default(param: Any) -> str:
    """The text that the help shows, if there is one, or the value."""
    if isinstance(param.show_default, str):
        return _escaped(param.show_default)
    if param.default is None or isinstance(param.default, bool | list | tuple):
        return ""
    return f"`{param.default}`"


def _escaped(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;")
