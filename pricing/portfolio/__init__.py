"""Books of trades: read, check against a market, value, explain and stress them."""
