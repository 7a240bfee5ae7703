"""Render self-contained pages from a package's templates, with the style and macros that all pages share."""

from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


def render(package: str, template: str, **context: Any) -> str:
    """Return a page.

    Args:
        package: The package whose folder `templates` holds the template; `style.css` and `macros.html` are
            shared.
        template: The name of the template.
        context: The variables of the template.

    Returns:
        The text of the page.
    """
    pages = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("jaxtape.cli.html")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return pages.get_template(template).render(**context)
