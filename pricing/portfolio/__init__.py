"""A book of trades: read, checked against a market, put into tiles, valued, explained, and stressed."""
