"""Run a chain, keep states, and reverse it; JAX differentiates `run`."""

try:
    from . import checked as checked
    from .rule import run as run
except ImportError:  # VJPHiPrimitive is experimental
    from .reverse_only import run as run
