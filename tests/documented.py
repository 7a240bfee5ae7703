"""What README.md and the pages of docs/ show: blocks of code, and the commands that a user types."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def blocks(page: Path, kind: str = "") -> list[str]:
    """The fenced blocks of a kind, such as python; of none, those without one."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.S | re.M)


def commands() -> list[list[str]]:
    """The words of every command that runs `jaxtape`, or a program of one line, each once, in order."""
    lines = [
        line
        for page in PAGES
        for kind in ("", "bash")
        for block in blocks(page, kind)
        for line in block.replace("\\\n", " ").splitlines()
    ]
    typed = [line for line in lines if line.startswith(("jaxtape ", 'python -c "'))]
    return [shlex.split(line, comments=True) for line in dict.fromkeys(typed)]
