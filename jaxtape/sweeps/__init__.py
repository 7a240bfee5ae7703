"""How a chain is run, keeps states, and is reversed; `run` is what JAX differentiates."""

try:
    from . import checked as checked
    from .rule import run as run
except ImportError:  # VJPHiPrimitive is experimental
    from .reverse_only import run as run
