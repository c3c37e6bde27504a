"""Standing problems, each with its current plan."""
