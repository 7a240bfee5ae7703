"""Mathematics that knows no contracts."""
