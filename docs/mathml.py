"""A hook of mkdocs: formulas become MathML, which browsers draw without a script or a font from elsewhere."""

import re
from html import unescape

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(html: str, **_) -> str:
    """Replace each formula that pymdownx.arithmatex has found, `$...$` or `$$...$$`."""
    return _FORMULA.sub(_mathml, html)


def _mathml(found: re.Match) -> str:
    display = "block" if found[2] == "[" else "inline"
    formula = convert(unescape(found[3]).strip(), display=display)
    return f'<div class="formula">{formula}</div>' if display == "block" else formula
