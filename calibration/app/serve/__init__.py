"""An HTTP service of values and risk: it stores books, accepts moves of quotes, and caches figures."""
