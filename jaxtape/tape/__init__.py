"""The tape: an immutable list of segments, its edits, its schedule and its plan."""
