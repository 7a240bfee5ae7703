"""Refuse phrases that a reader has to decode, in docstrings, messages, `--help`, templates and pages.

`python -m tests.plain_english [FILE ...]` prints FILE:LINE: phrase (what to write instead), and exits with 1 if
there is one. The plain word comes first: subject, verb, object; the field's term; one idea a sentence.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent

OPENINGS = {
    r"(Return|Say|Tell) (what|how|whether|why|where|when|which|who|if|by)\b": "name the thing that is returned",
    r"Who |What |How |Which |Where |Why |Between what ": "state it; do not ask",
}
"""What no docstring begins with."""

ARGUMENTS = {
    r"(Of|As in|As for|As of|In work|That of|Those of)\b": "say what it is",
    r"(What|How|Which|Where|Why|Who)\b": "say what it is",
}
"""What no description of an argument begins with."""

PHRASES = {
    r"\btold\b|\btells?\b": "given, reported, shown; distinguishes",
    r"\banew\b": "again",
    r"\bso many (?!as\b)|\bas many (?!$|(\w+ ){0,3}as\b)": "the number",
    r"\bgo(es)? on\b": "continue, resume",
    r"\bhand(s|ed)? (on|in|over)\b": "pass, return",
    r"\b(is|are) said\b": "reported, named",
    r"\bstands? (in )?for\b": "replaces, means",
    r"\bno news\b": "does not matter",
    r"\bof one's own\b": "custom",
    r"\bis had\b|\bare had\b|\bto be had\b": "available",
    r"\bAs in `\w": "say it again, or name the argument",
    r"\bkept as (a|that|the) code\b": "stored as",
    r"\bnot decreasing\b": "non-decreasing",
    r"\b(an?|one|each) (row|column|line) an? \w|\ban? \w+ a (row|column|line)\b": "one row per expiry",
    r"\banother (word|function|number|value) is another program\b": "changing it recompiles",
    r"\b(is|are) looked at\b": "checked, used",
    r"\bbut for\b": "except",
    r"\b(one|two|three) (or more )?at least\b": "at least two",
    r"\blaws? of (its|their) own\b": "its own distribution",
    r"\bto checkers of types\b": "to type checkers",
    r"\bstands? (twice|first|last|alone|there)\b": "appears twice, is first",
    r"(?<!here )\b(is|are) no (?!longer|more|less|later|earlier|faster|better|worse)[a-z]": "is not a",
    r"\b(of|in) (very )?many,? the\b": "name the thing counted",
    r"\bin the place of\b|\bfor want of\b": "instead of, without",
    r"\bmend(s|ed|ing)?\b": "fix, correct",
    r"\bdearest\b|\bquick(er|est)\b": "most expensive; faster, fastest",
    r"\bthe reasons? for which\b": "the reason why",
    r"\bso manieth\b": "every n-th",
    r"\b(is|are) not waited for\b|\b(has|have) no word\b": "do not wait for; lacks",
    r"\bon the disk\b": "on disk",
    r"\bbeside (what|that of|those of)\b": "compared with",
}
"""What no docstring, message, help text or page holds."""

PACKAGES = "jaxtape", "pricing", "calibration", "benchmarks"
_SUFFIXES = ".py", ".md", ".html", ".toml"
_ENTRY = re.compile(r"^ {4,}(\w+): (.*)$")


def texts_of(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield the line, the text, and whether it is a docstring, of each text in a Python file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                docstrings.add(first.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value, node in docstrings


def without_code(line: str) -> str:
    """Remove what stands between backticks, and examples."""
    return "" if line.lstrip().startswith((">>>", "...")) else re.sub(r"`[^`]*`", "`x`", line)


def refused_in(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the phrase and the advice for each refused phrase of a file."""
    if path.suffix != ".py":
        text = re.sub(
            r"```.*?```",
            lambda m: "\n" * m[0].count("\n"),
            path.read_text(encoding="utf-8"),
            flags=re.DOTALL,
        )
        texts = [(1, text, False)]
    else:
        texts = texts_of(path)
    for start, text, is_docstring in texts:
        lines = text.splitlines()
        for offset, line in enumerate(lines):
            plain, at = without_code(line), start + offset
            for pattern, advice in PHRASES.items():
                for match in re.finditer(pattern, plain if "`" not in pattern else line):
                    yield at, match[0], advice
            if not is_docstring:
                continue
            entry = _ENTRY.match(line)
            begins = line if offset == 0 else entry[2] if entry else ""
            for pattern, advice in (OPENINGS if offset == 0 else ARGUMENTS).items():
                if match := re.match(pattern, begins):
                    yield at, match[0], advice


def main(names: list[str]) -> int:
    """Print each refused phrase of the files, or of all that git tracks; return the exit status."""
    if not names:
        patterns = [*PACKAGES, "README.md", "CONTRIBUTING.md", "docs"]
        listed = subprocess.run(
            ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
        )
        names = [name for name in listed.stdout.split() if name.endswith(_SUFFIXES)]
    found = [(name, *one) for name in names for one in refused_in(ROOT / name)]
    for name, line, phrase, advice in found:
        print(f"{name}:{line}: {phrase!r} ({advice})")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
