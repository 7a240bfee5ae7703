"""`jaxtape compile`: compile a function for an accelerator that is not attached."""

import json
from typing import Annotated, Any

import typer

from ..programs.compile_for import TargetCompiler
from .main import SOME_FAILED, Precision, configure, refuse
from .user_code import as_value_error, load_object

TARGET = typer.Option(
    help="Accelerators to compile for: tpu:v5e:2x2, tpu:v5e:16x16, gpu:h100, gpu:h100:8, ..."
)


def compile_command(
    name: Annotated[str, typer.Argument(help="The function: FILE.py:NAME or module:NAME.")],
    target: Annotated[str, TARGET],
    inputs: Annotated[
        str | None,
        typer.Option(
            help="Its inputs, FILE.py:NAME: a tuple of arrays or shapes, or a function that returns one."
        ),
    ] = None,
    precision: Annotated[
        Precision, typer.Option(help="Floating-point precision.")
    ] = Precision.single,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Compile a function for a TPU or a GPU that need not be attached, and print its compiler's report.

    Exit status: 0; 1 if it does not compile or does not fit; 2 if nothing could be compiled.

    Raises:
        Exit: If it does not compile, or does not fit.
    """
    configure(precision, hosts_too=True)
    try:
        with compiler_for(target) as compiler:
            function = load_object(name)
            given = load_object(inputs) if inputs else ()
            with as_value_error(f"{name}: cannot be traced", "give a function of JAX's arrays"):
                arguments: Any = given() if inputs and callable(given) else given
                report = compiler.compile(function, *arguments)
    except ValueError as error:
        refuse(str(error))
    print(json.dumps(report.as_json(), indent=1) if as_json else report)
    if not report.fits:
        raise typer.Exit(SOME_FAILED)


def compiler_for(target: str) -> TargetCompiler:
    """Return the compiler of a target, or refuse."""
    try:
        return TargetCompiler(target)
    except (ImportError, ValueError) as error:
        refuse(f"--{error}")
