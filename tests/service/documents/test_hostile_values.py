"""Whatever stands anywhere in a problem: it is accepted, or refused with a field and a remedy on one line."""

from collections.abc import Iterator
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sutler.service.documents.errors import DocumentError, NoMarketDataError
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.errors import FieldProblem, short_repr
from sutler.service.translation.to_problem import to_problem
from sutler.solver.errors import InvalidProblemError
from tests.service.builders import NOW, Path, a_model, a_problem, a_workload, an_inline_model, changed

RICH: dict[str, Any] = a_problem(
    models=[
        a_model(
            slo={"ttft_p90_s": 2.0},
            kv_precision="fp8",
            prefix_cache_hit_fraction=0.1,
            max_utilisation_fraction=0.9,
            workloads=[a_workload(slo={"ttft_p90_s": None, "e2e_p99_s": 60})],
        ),
        a_model("other", model=an_inline_model(), trace=None),
    ],
    limits={"max_gpus": {"h100-sxm": 8}, "max_utilisation_fraction": 0.85, "max_power_watts": None},
    search={"tensor_parallel": [1, 2], "max_pipeline_stages": 4, "mixed_gpu_pipelines": True},
    solver={"method": "exact", "relative_gap": 0.001, "time_limit_s": 30},
    gpus={"t1": {"memory_gb": 80}},
)


def paths_in(value: object, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from paths_in(child, (*path, key))


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["", "\x00", "\ud800", "h100-sxm", "bf16", "-", "nan", "1e9", 10**400]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=400)
@given(path=st.sampled_from(list(paths_in(RICH))), value=ANYTHING)
@example(path=("models", 0, "name"), value="\ud800")
@example(path=("gpus",), value={"\ud800": {"memory_gb": 1}})
@example(path=("market", "offers"), value={"\x1b": 1})
def test_any_value_anywhere_is_accepted_or_named(path: Path, value: object) -> None:
    for problem in problems_of(changed(RICH, path, value)):
        assert problem.field
        assert problem.remedy
        assert str(problem).isprintable()
        assert len(str(problem)) < 1000


def problems_of(document: dict[str, Any]) -> tuple[FieldProblem, ...]:
    try:
        to_problem(validate(ProblemDocument, document), folder=None, now=NOW)
    except DocumentError as error:
        return error.problems
    except InvalidProblemError as error:
        return (FieldProblem(error.field, short_repr(error.value), error.remedy),)
    except NoMarketDataError as error:
        return (FieldProblem("market", None, error.remedy),)
    return ()
