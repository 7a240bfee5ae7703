"""A hook of mkdocs: each tutorial is also a notebook to download, beside its page.

A tutorial is a Python file in the percent format. The notebook is made of it by jupytext, without outputs, when
the site is built, so that no copy is kept in the repository. RUN_TUTORIALS=0 builds pages without outputs.
"""

import ast
import os
from pathlib import Path

import jupytext
import nbformat


def on_config(config):
    """Run no tutorial where RUN_TUTORIALS=0: a test runs them, too, and reads what they find."""
    if os.environ.get("RUN_TUTORIALS") == "0":
        config.plugins["mkdocs-jupyter"].config["execute"] = False
    return config


def on_page_content(html: str, page, **others) -> str:
    """Put the link to the notebook at the top of a tutorial's page."""
    del others
    source = Path(page.file.abs_src_path)
    if source.suffix != ".py":
        return html
    name = f"{source.stem}.ipynb"
    return f'<p><a href="{name}" download>Download as a notebook ({name})</a></p>\n{html}'


def on_post_page(output: str, page, **others) -> str:
    """Write the notebook of a tutorial beside its page."""
    del others
    source = Path(page.file.abs_src_path)
    if source.suffix == ".py":
        place = Path(page.file.abs_dest_path).with_name(f"{source.stem}.ipynb")
        place.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook(source), place)
    return output


def notebook(source: Path) -> nbformat.NotebookNode:
    """Return the notebook of a tutorial, checked: its cells are the statements of the file.

    Raises:
        ValueError: They are not, so that the notebook would not run as the tutorial does.
    """
    made = jupytext.read(source)
    nbformat.validate(made)
    code = "\n".join(cell.source for cell in made.cells if cell.cell_type == "code")
    if ast.dump(ast.parse(code)) != ast.dump(ast.parse(source.read_text(encoding="utf-8"))):
        raise ValueError(f"{source}: its notebook has other statements than the file")
    return made
