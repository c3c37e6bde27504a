"""How fast an application could be at best: the proof beside every offline plan.

Flow: Costs -> lower_bound (here) -> plan.py. Both bounds hold for every schedule that the simulation can run.

- Area. A request takes at least  tp (P prompt + attention(prompt) + sum over its tokens of (F + S context))
  GPU-seconds, whatever it is batched with, for all P and F of which no step takes less than P for each of its tokens
  of prompts and F for each other one; S = min_b per_token(b) / b over batches b. Of a row of P the best is taken, and
  the largest F to it. A model is loaded once at least. The sum over all models of the least over tp, spread over all
  GPUs without a gap, is no later than the end.
- Critical path. A request cannot end sooner than the latest of those that it waits for, or than its model is loaded,
  plus its own prompt and tokens alone in a replica of the fastest tp. Where weights are downloaded, its own come
  before that, and those of all models before the one that comes last.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.offline.costs import Costs, Shard
from sutler.solver.offline.execution import BEGINNING, Start
from sutler.solver.offline.plan import LowerBound

SPLITS: Final = 17  # chosen: with more the bound is higher by less than a per cent


def lower_bound(costs: Costs, start: Start = BEGINNING) -> LowerBound:
    """Bounds the time of the whole application, or of what is left at `start`: then no model that is up is loaded,
    all may have been downloaded, and a request that has begun to write needs its prompt no more. Both bounds count
    from the start of the application."""
    pile = costs.pile
    gpu_s, alone_s, load_s = 0.0, np.zeros(len(pile)), np.zeros(len(pile))
    left = np.ones(len(pile), dtype=np.bool_)
    left[list(start.finished)] = False
    written = np.zeros(len(pile), dtype=np.int64)
    written[list(start.written)] = list(start.written.values())
    up = {replica.node for replica in start.replicas}
    for node, shards in enumerate(costs.shards):
        numbers = pile.of_node(node)
        numbers = numbers[left[numbers]]
        if not len(numbers):
            continue
        inputs = np.where(written[numbers] > 0, 0, pile.input_tokens[numbers])
        outputs = pile.output_tokens[numbers] - written[numbers]
        gpu_s += min(
            degree * ((0.0 if node in up else shard.load_s) + _least_s(shard, inputs, outputs))
            for degree, shard in shards.items()
        )
        alone_s[numbers] = np.min([_alone_s(shard, inputs, outputs) for shard in shards.values()], axis=0)
        fetch_s = 0.0 if start.at_s else costs.download_s(node)
        load_s[numbers] = 0.0 if node in up else fetch_s + min(shard.load_s for shard in shards.values())
    path_s = max(_longest_path_s(costs, alone_s, load_s), 0.0 if start.at_s else _last_download_s(costs, alone_s))
    return LowerBound(start.at_s + gpu_s / costs.hardware.gpus, start.at_s + path_s)


def _least_s(shard: Shard, inputs: IntArray, outputs: IntArray) -> float:
    """The least seconds on each GPU of the group, of all requests together."""
    times = shard.times
    batches = np.arange(1.0, times.max_sequences + 1)
    fixed = np.array([lines[0].fixed_s for lines in times.decode[1:]])
    slope = (np.array([lines[0].per_token_s for lines in times.decode[1:]]) / batches).min()
    tokens, products = np.array(times.tokens), np.array(times.products_s[0])
    attention = _of_prompts(shard, inputs, times.attention_s[0]).sum()
    prompt_tokens, steps = float(inputs.sum()), float((outputs - 1).sum())
    # Step times are linear between the counts of tokens, so the least ratios are at these, or without any prompt.
    beside = fixed - np.interp(batches, tokens, products)
    more = np.maximum(tokens[:, None] - batches, 0.0)
    whole = np.where(more > 0, products[:, None] + beside, fixed)
    some = tokens > 0
    most = float(((products + times.once_s[0])[some] / tokens[some]).min())
    each = [(prompt_s, ((whole - prompt_s * more) / batches).min()) for prompt_s in np.linspace(0.0, most, SPLITS)]
    best = max(prompt_tokens * prompt_s + steps * step_s for prompt_s, step_s in each)
    return float(best + attention + _tokens_s(inputs, outputs, 0.0, slope).sum())


def _of_prompts(shard: Shard, inputs: IntArray, table: Sequence[float]) -> FloatArray:
    """A table's entry for each prompt; 0 where there is none."""
    return np.where(inputs > 0, np.interp(inputs.astype(np.float64), shard.times.tokens, table), 0.0)


def _alone_s(shard: Shard, inputs: IntArray, outputs: IntArray) -> FloatArray:
    """The seconds from arrival to last token, by request [n], with the replica to itself."""
    fixed = min(lines[0].fixed_s for lines in shard.times.decode[1:])
    slope = min(lines[0].per_token_s for lines in shard.times.decode[1:])
    through = np.array([shard.times.prefill_s(float(prompt))[0] if prompt else 0.0 for prompt in inputs])
    return np.asarray(through + _tokens_s(inputs, outputs, fixed, slope))


def _tokens_s(inputs: IntArray, outputs: IntArray, fixed_s: float, per_token_s: float) -> FloatArray:
    """The tokens after the first: token k of them sees the prompt and k - 1 others (solver/simulation/engine.py)."""
    steps = (outputs - 1).astype(np.float64)
    contexts = steps * inputs + steps * (steps + 1) / 2
    return np.asarray(steps * fixed_s + max(per_token_s, 0.0) * contexts)


def _longest_path_s(costs: Costs, alone_s: FloatArray, load_s: FloatArray) -> float:
    pile = costs.pile
    end_s = load_s + alone_s
    starts, parents = pile.parent_start.tolist(), pile.parents.tolist()
    ends, alone, loads = end_s.tolist(), alone_s.tolist(), load_s.tolist()
    for node in costs.order:
        for request in pile.of_node(node).tolist():
            waits = parents[starts[request] : starts[request + 1]]
            if waits:
                ends[request] = max(loads[request], *(ends[parent] for parent in waits)) + alone[request]
    return max(ends, default=0.0)


def _last_download_s(costs: Costs, alone_s: FloatArray) -> float:
    """Some model is downloaded last on its host, after all others that have requests; it is loaded and answers."""
    nodes = [node for node in range(len(costs.shards)) if len(costs.pile.of_node(node))]
    if not nodes or costs.hardware.hosts > 1:  # not every host needs every model
        return 0.0
    after_s = min(
        min(shard.load_s for shard in costs.shards[node].values()) + float(alone_s[costs.pile.of_node(node)].max())
        for node in nodes
    )
    downloads_s = sum(costs.download_s(node) for node in nodes)
    return downloads_s + after_s if downloads_s else 0.0
