"""The tape: an immutable list of segments, with edits, schedules and plans."""
