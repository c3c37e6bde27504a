"""Replaying a plan before money is spent: traffic in, latencies, goodput and load out.

Flow: a plan and traffic.py -> simulated.py (which asks solver/simulation) -> schemas.py; figures.py draws.
"""
