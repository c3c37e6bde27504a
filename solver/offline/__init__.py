"""Offline applications of several models: which run together, on how many GPUs, one stage after the other.

Flow: application.py, hardware.py -> sampling.py -> costs.py -> search (greedy.py, heuristics.py, improvement.py) ->
execution.py -> plan.py. The problem, its cost model and the greedy search are SamuLLM's (Fang et al., "Improving the
End-to-End Efficiency of Offline Inference for Multi-LLM Applications Based on Sampling and Simulation").
"""
