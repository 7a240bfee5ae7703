"""A book of trades: read from a file, checked against a market, turned into batches of products."""
