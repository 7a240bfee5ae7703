"""The exercise dates of a Bermudan as a linked list inside PyTorch, and as a tape."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import torch

import jaxtape as jt


@dataclasses.dataclass
class ExerciseNode:
    """One exercise date, and the value before it in the chain, which is the next date's."""

    index: int
    date: float
    discount_factor: torch.Tensor  # [], from this date to the next
    exercise_value: torch.Tensor  # [paths]
    value: torch.Tensor  # [paths]
    previous: "ExerciseNode | None"  # the node made before this one: a later date


class BackwardInduction(torch.autograd.Function):
    """`value <- max(exercise_value, discount_factor value)`, the latest date first."""

    @staticmethod
    def forward(ctx, value, discount_factors, exercise_values, dates, today):
        node = None
        for k in reversed(range(len(dates))):
            if dates[k] > today:  # as many nodes as there are dates left
                fields = discount_factors[k], exercise_values[k], value
                node = ExerciseNode(k, dates[k], *fields, node)
                value = torch.maximum(node.exercise_value, node.discount_factor * node.value)
        ctx.node = node
        ctx.save_for_backward(discount_factors, exercise_values)
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, value_bar):
        discount_bar, exercise_bar = map(torch.zeros_like, ctx.saved_tensors)
        node = ctx.node
        while node is not None:
            exercised = node.exercise_value > node.discount_factor * node.value
            exercise_bar[node.index] = torch.where(exercised, value_bar, 0.0)
            held_bar = torch.where(exercised, 0.0, value_bar)
            discount_bar[node.index] = torch.sum(held_bar * node.value)
            value_bar = held_bar * node.discount_factor
            node = node.previous
        return value_bar, discount_bar, exercise_bar, None, None


def by_list(value, discount_factors, exercise_values, dates, today):
    """The value today, [paths], by the linked list."""
    return BackwardInduction.apply(value, discount_factors, exercise_values, dates, today)


def exercise(node, value):
    """One exercise date."""
    return jnp.maximum(node["exercise_value"], node["discount_factor"] * value)


def make_tape(discount_factors, exercise_values, dates, today):
    """The dates left, the latest first, as a tape."""
    left = np.flatnonzero(dates > today)[::-1]
    nodes = {"discount_factor": discount_factors[left], "exercise_value": exercise_values[left]}
    return jt.Tape().append(exercise, nodes)


def by_tape(value, discount_factors, exercise_values, dates, today, schedule=None):
    """The value today, [paths], by the tape."""
    tape = make_tape(discount_factors, exercise_values, dates, today)
    return tape.with_schedule(schedule or jt.StoreAll())(value)


def make_inputs(num_dates=12, paths=1000):
    """A put on a lognormal spot: value after the last date, discount and exercise values; the dates."""
    dates = np.arange(1, num_dates + 1) / num_dates
    noise = np.random.default_rng(0).standard_normal((num_dates, paths))
    spots = 100.0 * np.exp(np.cumsum(0.2 * np.sqrt(dates[0]) * noise, axis=0))
    discount_factors = np.exp(-0.05 * dates[0] * np.linspace(0.5, 1.5, num_dates))
    return (np.zeros(paths), discount_factors, 100.0 - spots), dates
