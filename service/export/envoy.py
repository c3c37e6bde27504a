"""The plan's weights as clusters of Envoy, one per pool: the file that a `cds_config` of it names and watches.

Which cluster a request goes to is for Envoy's own configuration, examples/envoy/envoy.yaml: names are MODEL/WORKLOAD,
MODEL for requests that name no workload, and ? for those that name no model, where the plan has only one.
https://www.envoyproxy.io/docs/envoy/v1.36.0/configuration/overview/xds_api#filesystem-subscription
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from sutler.service.export.layout import Layout, refuse_phases
from sutler.service.export.router import Pool, ReplicaAddress, in_parts, machine_endpoints, pools_of

CLUSTER: Final = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
PARTS_OF_ONE: Final = 1_000  # as for nginx
CONNECT_TIMEOUT: Final = "2s"
# Envoy's own are 1,024 requests at a time and 3 tries elsewhere; how many a replica takes is for its engine to say.
LIMITS: Final = ("max_connections", "max_pending_requests", "max_requests", "max_retries")
UNLIMITED: Final = 1_000_000
ANY_MODEL: Final = "?"


def envoy_text(layout: Layout) -> tuple[str, tuple[str, ...]]:
    """The clusters; hosts are the names of machines, to be replaced by their addresses. Raises DocumentError."""
    return envoy_clusters(layout, machine_endpoints(layout)), ()


def envoy_clusters(layout: Layout, endpoints: Mapping[str, ReplicaAddress]) -> str:
    """The clusters as a discovery response in JSON.

    Replicas that have no endpoint get no requests. Raises DocumentError for prefill and decode replicas.
    """
    refuse_phases(layout, "envoy")
    document = {
        "version_info": f"plan {layout.plan.id}, revision {layout.plan.revision}",
        "resources": [_cluster(name, pool, endpoints) for name, pool in _named(list(pools_of(layout.plan)))],
    }
    return json.dumps(document, indent=2) + "\n"


def _named(pools: list[Pool]) -> Iterator[tuple[str, Pool]]:
    for pool in pools:
        yield "/".join(quote(part, safe="") for part in (pool.model, pool.workload) if part is not None), pool
    if len({pool.model for pool in pools}) == 1:
        yield ANY_MODEL, pools[-1]


def _cluster(name: str, pool: Pool, endpoints: Mapping[str, ReplicaAddress]) -> dict[str, Any]:
    weights = in_parts(pool.fractions, PARTS_OF_ONE)
    servers = [
        _server(replica, endpoints[replica], weights[replica])
        for replica in sorted(weights.keys() & endpoints.keys())
        if weights[replica]
    ]
    return {
        "@type": CLUSTER,
        "name": name,
        "type": "STRICT_DNS",
        "connect_timeout": CONNECT_TIMEOUT,
        "circuit_breakers": {"thresholds": [dict.fromkeys(LIMITS, UNLIMITED)]},
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": servers}]},
    }


def _server(replica: str, at: ReplicaAddress, weight: int) -> dict[str, Any]:
    address = {"socket_address": {"address": at.host, "port_value": at.port}}
    return {"endpoint": {"hostname": replica, "address": address}, "load_balancing_weight": weight}
