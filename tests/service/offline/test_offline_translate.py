"""Applications, hardware and options as the solver gets them; what only catalogue and graph can refuse."""

from typing import Any

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.offline.counts import item_counts
from sutler.solver.errors import InvalidProblemError, UnknownNameError
from sutler.solver.offline.application import Drawn, Edge, LengthDistribution, Recorded
from sutler.solver.offline.hardware import Island, one_node
from sutler.solver.offline.plan import OfflineOptions
from sutler.solver.offline.sampling import sample
from tests.service.builders import a_snapshot, an_inline_model, changed
from tests.service.offline.builders import (
    a_reader,
    a_writer,
    an_application,
    an_asker,
    an_edge,
    translated,
)


def test_models_and_edges_become_nodes() -> None:
    translation = translated()
    summary, judge = translation.application.nodes
    assert (summary.spec.id, summary.precision, summary.kv_precision) == ("llama-2-13b", "fp16", "fp16")
    assert summary.requests == Drawn(
        10, LengthDistribution.always(1000), LengthDistribution((1, 2, 3), (1 / 3, 2 / 3, 1.0))
    )
    assert (summary.output_tokens, summary.max_output_tokens) == (LengthDistribution.always(200), 900)
    assert (judge.requests, judge.prompt_tokens, judge.weights_gb) == (None, LengthDistribution.always(300), None)
    assert translation.application.edges == (
        Edge("summary", "summary"),
        Edge("summary", "judge", copies=4),
    )
    assert translation.notes == ()


def test_pairs_of_gpus_become_islands_as_the_solver_makes_them() -> None:
    hardware = translated().hardware
    assert hardware is not None
    assert hardware == one_node(hardware.gpu, 4, island_gpus=2)


def test_listed_islands_keep_their_numbers_links_and_loading() -> None:
    table = [{"model": "judge", "tensor_parallel": 2, "seconds": 60}]
    loading = {"engine_start_s": 3, "read_gb_per_s": 2, "download_gb_per_s": 0.5, "table": table}
    given = {"gpu": "a100-sxm4-80gb", "islands": [[1, 3], [0, 2, 4]], "island_gb_per_s": 250, "across_gb_per_s": 0}
    hardware = translated(hardware={**given, "loading": loading}).hardware
    assert hardware is not None
    assert hardware.islands == (Island(0, (1, 3), 250), Island(0, (0, 2, 4), 250))
    assert (hardware.across_gb_per_s, hardware.gpus) == (0, 5)
    assert hardware.loading.seconds("judge", 140, 2) == 60
    assert hardware.loading.seconds("judge", 140, 4) == 3 + 140 / 4 / 2
    assert hardware.loading.download_gb_per_s == 0.5


def test_an_application_on_a_market_has_no_hardware_yet() -> None:
    assert translated(hardware=None, market={"offers": a_snapshot()}).hardware is None


def test_the_search_becomes_options() -> None:
    assert translated().options == OfflineOptions()
    search = {"tensor_parallel": [4, 1], "preemption": False, "keep_replicas": False, "seed": 7, "time_limit_s": 5}
    assert translated(search={**search, "max_sequences": 64}).options == OfflineOptions(
        7, preemption=False, keeps_replicas=False, tensor_parallel=(1, 4), max_sequences=64, time_limit_s=5
    )


def test_aliases_are_read_and_noted() -> None:
    translation = translated(
        models=[an_asker(model="vicuna-13b-v1.5")], edges=[], hardware={"gpu": "A100", "gpus": 2}
    )
    assert translation.application.nodes[0].spec.id == "llama-2-13b"
    assert translation.hardware is not None
    assert translation.hardware.gpu.slug == "a100-sxm4-80gb"
    assert [note.partition(":")[0] for note in translation.notes] == ["models[0].model", "hardware.gpu"]


def test_models_and_gpus_of_the_callers_own_are_used() -> None:
    own = {"memory_gb": 10, "memory_bandwidth_gb_per_s": 500, "peak_tflops_bf16_dense": 50}
    translation = translated(
        models=[an_asker(model=an_inline_model())], edges=[], hardware={"gpu": "mine", "gpus": 2}, gpus={"mine": own}
    )
    assert translation.application.nodes[0].spec.layers == 4
    assert translation.hardware is not None
    assert translation.hardware.gpu.memory_gb == 10
    assert translation.hardware.islands[0].gb_per_s == 32


def test_recorded_answers_stand_in_for_a_distribution() -> None:
    recorded = {"recorded": {"input_tokens": [3, 5], "output_tokens": [7, 9]}}
    [node] = translated(models=[an_asker(requests=recorded, output_tokens=None)], edges=[]).application.nodes
    assert node.requests == Recorded((3, 5), (7, 9))
    assert node.output_tokens == LengthDistribution((7, 9), (0.5, 1.0))


@pytest.mark.parametrize(
    ("others", "field", "remedy"),
    [
        ({"models": [an_asker(model="llama-2-13bb")], "edges": []}, r"models\[0\].model", "did you mean"),
        ({"hardware": {"gpu": "a101", "gpus": 2}}, "hardware.gpu", "a101"),
    ],
)
def test_unknown_names_are_named(others: dict[str, Any], field: str, remedy: str) -> None:
    with pytest.raises(UnknownNameError, match=rf"{field}: .*{remedy}"):
        translated(**others)


def test_a_gpu_of_the_callers_own_needs_its_figures() -> None:
    with pytest.raises(DocumentError) as error:
        translated(hardware={"gpu": "mine", "gpus": 2}, gpus={"mine": {"memory_gb": 10}})
    assert [problem.field for problem in error.value.problems] == [
        "gpus.mine.memory_bandwidth_gb_per_s",
        "gpus.mine.peak_tflops_bf16_dense",
    ]


def test_a_precision_that_the_model_is_not_served_in_is_named() -> None:
    with pytest.raises(DocumentError, match=r"models\[0\].precision: 'fp8': gpt-oss-20b is served as"):
        translated(models=[an_asker(model="gpt-oss-20b", precision="fp8")], edges=[])


def test_loops_of_several_models_are_named() -> None:
    models = [an_asker("a"), an_asker("b")]
    with pytest.raises(InvalidProblemError, match=r"edges: '(a -> b -> a|b -> a -> b)': .*break the loop"):
        translated(models=models, edges=[an_edge("a", "b"), an_edge("b", "a")])


def test_a_model_that_nothing_reaches_is_named() -> None:
    with pytest.raises(InvalidProblemError, match=r"models\[1\]: 'judge': give it requests, or an edge"):
        translated(models=[a_writer(), a_reader(prompt_tokens=0)], edges=[an_edge("summary", "summary")])


def test_lengths_of_nothing_are_named() -> None:
    wrong = changed(an_application(), ("models", 0, "requests", "chain_length"), {"uniform": {"low": 0, "high": 2}})
    with pytest.raises(DocumentError, match=r"models\[0\].requests.chain_length: .*at least 1"):
        translated(**wrong)


def prompts(*, own: int = 1000, answer: int = 200, around: int = 300, **judge: Any) -> dict[str, Any]:
    """The writer and the reader have room for 4,096 tokens."""
    requests = {"count": 10, "input_tokens": own, "chain_length": 2}
    reader = a_reader(prompt_tokens=around, **judge)
    return {"models": [a_writer(requests=requests, output_tokens=answer, max_output_tokens=None), reader]}


@pytest.mark.parametrize(
    ("room", "beyond", "field", "remedy"),
    [
        (prompts(own=3895), prompts(own=3896), "models[0].requests.input_tokens", "its own output before up to 200"),
        (prompts(around=3895), prompts(around=3896), "edges[1]", "prompt_tokens up to 3896"),
        (
            prompts(answer=3000),
            prompts(answer=3096),
            "models[0].requests.input_tokens",
            "limit what is read with max_output_tokens",
        ),
    ],
)
def test_a_prompt_that_may_leave_no_room_for_an_answer_is_named(
    room: dict[str, Any], beyond: dict[str, Any], field: str, remedy: str
) -> None:
    translated(**room)
    with pytest.raises(DocumentError) as error:
        translated(**beyond)
    [problem] = error.value.problems
    assert (problem.field, problem.value) == (field, "4096")
    assert remedy in problem.remedy
    assert "4096 of llama-2-" in problem.remedy


def test_a_limit_of_the_answer_makes_room_for_those_who_read_it() -> None:
    models = prompts(answer=3500)["models"]
    translated(models=[{**models[0], "max_output_tokens": 900}, models[1]])


def test_recorded_prompts_beyond_the_context_are_named() -> None:
    long = an_asker(requests={"recorded": {"input_tokens": [5, 4096]}})
    with pytest.raises(DocumentError, match=r"models\[0\].requests: 4096: .*leave out or cut longer ones"):
        translated(models=[long], edges=[])


def test_outputs_that_are_concatenated_add_up() -> None:
    models = [an_asker("a", output_tokens=2000), an_asker("b", output_tokens=2000), an_asker("c")]
    both = [an_edge("a", "c", fan_in="concatenate"), an_edge("b", "c", fan_in="concatenate")]
    with pytest.raises(DocumentError, match=r"models\[2\].requests.input_tokens: 4100: "):
        translated(models=models, edges=both)
    translated(models=models, edges=[{**edge, "fan_in": "separate"} for edge in both])


def test_what_is_read_side_by_side_is_there_as_often() -> None:
    models = [an_asker("a"), an_asker("b", 11), a_reader("c")]
    both = [an_edge("a", "c", fan_in="concatenate"), an_edge("b", "c", fan_in="concatenate")]
    with pytest.raises(DocumentError, match=r"edges\[1\]: 11: .*side by side with 10 of edges\[0\]"):
        translated(models=models, edges=both)
    translated(models=[an_asker("a"), an_asker("b"), a_reader("c")], edges=both)
    models = [an_asker("a", 22), an_asker("b", 11), a_reader("c")]
    with pytest.raises(DocumentError, match=r"edges\[1\].copies: 2: .*others of 1: make them equal"):
        translated(models=models, edges=[both[0], {**both[1], "copies": 2}])


def test_what_is_read_side_by_side_is_copied_as_a_whole() -> None:
    edge = an_edge("a", "c", fan_in="concatenate", copies=2)
    translation = translated(models=[an_asker("a"), an_asker("c")], edges=[edge])
    assert item_counts(translation.application) == {"a": 10, "c": 20}
    assert (sample(translation.application, seed=0).node == 1).sum() == 20


def test_a_models_own_requests_are_as_many_as_what_they_read() -> None:
    models, edge = [an_asker("a"), an_asker("c", 7)], an_edge("a", "c", fan_in="concatenate")
    with pytest.raises(DocumentError, match=r"edges\[0\]: 10: .*side by side with 7 of models\[1\].requests"):
        translated(models=models, edges=[edge])
    translated(models=models, edges=[{**edge, "fan_in": "separate"}])


@pytest.mark.parametrize(
    ("chained", "edge", "field"),
    [
        (False, {"share_fraction": 0.5}, r"edges\[1\].share_fraction: 0.5"),
        (True, {"outputs": "every"}, r"edges\[1\].outputs: 'every'"),
    ],
)
def test_numbers_that_are_chance_cannot_be_read_side_by_side(chained: bool, edge: dict[str, Any], field: str) -> None:
    models = [a_writer("a") if chained else an_asker("a"), an_asker("c")]
    edges = [an_edge("a", "a") if chained else an_edge("c", "d"), an_edge("a", "c", fan_in="concatenate", **edge)]
    models += [] if chained else [a_reader("d")]
    with pytest.raises(DocumentError, match=rf"{field}: .*must be known"):
        translated(models=models, edges=edges)
    translated(models=models, edges=[edges[0], {**edges[1], "fan_in": "separate"}])


def test_chance_further_up_cannot_be_read_side_by_side_either() -> None:
    models = [an_asker("a"), a_reader("b"), an_asker("c")]
    edges = [an_edge("a", "b", share_fraction=0.5), an_edge("b", "c", fan_in="concatenate")]
    with pytest.raises(DocumentError, match=r"edges\[1\].from: 'b': .*chance"):
        translated(models=models, edges=edges)


def test_more_requests_than_can_be_simulated_are_named() -> None:
    models = [an_asker("a", 1_000_000), a_reader("c")]
    with pytest.raises(DocumentError, match=r"models\[1\]: 3,000,000: .*more than 2,000,000"):
        translated(models=models, edges=[an_edge("a", "c", copies=3)])
    translated(models=models, edges=[an_edge("a", "c", copies=3, share_fraction=0.5)])
