"""An HTTP service of values and risk: it keeps books, takes moves of quotes, and computes figures once."""
