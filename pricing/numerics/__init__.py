"""Mathematics that knows no finance."""
