"""The same gradient in PyTorch: the same step, with noise given, or redrawn from a seed per node."""

import functools
import importlib.util
import math
import os
from collections.abc import Callable

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # silence the profiler

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint_sequential

from .problems import Problem, payoff
from .timing import Timed


def steps(model_step: Callable, p, dt: float, state, block):
    """Run several nodes, unrolled: the segment body, eager or compiled."""
    for normals in block:
        state = model_step(torch, p, dt, state, normals)
    return state


BY_HAND = "autograd.Function over segments"
compiled_steps = torch.compile(steps, dynamic=False, fullgraph=True)


class Segmented(torch.autograd.Function):
    """A chain cut by hand: forward keeps each segment's first state, backward tapes one segment at a time."""

    @staticmethod
    def forward(ctx, runs, num_state, *inputs):
        state, p = inputs[:num_state], inputs[num_state:]
        kept = []
        for run in runs:
            kept.append(state)
            state = run(p, state)
        ctx.runs, ctx.kept, ctx.p = runs, kept, p
        return state

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *state_bar):
        p_bar = tuple(map(torch.zeros_like, ctx.p))
        for run in reversed(ctx.runs):
            state = tuple(leaf.detach().requires_grad_() for leaf in ctx.kept.pop())
            p = tuple(leaf.detach().requires_grad_() for leaf in ctx.p)
            with torch.enable_grad():
                out = run(p, state)
            bars = torch.autograd.grad(out, (*state, *p), state_bar, materialize_grads=True)
            state_bar = bars[: len(state)]
            p_bar = tuple(map(torch.add, p_bar, bars[len(state) :]))
        return None, None, *state_bar, *p_bar


class Chain:
    """A problem's chain on tensors, which shares JAX's normals, or draws its own."""

    def __init__(self, problem: Problem, source):
        self.problem = problem
        self.generator = torch.Generator(torch.get_default_device())
        self.given = None if problem.noise == "drawn" else torch.from_dlpack(source)
        self.p = [torch.tensor(a, dtype=torch.float64) for a in problem.model.parameters]

    def normals(self, start: int, stop: int):
        """Return the normals of some nodes: a view of those given, or drawn from each node's own seed."""
        if self.given is not None:
            return self.given[start:stop]
        block = torch.empty((stop - start, *self.problem.normals_shape), dtype=torch.float64)
        for k in range(start, stop):
            torch.randn(
                self.problem.normals_shape,
                generator=self.generator.manual_seed(k),
                out=block[k - start],
            )
        return block

    def run(self, p, state, start: int, stop: int, body: Callable = steps):
        """Run the nodes `start` to `stop`."""
        dt = 1.0 / self.problem.steps
        return body(self.problem.model.step, p, dt, state, self.normals(start, stop))

    def gradient(self, last_state: Callable) -> tuple:
        """Return the gradient of the mean payoff, with the chain run by `last_state(p, init)`."""
        p = [leaf.clone().requires_grad_() for leaf in self.p]
        init = self.problem.model.start(torch, p, self.problem.paths)
        return torch.autograd.grad(payoff(torch, last_state(p, init)[0]), p)

    def by_sequential(self, segments: int, p, init):
        """Run `checkpoint_sequential`, with a separate function for every node."""
        nodes = [lambda state, k=k: self.run(p, state, k, k + 1) for k in range(self.problem.steps)]
        return checkpoint_sequential(
            nodes, segments, init, use_reentrant=False, preserve_rng_state=False
        )

    def by_segments(self, body: Callable, p, init):
        """Run the hand-written function over about sqrt(n) segments; a shorter last one stays eager."""
        n = self.problem.steps
        size = math.isqrt(n)

        def segment(start, p, state):
            stop = min(start + size, n)
            return self.run(p, state, start, stop, body if stop - start == size else steps)

        runs = [functools.partial(segment, start) for start in range(0, n, size)]
        return Segmented.apply(runs, len(init), *init, *p)

    def ways(self) -> dict[str, Callable[[], tuple]]:
        """Return the gradient by every way in eager PyTorch."""
        root = math.isqrt(self.problem.steps)
        ways = {
            f"checkpoint_sequential, {s} segments": functools.partial(self.by_sequential, s)
            for s in (root // 2, root, 2 * root)
        }
        ways[BY_HAND] = functools.partial(self.by_segments, steps)
        return {name: functools.partial(self.gradient, way) for name, way in ways.items()}

    def by_compiled(self) -> tuple:
        """Return the gradient by segments under `torch.compile`."""
        return self.gradient(functools.partial(self.by_segments, compiled_steps))

    def by_triton(self) -> tuple:
        """Return the gradient of Heston by a hand-written kernel, on the given normals."""
        from .heston_triton import HandWritten

        problem, dtype = self.problem, torch.float64
        hand = HandWritten(problem.steps, problem.paths, dtype, discounted=False)
        parameters = torch.tensor([*problem.model.parameters, 1.0, 1.0], dtype=dtype)
        return tuple(hand(parameters, self.given)[1:7].tolist())


def has_triton() -> bool:
    """Return True if Triton kernels run here."""
    return torch.get_default_device().type == "cuda" and bool(importlib.util.find_spec("triton"))


def peak_bytes(function: Callable) -> int:
    """Return the peak bytes of PyTorch's allocator during a call.

    On a CPU, it sums in order every allocation and release in PyTorch's profile, including those of compiled
    code. The inputs are allocated before, and do not count.
    """
    if torch.get_default_device().type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        function()
    events = profiler.profiler.kineto_results.events()
    memory = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    live = np.cumsum([size for _, size in memory])
    return int(live.max(initial=0))


class OnThreads(Timed):
    """A PyTorch function on a number of threads, whose results are numbers."""

    def __init__(self, function: Callable[[], tuple], threads: int):
        super().__init__(self._called)
        self.of_tensors, self.threads = function, threads

    def _called(self) -> tuple[float, ...]:
        torch.set_num_threads(self.threads)
        return tuple(map(float, self.of_tensors()))


class TorchRun(OnThreads):
    """A way in PyTorch, warmed up: the extra seconds of its first call, peak bytes, gradient, times.

    Of the given numbers of threads, it uses the one that was fastest in a trial.
    """

    def __init__(self, function: Callable[[], tuple], threads: tuple[int, ...]):
        trials = {count: OnThreads(function, count) for count in threads}
        for trial in trials.values():
            trial.run()
            trial.run()
        super().__init__(function, min(trials, key=lambda count: min(trials[count].seconds)))
        first = trials[threads[0]].seconds
        self.compile_seconds = first[0] - min(first)
        self.temp_bytes = peak_bytes(function)
