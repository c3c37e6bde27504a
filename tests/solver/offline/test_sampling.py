"""Drawing the requests: streams that do not disturb one another, limits, chains, and what is handed on."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from sutler.solver.arrays import IntArray
from sutler.solver.errors import InvalidProblemError
from sutler.solver.offline.application import Application, Edge, LengthDistribution, Node, Recorded
from sutler.solver.offline.request_set import Pile
from sutler.solver.offline.sampling import sample
from tests.solver.offline.builders import SHORT, a_chain, a_node, a_spec, app_of

WIDE = LengthDistribution(tuple(range(1, 1001)), tuple(np.linspace(0.001, 1.0, 1000).tolist()))
FIELDS = ("input_tokens", "output_tokens", "item")


def parents_of(pile: Pile, request: int) -> list[int]:
    return pile.parents_of(request)


def drawn(application: Application, name: str, seed: int = 0) -> dict[str, list[int]]:
    pile = sample(application, seed=seed)
    numbers = pile.of_node([node.name for node in application.nodes].index(name))
    return {field: getattr(pile, field)[numbers].tolist() for field in FIELDS}


def distance(seen: IntArray, lengths: LengthDistribution) -> float:
    """Kolmogorov and Smirnov's, between what was drawn and what it was drawn from."""
    shares = np.searchsorted(np.sort(seen), lengths.values, "right") / len(seen)
    return float(np.abs(shares - lengths.cumulative).max())


def a_family(*others: Node, edges: Sequence[Edge] = ()) -> Application:
    return app_of(
        a_node("writer", 30, outputs=WIDE, inputs=WIDE),
        a_node("reader", 0, outputs=WIDE),
        *others,
        edges=[Edge("writer", "reader", share_fraction=0.5), *edges],
    )


# ---- streams


def test_the_same_seed_draws_the_same_pile_and_another_seed_another() -> None:
    one, same, other = (sample(a_family(), seed=seed) for seed in (3, 3, 4))
    for field in (*FIELDS, "node", "parent_start", "parents"):
        assert getattr(one, field).tolist() == getattr(same, field).tolist()
    assert one.output_tokens.tolist() != other.output_tokens.tolist()
    assert len(one) != len(other) or one.parents.tolist() != other.parents.tolist()


def test_what_a_model_draws_does_not_change_with_other_models() -> None:
    alone = a_family()
    others = a_family(a_node("other", 50), a_node("judge", 0), edges=[Edge("writer", "judge", copies=3)])
    backwards = Application("app", tuple(reversed(others.nodes)), tuple(reversed(others.edges)))
    for name in ("writer", "reader"):
        assert drawn(alone, name) == drawn(others, name) == drawn(backwards, name)


def test_a_model_that_answers_in_other_lengths_has_the_same_prompts() -> None:
    family = a_family()
    slower = replace(
        family, nodes=(replace(family.nodes[0], output_tokens=LengthDistribution.always(7)), family.nodes[1])
    )
    assert drawn(slower, "writer")["input_tokens"] == drawn(family, "writer")["input_tokens"]
    assert set(drawn(slower, "writer")["output_tokens"]) == {7}
    assert drawn(slower, "reader")["output_tokens"] == drawn(family, "reader")["output_tokens"]


def test_two_models_with_the_same_distribution_draw_different_lengths() -> None:
    both = app_of(a_node("one", 30, outputs=WIDE), a_node("two", 30, outputs=WIDE))
    assert drawn(both, "one")["output_tokens"] != drawn(both, "two")["output_tokens"]


# ---- lengths


def test_a_large_draw_is_distributed_as_its_lengths() -> None:
    uneven = LengthDistribution((3, 40, 41, 500, 4000), (0.2, 0.3, 0.75, 0.99, 1.0))
    pile = sample(app_of(a_node("one", 20_000, inputs=uneven, outputs=WIDE)), seed=1)
    assert distance(pile.input_tokens, uneven) < 0.012
    assert distance(pile.output_tokens, WIDE) < 0.012
    assert float(pile.output_tokens.mean()) == pytest.approx(WIDE.mean, rel=0.02)
    assert abs(np.corrcoef(pile.input_tokens, pile.output_tokens)[0, 1]) < 0.03


def test_the_distribution_of_a_sample_gives_back_its_shares() -> None:
    seen = LengthDistribution.of_sample([5, 9, 5, 100])
    assert seen == LengthDistribution((5, 9, 100), (0.5, 0.75, 1.0))
    assert seen.mean == pytest.approx(119 / 4)
    assert seen.at(np.array([0.0, 0.49, 0.5, 0.74, 0.75, 0.999])).tolist() == [5, 5, 9, 9, 100, 100]


def test_answers_are_at_most_as_long_as_allowed_and_as_the_context_leaves() -> None:
    short = a_spec(max_context_tokens=600)
    node = a_node(
        "one", 2000, spec=short, inputs=LengthDistribution((10, 590), (0.5, 1.0)), outputs=WIDE, max_output_tokens=300
    )
    pile = sample(app_of(node), seed=0)
    tight = pile.input_tokens == 590
    assert pile.output_tokens.min() == 1
    assert pile.output_tokens[~tight].max() == 300
    assert pile.output_tokens[tight].max() == 10


def test_an_answer_of_no_tokens_has_one() -> None:
    pile = sample(app_of(a_node("one", 5, inputs=0, outputs=0)), seed=0)
    assert pile.output_tokens.tolist() == pile.input_tokens.tolist() == [1] * 5


def test_recorded_requests_are_taken_as_they_are() -> None:
    known = Recorded((30, 10, 20), (7, 8, 9000))
    pile = sample(app_of(a_node("one", 0, requests=known, max_output_tokens=500)), seed=0)
    assert pile.input_tokens.tolist() == [30, 10, 20]
    assert pile.output_tokens.tolist() == [7, 8, 500]


def test_recorded_prompts_without_answers_draw_their_answers() -> None:
    asked = Recorded((10,) * 4000)
    pile = sample(app_of(a_node("one", 0, requests=asked, outputs=SHORT)), seed=0)
    assert set(pile.input_tokens.tolist()) == {10}
    assert distance(pile.output_tokens, SHORT) < 0.03


# ---- chains


def test_a_chunk_of_a_chain_reads_the_answer_before_it_and_waits_for_nothing_else() -> None:
    node = a_node("chain", 40, inputs=100, outputs=WIDE, chain=LengthDistribution((1, 3, 6), (0.3, 0.7, 1.0)))
    pile = sample(app_of(node, edges=[a_chain("chain")]), seed=2)
    lengths = np.bincount(pile.item)
    assert len(lengths) == 40
    assert set(lengths.tolist()) == {1, 3, 6}
    for request in range(len(pile)):
        is_first = request == 0 or pile.item[request - 1] != pile.item[request]
        assert parents_of(pile, request) == ([] if is_first else [request - 1])
        before = 0 if is_first else int(pile.output_tokens[request - 1])
        assert pile.input_tokens[request] == 100 + before


def test_of_a_chain_the_last_output_or_every_one_is_handed_on() -> None:
    node = a_node("chain", 10, inputs=100, chain=3)
    last, every = a_node("last", 0), a_node("every", 0)
    edges = [a_chain("chain"), Edge("chain", "last"), Edge("chain", "every", outputs="every")]
    pile = sample(app_of(node, last, every, edges=edges), seed=0)
    assert [parents_of(pile, r) for r in pile.of_node(1)] == [[3 * item + 2] for item in range(10)]
    assert [parents_of(pile, r) for r in pile.of_node(2)] == [[chunk] for chunk in range(30)]


# ---- handing on


def test_concatenated_outputs_are_added_to_the_prompt_and_all_waited_for() -> None:
    nodes = (a_node("a", 15, outputs=WIDE), a_node("b", 15, outputs=WIDE))
    joint = a_node("joint", 15, inputs=40, prompt_tokens=LengthDistribution.always(9))
    edges = [Edge("a", "joint", fan_in="concatenate"), Edge("b", "joint", fan_in="concatenate")]
    pile = sample(app_of(*nodes, joint, edges=edges), seed=0)
    assert len(pile.of_node(2)) == 15
    for item, request in enumerate(pile.of_node(2).tolist()):
        assert sorted(parents_of(pile, request)) == [item, 15 + item]
        assert pile.input_tokens[request] == 49 + pile.output_tokens[[item, 15 + item]].sum()


def test_separate_outputs_are_requests_of_their_own_beside_the_models_own() -> None:
    nodes = (a_node("a", 5, outputs=WIDE), a_node("b", 7, outputs=WIDE))
    reader = a_node("reader", 3, inputs=40, prompt_tokens=LengthDistribution.always(9))
    pile = sample(app_of(*nodes, reader, edges=[Edge("a", "reader"), Edge("b", "reader")]), seed=0)
    own, read = pile.of_node(2)[:3].tolist(), pile.of_node(2)[3:].tolist()
    assert [parents_of(pile, request) for request in own] == [[]] * 3
    assert pile.input_tokens[own].tolist() == [40] * 3
    assert [parents_of(pile, request) for request in read] == [[source] for source in range(12)]
    assert pile.input_tokens[read].tolist() == (9 + pile.output_tokens[:12]).tolist()


def test_copies_read_the_same_output_and_answer_by_themselves() -> None:
    judge = a_node("judge", 0, outputs=WIDE)
    pile = sample(app_of(a_node("a", 6, outputs=WIDE), judge, edges=[Edge("a", "judge", copies=4)]), seed=0)
    judged = pile.of_node(1)
    assert [parents_of(pile, request) for request in judged] == [[item] for item in range(6) for _ in range(4)]
    assert len(set(pile.output_tokens[judged].tolist())) > 15


def test_a_share_of_the_outputs_is_handed_on() -> None:
    application = app_of(a_node("a", 4000), a_node("b", 0), edges=[Edge("a", "b", share_fraction=0.3, copies=2)])
    pile = sample(application, seed=0)
    read = [parents_of(pile, request)[0] for request in pile.of_node(1)]
    assert len(read) == 2 * len(set(read))
    assert len(set(read)) == pytest.approx(1200, rel=0.06)
    assert read == sorted(read)


def test_requests_are_ordered_by_model_in_the_order_of_the_file() -> None:
    backwards = app_of(a_node("reader", 0), a_node("writer", 10), edges=[Edge("writer", "reader", copies=2)])
    pile = sample(backwards, seed=0)
    assert pile.node.tolist() == [0] * 20 + [1] * 10
    assert parents_of(pile, 19) == [29]


# ---- refusals


def test_outputs_that_do_not_match_in_number_are_refused() -> None:
    edges = [Edge("a", "joint", fan_in="concatenate"), Edge("b", "joint", fan_in="concatenate")]
    application = app_of(a_node("a", 5), a_node("b", 6), a_node("joint", 0), edges=edges)
    with pytest.raises(InvalidProblemError, match=r"models\[2\]\.requests.*a: 5, b: 6"):
        sample(application, seed=0)
    own = app_of(a_node("a", 5), a_node("joint", 4), edges=[Edge("a", "joint", fan_in="concatenate")])
    with pytest.raises(InvalidProblemError, match=r"models\[1\]\.requests.*4"):
        sample(own, seed=0)


def test_a_chain_that_concatenates_others_is_refused() -> None:
    chain = a_node("chain", 5, chain=2)
    edges = [a_chain("chain"), Edge("a", "chain", fan_in="concatenate")]
    with pytest.raises(InvalidProblemError, match="separate"):
        sample(app_of(a_node("a", 5), chain, edges=edges), seed=0)


def test_a_prompt_that_fills_the_context_is_refused() -> None:
    small = a_spec(max_context_tokens=500)
    with pytest.raises(InvalidProblemError, match=r"models\[0\].*500"):
        sample(app_of(a_node("one", 3, spec=small, inputs=500)), seed=0)
    assert sample(app_of(a_node("one", 3, spec=small, inputs=499)), seed=0).output_tokens.tolist() == [1] * 3


def test_an_answer_that_fills_another_models_context_is_refused_there() -> None:
    reader = a_node("reader", 0, spec=a_spec(max_context_tokens=300))
    application = app_of(a_node("writer", 3, outputs=300), reader, edges=[Edge("writer", "reader")])
    with pytest.raises(InvalidProblemError, match=r"models\[1\].*300"):
        sample(application, seed=0)


def test_a_loop_of_two_models_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="break the loop"):
        app_of(a_node("a", 5), a_node("b", 0), edges=[Edge("a", "b"), Edge("b", "a")])


def test_a_model_that_nothing_reaches_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match=r"models\[1\].*nothing reaches it"):
        app_of(a_node("a", 5), a_node("b", 0))
    with pytest.raises(InvalidProblemError, match=r"edges\[0\].*name one of the models"):
        app_of(a_node("a", 5), edges=[Edge("a", "c")])
