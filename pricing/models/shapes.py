"""The shapes of a model's numbers, by name."""

from jaxtyping import Array, Complex, Float

Numbers = Float[Array, "..."]
Times = Float[Array, " steps"]
Steps = Float[Array, "steps *assets paths"]
Frequencies = Complex[Array, " nodes"]
Correlation = Float[Array, "assets assets"]
