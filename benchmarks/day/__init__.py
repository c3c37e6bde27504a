"""A simulated day: a living market, recorded traffic, and ways to keep a fleet right (benchmarks/replanning.py)."""
