"""Why a calibration stopped. The values of the enumeration are the messages."""

from pricing import results


class RESULTS(results.RESULTS):  # pyright: ignore[reportGeneralTypeIssues]
    """Outcome of a calibration: those of a valuation, and these.

    Examples:
        >>> from calibration import RESULTS
        >>> RESULTS[RESULTS.converged][:9]
        'Converged'
    """

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
        "Converged, but some combination of the parameters moves no residual: the quotes do not tell it. "
        "Give more quotes or a prior, or fit fewer parameters."
    )
    too_many_payments = "a swap has more than 60 payments: give SwaptionVolError(legs=...)"
