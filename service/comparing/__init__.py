"""Sutler beside every other way to plan: strategies run on one problem, their results as one document and figure.

Flow: solver/strategies -> compared.py (and sweeping.py, at several budgets or loads) -> the comparison document ->
figures.py and service/cli/views/comparison.py.
"""
