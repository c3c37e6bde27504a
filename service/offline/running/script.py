"""The bash script that carries a schedule out on one host: run_steps.sh above a table of what to run.

Flow: OfflineScheduleDocument -> script_of (here) -> `sutler offline run-plan --format sh`. Whatever comes from the
plan is quoted; what decides when a step ends and what stays is in run_steps.sh, not in the table.
"""

import json
import shlex
from collections.abc import Iterator
from importlib.resources import files

from sutler.service.documents.errors import DocumentError
from sutler.service.export.naming import one_line
from sutler.service.offline.schedule_schema import OfflineScheduleDocument, ScheduledHost, ScheduleStep


def script_of(schedule: OfflineScheduleDocument, *, host: int | None = None) -> str:
    """The script of a host; of several hosts each needs its own.

    Raises DocumentError where `host` is none of them, or is missing where there are several.
    """
    chosen = _chosen(schedule, host)
    functions = files("sutler.service.offline.running").joinpath("run_steps.sh").read_text(encoding="utf-8")
    heading = [f"# {line}".rstrip() for line in _heading(schedule, chosen)]
    lines = ["#!/usr/bin/env bash", *heading, "", functions, *_table(schedule, chosen), "", 'main "$@"']
    return "\n".join(lines) + "\n"


def _chosen(schedule: OfflineScheduleDocument, host: int | None) -> ScheduledHost:
    numbers = ", ".join(str(one.host) for one in schedule.hosts)
    if host is None:
        if len(schedule.hosts) > 1:
            remedy = f"is missing: hosts {numbers} have a script of their own each; name one of them"
            raise DocumentError.of("--host", remedy)
        return schedule.hosts[0]
    for one in schedule.hosts:
        if one.host == host:
            return one
    raise DocumentError.of("--host", f"must be one of the hosts that the plan runs on: {numbers}", value=host)


def _heading(schedule: OfflineScheduleDocument, host: ScheduledHost) -> Iterator[str]:
    where = "" if host.machine is None else f" ({one_line(host.machine)})"
    yield f"Runs {one_line(schedule.application)} by plan {schedule.plan}, revision {schedule.revision}, with sutler."
    yield f"For {schedule.engine} on host {host.host}{where}. Usage: bash THIS_FILE RUN_FOLDER; --help says more."
    if len(schedule.hosts) > 1:
        yield "Every host runs a script of its own; all of them share one RUN_FOLDER."
    if schedule.warnings:
        yield ""
        yield "Before running it:"
        yield from (f"  - {one_line(warning)}" for warning in schedule.warnings)


def _table(schedule: OfflineScheduleDocument, host: ScheduledHost) -> Iterator[str]:
    names = {model.model: model.file for model in schedule.models}
    yield "# ---- what to run ----"
    yield _call("plan_is", f"{schedule.plan} {schedule.revision}")
    yield _call("host_is", host.host, *(one.host for one in schedule.hosts))
    yield "# Islands: GPUs with fast links; span_islands: whether a replica may run on several whole ones."
    yield from (_call("island", *island) for island in host.islands)
    if host.spans_islands:
        yield "span_islands"
    yield "# Models: name of its files, name, the same as JSON, requests."
    for model in schedule.models:
        yield _call("model", model.file, model.model, json.dumps(model.model), model.requests)
    yield "# Replicas: id, model, GPUs, port, seconds that a start may take, command."
    for replica in schedule.replicas:
        if replica.host == host.host:
            limits = (replica.tensor_parallel, replica.port, replica.health_limit_s)
            yield _call("replica", replica.id, names[replica.model], *limits, *replica.command)
    yield "# Steps: what to expect, models on any host; then replicas of this host with their GPUs."
    owners = {replica.id: names[replica.model] for replica in schedule.replicas}
    for step in schedule.steps:
        yield _call("step", _sentence(step), *dict.fromkeys(owners[start.id] for start in step.running))
        for start in step.running:
            if start.host == host.host:
                yield _call("  runs", start.id, ",".join(map(str, start.gpus)))
        if step.ends.until is not None:
            yield _call("  until_requests", names[step.ends.until.model], step.ends.until.requests)


def _sentence(step: ScheduleStep) -> str:
    """What is expected of a step, on one line."""
    ends = [f"{name} finishes" for name in step.ends.expected]
    if step.ends.until is not None:
        ends.append(f"{step.ends.until.model} has finished {step.ends.until.requests} requests")
    when = " or ".join(ends) or "its models have nothing to do"
    return one_line(f"planned from {step.start_s:.0f} s to {step.end_s:.0f} s, until {when}")


def _call(name: str, *arguments: object) -> str:
    return " ".join([name, *(shlex.quote(str(argument)) for argument in arguments)])
