"""Results of trainings and of evaluations of a solution. The values of the enumeration are the messages."""

from .. import results


class RESULTS(results.RESULTS):  # pyright: ignore[reportGeneralTypeIssues]
    """Results of a training: an enumeration whose values are messages.

    Examples:
        >>> from pricing.fbsde import RESULTS
        >>> RESULTS[RESULTS.non_finite_loss][:24]
        'Lower the learning rate;'
    """

    non_finite_loss = (
        "Lower the learning rate; of a regression, take functions of lower degree, order=1, a wider "
        "initial_dispersion or more paths; or look for infinite values of the problem's functions far out."
    )
    value_at_start_only = (
        "DeepBSDE learns the value at t = 0, x = x0 alone: BackwardDP, OneStepMalliavin and "
        "GradientRegression have it elsewhere."
    )
