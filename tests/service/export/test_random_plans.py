"""Whatever is planned by default can be started as a whole."""

from collections import Counter

import pytest

from sutler.service.documents.plan import PlanDocument, ReplicaDocument
from tests.service.export.random_plans import commands_of, random_plan


def gpus_of(replica: ReplicaDocument) -> int:
    return sum(stage.tensor_parallel for stage in replica.stages)


def gpus_started(words: list[str]) -> int:
    sizes = [int(words[words.index(f"--{kind}-parallel-size") + 1]) for kind in ("tensor", "pipeline")]
    return sizes[0] * sizes[1]


def assert_started_whole(plan: PlanDocument) -> None:
    heads = [words for words in commands_of(plan) if "--headless" not in words]
    assert Counter(map(gpus_started, heads)) == Counter(map(gpus_of, plan.replicas))
    for replica in plan.replicas:
        args = replica.engine_args
        assert replica.engine == "vllm"
        assert int(args["tensor_parallel_size"]) * int(args["pipeline_parallel_size"]) == gpus_of(replica)
        assert {"max_num_seqs", "max_num_batched_tokens", "max_model_len"} <= args.keys()


@pytest.mark.slow
def test_every_replica_of_twenty_default_problems_is_started_on_all_its_gpus() -> None:
    plans = [plan for plan in map(random_plan, range(20)) if plan is not None]
    assert len(plans) > 15
    assert any("--nnodes" in words for plan in plans for words in commands_of(plan))
    for plan in plans:
        assert_started_whole(plan)
