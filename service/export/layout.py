"""What runs where: the plan's replicas as processes of vLLM or SGLang on machines, with their GPUs and ports.

A replica inside one machine is one process. One on several machines is a process per machine, each with the same
number of GPUs and stages that follow each other; where the plan's stages do not lie like that, a process per stage.
Both number their ranks along the pipeline and give every process the same number of them.
https://docs.vllm.ai/en/v0.33.0/serving/parallelism_scaling.html
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Final, Literal

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import PlanDocument, RentalDocument, ReplicaDocument, StageDocument
from sutler.service.errors import FieldProblem, short_repr
from sutler.service.export.consistency import ARGUMENT, check_consistency
from sutler.service.export.naming import dns_labels
from sutler.service.export.result import NothingToRunError
from sutler.solver.answer.engine_args import role_args

FIRST_PORT: Final = 8000
FIRST_MASTER_PORT: Final = 29501  # vLLM's default for --master-port
FIRST_SIDE_PORT: Final = 5600  # vLLM's default for VLLM_NIXL_SIDE_CHANNEL_PORT
# What the plan was made for: sizes, limits and how keys and values are handed over.
OURS: Final = frozenset(
    {
        *(
            "model",
            "served_model_name",
            "port",
            "tensor_parallel_size",
            "pipeline_parallel_size",
            "data_parallel_size",
        ),
        *("enable_expert_parallel", "max_num_seqs", "max_num_batched_tokens", "kv_transfer_config"),
        *("quantization", "kv_cache_dtype", "dtype", "speculative_config"),
    }
)
SIDE_PORTS_OF_ONE: Final = 16  # vLLM counts on from it within a replica
PROXY: Final = (
    "no proxy is exported: clients of models with prefill and decode replicas must go through one that sends a "
    "prompt to a prefill replica and, with the kv_transfer_params of its answer, on to a decode replica, by weights "
    "and hand_over of the router format; vLLM's toy_proxy_server.py does so in equal shares"
)
SGLANG_PROXY: Final = (
    "no proxy is exported: clients of models with prefill and decode replicas must go through sglang_router with "
    "--pd-disaggregation, which pairs them by itself, or one that goes by weights and hand_over of the router format"
)
Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class RentedMachine:
    """One rented machine (or slice); `name` is safe everywhere."""

    name: str
    rental: RentalDocument
    index: int


@dataclass(frozen=True, slots=True)
class Process:
    """One server process: rank among the replica's, the machine, and its GPUs there, in pipeline order."""

    rank: int
    machine: RentedMachine
    gpu_indices: tuple[int, ...]

    @property
    def uses_whole_machine(self) -> bool:
        """Whether these are all GPUs of the machine, in the machine's order."""
        return self.gpu_indices == tuple(range(self.machine.rental.gpus))


@dataclass(frozen=True, slots=True)
class Serving:
    """One replica; `port`, `master_port` and `side_port` are free on the head's machine.

    `name` is a DNS label, unique in the plan; `arguments` are vLLM's, by field name, without the model.
    """

    replica: ReplicaDocument
    name: str
    model_path: str
    arguments: tuple[tuple[str, Value], ...]
    processes: tuple[Process, ...]
    port: int
    master_port: int
    side_port: int

    @property
    def server(self) -> Literal["vllm", "sglang"]:
        """What is started: vLLM unless the plan wants another engine."""
        return "sglang" if self.replica.engine == "sglang" else "vllm"

    @property
    def hands_over(self) -> bool:
        """Whether it prefills for others or decodes for them, and so has to be reached by them."""
        return self.replica.role != "aggregated"

    @property
    def needs_address(self) -> bool:
        """Whether other machines have to be told where its head is."""
        return len(self.processes) > 1 or self.hands_over

    @property
    def head(self) -> Process:
        """The process that answers requests."""
        return self.processes[0]


@dataclass(frozen=True, slots=True)
class Layout:
    """A plan as it is run; `warnings` say what is uncertain."""

    plan: PlanDocument
    machines: tuple[RentedMachine, ...]
    servings: tuple[Serving, ...]
    warnings: tuple[str, ...]


def further_arguments(given: Iterable[str]) -> dict[str, Value]:
    """Arguments as people write them, NAME=VALUE. Raises DocumentError."""
    found: dict[str, Value] = {}
    for text in given:
        name, equals, value = text.partition("=")
        name = name.removeprefix("--").replace("-", "_")
        if not equals or not ARGUMENT.fullmatch(name) or "\0" in value:
            remedy = "write NAME=VALUE, such as gpu_memory_utilization=0.85 or enforce_eager=true"
            raise DocumentError.of("argument", remedy, value=text)
        if name in OURS:
            raise DocumentError.of("argument", "is what the plan decides: plan again instead", value=text)
        found[name] = {"true": True, "false": False}.get(value.lower(), value)
    return found


def layout_of(
    plan: PlanDocument,
    *,
    may_sleep: bool = False,
    first_port: int = FIRST_PORT,
    further: Mapping[str, Value] = MappingProxyType({}),
) -> Layout:
    """Lays a plan out, with `further` arguments of all servers.

    Raises NothingToRunError for one without replicas, unless all its models sleep and that `may_sleep`, DocumentError
    for one that contradicts itself.
    """
    if not plan.replicas and plan.sleeping and not may_sleep:
        remedy = "stop what runs, as its diff says; the router format has what to answer meanwhile"
        raise NothingToRunError("all models of the plan sleep, and it runs nothing", remedy)
    if not plan.replicas and not plan.sleeping:
        conflicts = "; ".join(conflict.remedy for conflict in plan.conflicts)
        remedy = conflicts or "raise solver.time_limit_s or loosen the problem, and plan again"
        raise NothingToRunError(f"the plan is {plan.status} and runs nothing", remedy)
    check_consistency(plan)
    machines = {machine.name: machine for machine in _machines(plan)}
    servings = tuple(_servings(plan, machines, first_port, further))
    used = {process.machine.name for serving in servings for process in serving.processes}
    return Layout(
        plan, tuple(machine for machine in machines.values() if machine.name in used), servings, _warnings(plan)
    )


def machine_name(rental: int, machine: int) -> str:
    """Returns what all formats call a machine of the plan."""
    return f"rental-{rental}-machine-{machine}"


def _machines(plan: PlanDocument) -> Iterator[RentedMachine]:
    for number, rental in enumerate(plan.rentals):
        used = {s.machine for replica in plan.replicas for s in replica.stages if s.rental == number}
        yield from (RentedMachine(machine_name(number, index), rental, index) for index in sorted(used))


def _servings(
    plan: PlanDocument, machines: Mapping[str, RentedMachine], first_port: int, further: Mapping[str, Value]
) -> Iterator[Serving]:
    names = dns_labels(replica.id for replica in plan.replicas)
    heads: dict[str, int] = {}
    for replica in plan.replicas:
        processes = _processes(replica, machines)
        earlier = heads.get(processes[0].machine.name, 0)
        heads[processes[0].machine.name] = earlier + 1
        yield Serving(
            replica=replica,
            name=names[replica.id],
            model_path=str(replica.engine_args["model"]),
            arguments=tuple({**dict(_arguments(replica)), **further}.items()),
            processes=processes,
            port=first_port + earlier,
            master_port=FIRST_MASTER_PORT + earlier,
            side_port=FIRST_SIDE_PORT + SIDE_PORTS_OF_ONE * earlier,
        )


def _arguments(replica: ReplicaDocument) -> tuple[tuple[str, Value], ...]:
    """Returns vLLM's arguments; requests name the model as the problem does, whichever replica they go to."""
    given = {name: value for name, value in replica.engine_args.items() if name != "model"}
    sizes = {"tensor_parallel_size": replica.stages[0].tensor_parallel, "pipeline_parallel_size": len(replica.stages)}
    if replica.data_parallel > 1:
        sizes |= {"data_parallel_size": replica.data_parallel, "enable_expert_parallel": True}
    return tuple(
        {"served_model_name": replica.model, **sizes, **dict(role_args(replica.role, bends=False)), **given}.items()
    )


def _processes(replica: ReplicaDocument, machines: Mapping[str, RentedMachine]) -> tuple[Process, ...]:
    runs = [list(run) for _, run in groupby(replica.stages, key=lambda stage: (stage.rental, stage.machine))]
    places = {(stage.rental, stage.machine) for stage in replica.stages}
    if len(runs) > len(places) or len({len(run) for run in runs}) > 1:
        runs = [[stage] for stage in replica.stages]
    return tuple(Process(rank, _machine_of(run[0], machines), _gpus(run)) for rank, run in enumerate(runs))


def _machine_of(stage: StageDocument, machines: Mapping[str, RentedMachine]) -> RentedMachine:
    return machines[machine_name(stage.rental, stage.machine)]


def _gpus(run: Iterable[StageDocument]) -> tuple[int, ...]:
    return tuple(index for stage in run for index in stage.gpu_indices)


def refuse(layout: Layout, format: str, obstacles: Mapping[str, str | None]) -> None:
    """Raises DocumentError where a replica, by its id, has something that keeps it out of the format.

    An export without some replicas would be a fleet that does not carry its load.
    """
    problems = [
        FieldProblem(f"replicas[{number}]", short_repr(replica.id), f"cannot be exported as {format}: {obstacle}")
        for number, replica in enumerate(layout.plan.replicas)
        if (obstacle := obstacles.get(replica.id)) is not None
    ]
    if problems:
        raise DocumentError(problems)


def refuse_phases(layout: Layout, router: str) -> None:
    """Raises DocumentError where there are prefill and decode replicas, for a router that sends a request once."""
    obstacle = "requests go to a prefill and then to a decode replica: give the router format to a proxy that does so"
    refuse(layout, router, {replica.id: obstacle for replica in layout.plan.replicas if replica.role != "aggregated"})


def _warnings(plan: PlanDocument) -> tuple[str, ...]:
    apart = {replica.engine == "sglang" for replica in plan.replicas if replica.role != "aggregated"}
    return (*_warnings_of(plan.replicas), *(SGLANG_PROXY if is_sglang else PROXY for is_sglang in sorted(apart)))


def _warnings_of(replicas: Iterable[ReplicaDocument]) -> Iterator[str]:
    for replica in replicas:
        gpus = list(dict.fromkeys(stage.gpu for stage in replica.stages))
        if len(gpus) > 1 and obstacle_of(replica) is None:
            server = "SGLang" if replica.engine == "sglang" else "vLLM"
            yield (
                f"{replica.id} mixes {' and '.join(gpus)}: {server} starts it, but sizes the KV cache of all stages "
                "by the smallest and is not tested on mixed GPUs; measure it before relying on its rate"
            )


def obstacle_of(replica: ReplicaDocument) -> str | None:
    """Says why no server of ours can run a replica, with what to do; or None."""
    sizes = [stage.tensor_parallel for stage in replica.stages]
    if replica.engine == "tensorrt-llm":
        return (
            "it is for tensorrt-llm, and formats that start servers exist for vllm and sglang: plan with one of "
            "these as engine, or export the router format alone"
        )
    if len(set(sizes)) > 1:
        return (
            f"its stages have {', '.join(map(str, sizes))} GPUs and vLLM takes one --tensor-parallel-size for all: "
            "plan with engine: vllm, or start it with an engine that places stages one by one"
        )
    if replica.role != "aggregated" and len(sizes) > 1:
        return (
            f"it is a {replica.role} replica of {len(sizes)} stages and vLLM's NixlConnector hands over no KV caches "
            "of pipelines (github.com/vllm-project/vllm/issues/52913), nor does SGLang: plan with engine: vllm or "
            "search.max_pipeline_stages: 1"
        )
    return None
