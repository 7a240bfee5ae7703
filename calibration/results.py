"""Results of a calibration, as an enumeration whose values are the messages."""

from pricing import results


class RESULTS(results.RESULTS):  # pyright: ignore[reportGeneralTypeIssues]
    """Outcome of a calibration: the results of a valuation, and these."""

    converged = "Converged: the gradient vanishes to the tolerance, or a step no longer matters."
    max_steps_reached = (
        "Stopped at max_steps before converging. "
        "Give more max_steps, another start or num_starts > 1."
    )
    non_finite_residual = (
        "A residual or a derivative is not finite. "
        "Check the quotes, and start from other parameters."
    )
    not_a_minimum = (
        "Ended where the loss has no minimum: its second derivative is not positive, or its gradient does not "
        "vanish. Start from other parameters, or fit fewer of them."
    )
    not_identified = (
        "Not identified: some combination of the parameters moves no residual by more than noise: "
        "the quotes do not determine it. A weak prior holds it near its start. "
        "Give more quotes or a prior, or fit fewer parameters."
    )
    inaccurate_integral = (
        "The residuals are off by more than 1e-7 at the optimum: the Fourier integral has too few nodes. "
        "Give an objective with more num_nodes."
    )
    too_few_quotes = (
        "There are fewer quotes than free parameters. "
        "Give more quotes, or fit fewer parameters by transform=."
    )
    too_many_payments = "a swap has more than 60 payments: give SwaptionVolError(legs=...)"


class REASONS(RESULTS):  # pyright: ignore[reportGeneralTypeIssues]
    """Criterion that ended a search: those of `RESULTS`, and finer ones.

    Instead of `RESULTS.converged`: the residuals or the gradient vanish, or a step no longer matters. Instead
    of `RESULTS.max_steps_reached`, a parameter may be at its bound.
    """

    residuals_vanish = "The residuals vanish: the model reproduces every quote to rounding."
    gradient_vanishes = "The gradient vanishes: the slope in every parameter is zero to rounding."
    parameter_at_bound = (
        "A parameter has run to the end of its range, and the quotes would move it farther. "
        "Hold it, by transform=, or give other quotes."
    )
    step_no_longer_matters = (
        "A step no longer matters: "
        "a Gauss-Newton step would lower the loss by less than rtol of it."
    )
