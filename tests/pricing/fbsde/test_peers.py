"""What the benchmarks set beside our solvers computes what it says."""

import numpy as np
import pytest

from benchmarks import one_step_malliavin


def test_a_loop_over_dates_and_one_product_have_the_same_loss():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[torch]'")
    from benchmarks import deep_bsde_torch

    torch.manual_seed(0)
    net = deep_bsde_torch.Net()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    dw = deep_bsde_torch.DT**0.5 * torch.randn(deep_bsde_torch.STEPS, 64, deep_bsde_torch.DIM)
    mean, unit = torch.tensor(0.05), torch.tensor(0.01)
    losses, slopes = [], []
    for loss_of in (deep_bsde_torch.plain_loss, deep_bsde_torch.batched_loss):
        loss = loss_of(net, mean, unit, dw)
        losses.append(loss.item())
        slopes.append(torch.autograd.grad(loss, [net.y0, net.level, net.last.weight]))
    np.testing.assert_allclose(*losses, rtol=1e-5)
    for plain, batched in zip(*slopes, strict=True):
        np.testing.assert_allclose(plain, batched, rtol=1e-3, atol=1e-4 * float(plain.abs().max()))


def test_derivatives_of_the_known_solution():
    """Against central differences, and the published value."""
    known, shift, x = one_step_malliavin.known, 1e-3, np.linspace(-1.0, 1.0, 5)
    ahead = [known(0.5, x + shift * row) for row in np.eye(5)]
    behind = [known(0.5, x - shift * row) for row in np.eye(5)]
    delta, gamma = (
        [
            (getattr(a, of) - getattr(b, of)) / (2.0 * shift)
            for a, b in zip(ahead, behind, strict=True)
        ]
        for of in ("value", "delta")
    )
    np.testing.assert_allclose(known(0.5, x).delta, delta, rtol=1e-5)
    np.testing.assert_allclose(known(0.5, x).gamma, gamma, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(known(0.0, np.zeros(100)).value, 4.59016172, rtol=1e-8)
