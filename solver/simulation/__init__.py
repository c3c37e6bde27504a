"""Event simulation of a plan: replicas under continuous batching, request by request.

Flow: a plan's replicas -> replicas.py, step_times.py -> fleet.py (engine.py, roles.py, routing.py) -> outcome.py ->
summary.py.
"""
