"""How a computation ended. The values of the enumeration are the messages."""

import equinox as eqx


class RESULTS(eqx.Enumeration):
    """Outcome of a numerical computation; those of calibrations and of trainings are subclasses."""

    successful = ""
    non_finite = (
        "The value is not finite. Check the model's parameters and the product's numbers for extremes; "
        "another method may reach them."
    )
