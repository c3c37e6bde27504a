"""Replicas that run already, benchmarked: whether the rates that a plan rests on are true.

Flow: plan document, addresses -> targets.py -> load.py (requests by engine.py) -> BenchmarkRun -> service/profiles.

Why not `vllm bench serve`: it needs vLLM and the model's tokenizer where it runs, several GB on a laptop that only
sends requests. Prompts of token ids (https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html,
https://docs.sglang.ai/basic_usage/openai_api_completions.html) have exact lengths without either.
"""
