"""How far off the estimates are, told from measured runs: `python -m benchmarks.accuracy FOLDER/serving_dense.csv`.

Flow: benchmarks/measurements.py -> held_out.py (fits that leave groups out) -> correlation.py, coverage.py ->
calibrated.py (after a few runs), simulated.py, other_tables.py, table6.py -> findings.py -> summary.py, report.py.
"""
