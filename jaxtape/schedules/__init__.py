"""What is kept and what is recomputed: schedules, and the tables that they lay out."""
