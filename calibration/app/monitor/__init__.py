"""Compare the outputs of nightly runs, with alarms for values out of bounds."""
