"""The Triton kernel by hand has PyTorch's gradient, as Triton interprets it; skipped without Triton."""

import pytest


@pytest.mark.parametrize("discounted", [True, False])
def test_gradient(discounted, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from benchmarks.heston_scheme import PARAMETERS, STRIKE, payoff, step
    from benchmarks.heston_triton import HandWritten

    steps, paths = 6, 256
    spot, variance, speed, level, vol_of_vol, correlation, rate = PARAMETERS
    given = [rate, variance, speed, level, vol_of_vol, correlation, spot, STRIKE]
    noise = torch.randn(steps, 2, paths, dtype=torch.float64)
    hand = HandWritten(steps, paths, torch.float64, discounted)
    value, rate_bar, *others, spot_bar = hand(torch.tensor(given, dtype=torch.float64), noise)

    p = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in PARAMETERS]
    state = torch.zeros(paths, dtype=torch.float64), p[1].expand(paths)
    for first, second in noise:
        state = step(torch, p, 1.0 / steps, state, first, second)
    held = p if discounted else [*p[:6], torch.zeros(())]
    expected = payoff(torch, held, state[0]).mean()
    gradient = torch.autograd.grad(expected, p)
    torch.testing.assert_close(value, expected.detach(), rtol=1e-12, atol=0.0)
    found = torch.stack([spot_bar, *others, rate_bar])
    torch.testing.assert_close(found, torch.stack(gradient), rtol=1e-10, atol=1e-12)
