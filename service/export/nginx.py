"""The plan's weights as a configuration of nginx: one upstream per pool, chosen by model and workload.

A request names its model in the JSON of its body and, if it wants, its workload in a header. nginx knows the body
once it has been read, which `mirror` has it do before the upstream is chosen.
https://nginx.org/en/docs/http/ngx_http_mirror_module.html#mirror_request_body,
https://nginx.org/en/docs/http/ngx_http_core_module.html#var_request_body
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from math import ceil
from typing import Final

from sutler.service.export.command import heading_of
from sutler.service.export.layout import Layout, refuse_phases
from sutler.service.export.naming import one_line
from sutler.service.export.router import Pool, ReplicaAddress, in_parts, machine_endpoints, pools_of

LISTEN: Final = "8080"
PARTS_OF_ONE: Final = 1_000  # chosen: shares to a tenth of a percent; what gets less than half of that gets nothing
USAGE: Final = (
    "For nginx 1.13.4 or newer, inside http { } (in Debian: /etc/nginx/conf.d). Hosts are machines of the plan: put "
    "in their addresses."
)
# The first member "model" of a JSON object: its value, quotes included. Quotes within strings follow a backslash.
MODEL: Final = r'~(?<!\\)"model"\s*:\s*(?<sutler_named>"(?:[^"\\]|\\.)*+")'
# A request is tried a second time where its replica dies before it answers, but not on a third: it may be the reason.
SERVER: Final = """\
server {
    listen %(listen)s;
    keepalive_timeout 0;  # a reload ends idle connections: what was sent over one just then would fail
    client_max_body_size 32m;
    client_body_buffer_size 32m;  # in memory, where the model is looked for

    location / {
        mirror /sutler-reads-the-body;
        proxy_pass http://$sutler_pool;
        proxy_http_version 1.1;
        proxy_set_header Host $http_host;
        proxy_set_header Connection close;
        proxy_buffering off;  # tokens go out as they come
        proxy_connect_timeout 2s;
        proxy_read_timeout 1h;
        proxy_next_upstream error timeout non_idempotent;
        proxy_next_upstream_tries 2;
        error_page 500 = @sutler_unserved;
    }
    location = /sutler-reads-the-body {
        internal;
        return 204;
    }
    location @sutler_unserved {
        default_type application/json;
        add_header Retry-After $sutler_retry_after_s always;
        if ($sutler_pool) {
            return 500 '{"error": {"message": "nginx failed: see its error log"}}';
        }
        if ($sutler_retry_after_s) {
            return 503 '{"error": {"message": "the model sleeps: ask again after Retry-After", "code": "asleep"}}';
        }
        return 404 '{"error": {"message": "no such model, see /v1/models", "code": "model_not_found"}}';
    }
    location = /v1/models {
        default_type application/json;
        set $sutler_models '';
%(models)s
        return 200 '{"object": "list", "data": [$sutler_models]}';
    }
}
"""


def nginx_text(layout: Layout) -> tuple[str, tuple[str, ...]]:
    """The configuration; hosts are the names of machines, to be replaced by their addresses. Raises DocumentError."""
    return nginx_config(layout, machine_endpoints(layout)), ()


def nginx_config(layout: Layout, endpoints: Mapping[str, ReplicaAddress], listen: str = LISTEN) -> str:
    """What belongs inside nginx's `http`; `listen` as nginx has it: a port, or an address and a port.

    Replicas that have no endpoint get no requests. Raises DocumentError for prefill and decode replicas.
    """
    refuse_phases(layout, "nginx")
    pools = {f"sutler_{number}": pool for number, pool in enumerate(pools_of(layout.plan))}
    models = list(dict.fromkeys([*(pool.model for pool in pools.values()), *(s.model for s in layout.plan.sleeping)]))
    lines = [
        *(f"# {line}".rstrip() for line in heading_of(layout, (USAGE,), ())),
        *_map("$request_body", "$sutler_model", [(_quoted(MODEL), "$sutler_named")]),
        *_map('"$sutler_model $http_x_sutler_workload"', "$sutler_pool", _choices(pools, models)),
        *_map(
            "$sutler_model",
            "$sutler_retry_after_s",
            [(_quoted(f"~^{_as_json(one.model)}$"), str(ceil(one.starts_in_s))) for one in layout.plan.sleeping],
        ),
    ]
    for name, pool in pools.items():
        lines += _upstream(name, pool, endpoints)
    listed = [f"        set $sutler_models {_quoted(text)};" for text in _listed(models)]
    return "\n".join([*lines, SERVER % {"listen": listen, "models": "\n".join(listed)}])


def _map(source: str, target: str, entries: Iterable[tuple[str, str]]) -> list[str]:
    return [f"map {source} {target} {{", *(f"    {key} {value};" for key, value in entries), "}"]


def _choices(pools: Mapping[str, Pool], models: list[str]) -> Iterator[tuple[str, str]]:
    """Patterns in the order in which they are tried: the workloads of a model, then what else is for it.

    What names no model is for the only one.
    """
    for name, pool in pools.items():
        workload = "" if pool.workload is None else f"{re.escape(pool.workload)}$"
        yield _quoted(f"~^{_as_json(pool.model)} {workload}"), name
    if len(models) == 1 and pools:
        yield "default", list(pools)[-1]


def _as_json(model: str) -> str:
    """A pattern of the name as JSON has it: some writers escape what is not ASCII, and slashes."""
    spellings = dict.fromkeys(json.dumps(model, ensure_ascii=is_ascii) for is_ascii in (True, False))
    patterns = [re.escape(spelling).replace("/", r"\\?/") for spelling in spellings]
    return patterns[0] if len(patterns) == 1 else f"(?:{'|'.join(patterns)})"


def _upstream(name: str, pool: Pool, endpoints: Mapping[str, ReplicaAddress]) -> Iterator[str]:
    yield f"# {one_line(pool.model)}: {'no workload named' if pool.workload is None else one_line(pool.workload)}"
    yield f"upstream {name} {{"
    yield f"    zone {name} 256k;"  # so that all workers count together
    shares = {replica: parts for replica, parts in in_parts(pool.fractions, PARTS_OF_ONE).items() if parts}
    for replica in sorted(shares.keys() & endpoints.keys()):
        yield f"    server {endpoints[replica].netloc} weight={shares[replica]};  # {one_line(replica)}"
    if not shares.keys() & endpoints.keys():
        yield "    server 127.0.0.1:9 down;  # nobody knows where its replicas are"
    yield "}"


def _listed(models: list[str]) -> Iterator[str]:
    for number, model in enumerate(models):
        entry = json.dumps({"id": model, "object": "model"}).replace("$", r"\u0024")  # no variables in names
        yield entry if number == 0 else f"$sutler_models, {entry}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
