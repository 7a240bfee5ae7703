"""The platform that programs are traced for: the current one, or the target that they are lowered for."""

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar

import jax

_lowered_for: ContextVar[frozenset[str]] = ContextVar("lowered_for", default=frozenset())


def current_platform() -> str:
    """Return the current platform: that of JAX's default device."""
    device = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    return device.platform if isinstance(device, jax.Device) else jax.default_backend()


def platforms_in_use() -> frozenset[str]:
    """Return the platforms that a program traced now is for: the current one, except within `traced_for`."""
    return _lowered_for.get() or frozenset({current_platform()})


@contextlib.contextmanager
def traced_for(platforms: Sequence[str]) -> Iterator[None]:
    """Trace functions for other platforms within the block."""
    if frozenset(platforms) == platforms_in_use():
        yield
        return
    token = _lowered_for.set(frozenset(platforms))
    jax.clear_caches()  # traces made for the current platform do not apply
    try:
        yield
    finally:
        _lowered_for.reset(token)
        jax.clear_caches()
