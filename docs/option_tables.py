"""A hook of mkdocs: tables that the commands themselves give.

A block of kind `options` names a command, and becomes the table of its options, by its own `--help`. A block of
kind `groups` becomes the table of the groups of `jaxtape validate`. The page adds what a line has no room for.
"""

import re
from importlib.metadata import entry_points
from typing import Any

from jaxtape.cli.main import Commands

OPTIONS = re.compile(r"^```options\n(\w+)\n```$", re.M)
GROUPS = re.compile(r"^```groups\n```$", re.M)


def on_page_markdown(markdown: str, **others) -> str:
    """Replace each block of a page with its table."""
    del others
    markdown = OPTIONS.sub(lambda found: table(found[1]), markdown)
    return GROUPS.sub(lambda found: group_table(), markdown)


def group_table() -> str:
    """Return the Markdown of the groups of known values: the name, the number of values, the title."""
    lines = ["| group | values | of |", "|---|---|---|"]
    for found in sorted(entry_points(group="jaxtape.validated"), key=lambda found: found.name):
        group = found.load()
        lines.append(f"| `{found.name}` | {len(group.checks())} | {_escaped(group.title)} |")
    return "\n".join(lines)


def table(name: str) -> str:
    """Return the Markdown of a command's arguments and options, in the order of its help."""
    command: Any = Commands().get_command(None, name)  # type: ignore[arg-type]
    lines = ["| option | |", "|---|---|"]
    for param in command.params:
        words = [word for word in (*param.opts, *param.secondary_opts) if word.startswith("--")]
        words = words or [(param.metavar or param.name).upper()]
        shown = ", ".join(f"`{word}`{{.whole}}" for word in words)
        lines.append(f"| {shown} | {_escaped(param.help or '')}{_default(param)} |")
    return "\n".join(lines)


def _default(param: Any) -> str:
    """The text that the help shows, if there is one, or the value."""
    if isinstance(param.show_default, str):
        return f" Default: {_escaped(param.show_default)}."
    if param.default is None or isinstance(param.default, bool | list | tuple):
        return ""
    return f" Default: `{param.default}`."


def _escaped(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;")
