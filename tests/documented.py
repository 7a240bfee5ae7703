"""What README.md and the pages of docs/ show: blocks of code, and the commands that a user types."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
TUTORIALS = tuple(sorted((ROOT / "docs" / "tutorials").glob("*.py")))
WALKTHROUGHS = tuple(sorted((ROOT / "docs" / "walkthroughs").glob("*.md")))
PAGES = (README, *sorted((ROOT / "docs").glob("*.md")), *WALKTHROUGHS, *TUTORIALS)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
PLACEHOLDERS = {"NAME", "…"}  # what makes a command a form, which nobody types as it stands


def text_of(page: Path) -> str:
    """The Markdown of a page; of a tutorial, what stands behind the marks of its comments."""
    text = page.read_text(encoding="utf-8")
    return "\n".join(re.findall("^# (.*)$", text, re.M)) if page.suffix == ".py" else text


def blocks(page: Path, kind: str = "") -> list[str]:
    """The fenced blocks of a kind, such as python; of none, those without one."""
    return [block for name, block in FENCED.findall(text_of(page)) if name == kind]


def typed(page: Path) -> list[str]:
    """The lines of the blocks of a shell, continued ones as one."""
    text = "".join(blocks(page) + blocks(page, "bash")).replace("\\\n", " ")
    return [line.removeprefix("time ") for line in text.splitlines()]


def inline(page: Path, start: str) -> list[str]:
    """The code within lines that starts so, each on one line."""
    found = re.findall(rf"`({start}[^`]*)`", FENCED.sub("", text_of(page)))
    return [" ".join(code.split()) for code in found]


def commands() -> list[list[str]]:
    """The words of every command that runs `jaxtape`, or a program of one line, each once, in order.

    A fenced one is whole. So is one within a line, unless it has a placeholder; the name of a command
    alone is asked for its help.
    """
    found = []
    for page in PAGES:
        lines = [line for line in typed(page) if line.startswith(("jaxtape ", 'python -c "'))]
        found += [shlex.split(line, comments=True) for line in lines]
        for words in map(shlex.split, inline(page, "jaxtape ")):
            if not PLACEHOLDERS & set(words):
                alone = len(words) == 2 and words[1].isalpha()
                found.append([*words, "--help"] if alone else words)
    return [list(words) for words in dict.fromkeys(map(tuple, found))]
