"""Times one transformer layer on the machine at hand, with PyTorch alone: random weights, no model and no engine.

Flow: shapes.py (what is timed) -> measure.py (the loop) -> layer.py, timing.py, all_reduce.py -> outcomes, one per
measurement. device.py alone imports torch, lazily: it is an optional dependency. The service writes the outcomes
down and shows them.
"""
