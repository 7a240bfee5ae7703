"""The outputs of nightly runs set beside each other: what is out of bounds."""
