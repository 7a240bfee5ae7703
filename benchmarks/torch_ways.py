"""The same gradient in PyTorch: the same step, and noise given or drawn anew from a seed a node."""

import functools
import math
import os
import shutil
import time
from collections.abc import Callable

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler says when it starts and stops
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # or its threads spin while JAX's rows run

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint_sequential

from .problems import Problem, payoff


def steps(model_step: Callable, p, dt: float, state, block):
    """A run of nodes, written out: the segment body, eager or compiled."""
    for normals in block:
        state = model_step(torch, p, dt, state, normals)
    return state


BY_HAND = "autograd.Function over segments"
compiled_steps = torch.compile(steps, dynamic=False, fullgraph=True)


def has_compiler() -> bool:
    """Whether there is a C++ compiler, which `torch.compile` needs."""
    return any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++")))


class Segmented(torch.autograd.Function):
    """A chain cut by hand: forward keeps the first state of every segment, backward tapes one at a time."""

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
    """A problem's chain on tensors: it shares JAX's normals, or draws its own."""

    def __init__(self, problem: Problem, source):
        self.problem, self.generator = problem, torch.Generator()
        self.given = None if problem.noise == "drawn" else torch.from_dlpack(source)
        self.p = [torch.tensor(a, dtype=torch.float64) for a in problem.model.parameters]

    def normals(self, start: int, stop: int):
        """The normals of some nodes: a view of those given, or drawn, each node's from its own seed."""
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
        """Nodes `start` to `stop`."""
        dt = 1.0 / self.problem.steps
        return body(self.problem.model.step, p, dt, state, self.normals(start, stop))

    def gradient(self, last_state: Callable) -> tuple:
        """The gradient of the mean payoff, the chain run by `last_state(p, init)`."""
        p = [leaf.clone().requires_grad_() for leaf in self.p]
        init = self.problem.model.start(torch, p, self.problem.paths)
        return torch.autograd.grad(payoff(torch, last_state(p, init)[0]), p)

    def by_sequential(self, segments: int, p, init):
        """`checkpoint_sequential`; every node is a function of its own."""
        nodes = [lambda state, k=k: self.run(p, state, k, k + 1) for k in range(self.problem.steps)]
        return checkpoint_sequential(
            nodes, segments, init, use_reentrant=False, preserve_rng_state=False
        )

    def by_segments(self, body: Callable, p, init):
        """The hand-made function over about sqrt(n) segments; a shorter last one stays eager."""
        n = self.problem.steps
        size = math.isqrt(n)

        def segment(start, p, state):
            stop = min(start + size, n)
            return self.run(p, state, start, stop, body if stop - start == size else steps)

        runs = [functools.partial(segment, start) for start in range(0, n, size)]
        return Segmented.apply(runs, len(init), *init, *p)

    def ways(self) -> dict[str, Callable[[], tuple]]:
        """The gradient by every way in eager PyTorch."""
        root = math.isqrt(self.problem.steps)
        ways = {
            f"checkpoint_sequential, {s} segments": functools.partial(self.by_sequential, s)
            for s in (root // 2, root, 2 * root)
        }
        ways[BY_HAND] = functools.partial(self.by_segments, steps)
        return {name: functools.partial(self.gradient, way) for name, way in ways.items()}

    def by_compiled(self) -> tuple:
        """The gradient by segments under `torch.compile`."""
        return self.gradient(functools.partial(self.by_segments, compiled_steps))


def peak_bytes(function: Callable) -> int:
    """The most bytes that were live at once of those PyTorch's CPU allocator gave out while it ran.

    Every allocation and release, as PyTorch's profiler records them, compiled code's too, added up in
    order. The inputs were there before, and do not count.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        function()
    events = profiler.profiler.kineto_results.events()
    memory = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    live = np.cumsum([size for _, size in memory])
    return int(live.max(initial=0))


class TorchRun:
    """A way in PyTorch, warm: seconds of its first call beyond a later one, peak bytes, gradient, times.

    It runs on as many threads, of the numbers given, as were quickest in a trial.
    """

    def __init__(self, function: Callable[[], tuple], threads: tuple[int, ...]):
        self.function, self.seconds, best, first = function, [], {}, None
        for self.threads in threads:
            cold = self._time()
            first = cold if first is None else first
            best[self.threads] = min(cold, self._time())
        self.threads = min(best, key=best.get)
        self.compile_seconds = first - best[threads[0]]
        self.temp_bytes = peak_bytes(function)

    def run(self) -> None:
        self.seconds.append(self._time())

    def _time(self) -> float:
        torch.set_num_threads(self.threads)
        start = time.perf_counter()
        out = self.function()
        seconds = time.perf_counter() - start
        self.out = tuple(map(float, out))
        return seconds
