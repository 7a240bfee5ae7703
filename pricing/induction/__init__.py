"""Backward induction over dates by quadrature: exercise, knock-out, American options as lists of dates."""
