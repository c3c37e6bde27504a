"""How SkyPilot 0.14 calls clouds and GPUs, and which clouds it runs several nodes on.

GPU names are those of its catalogues (version 8, https://github.com/skypilot-org/skypilot-catalog); the same card has
different names on different clouds, and one name can stand for several cards.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# Providers of our markets that SkyPilot rents from, by the name that its `infra` takes.
CLOUDS: Final[Mapping[str, str]] = {
    "vastai": "vast",
    "runpod": "runpod",
    "lambda": "lambda",
    "shadeform": "shadeform",
    "verda": "verda",
    "aws": "aws",
    "gcp": "gcp",
    "azure": "azure",
    "oci": "oci",
    "nebius": "nebius",
    "cudo": "cudo",
    "hyperbolic": "hyperbolic",
}
# Where sky/clouds/*.py of 0.14.1 lists MULTI_NODE, or SPOT_INSTANCE, as unsupported.
ONE_NODE_ONLY: Final = frozenset({"vast", "runpod", "shadeform", "verda", "hyperbolic"})
NO_SPOT: Final = frozenset({"lambda", "shadeform", "cudo", "hyperbolic"})

_IN_CAPITALS: Final = (
    *("b200", "b300", "gh200", "h100-nvl", "h200-nvl", "l4", "l40", "l40s"),
    *("a10", "a10g", "a16", "a30", "a40", "t4", "mi300x"),
)
_WITHOUT_DASHES: Final = (
    *("rtx-a4000", "rtx-a4500", "rtx-a5000", "rtx-a6000"),
    *("rtx-5090", "rtx-5080", "rtx-4090", "rtx-4080", "rtx-3090", "rtx-3080"),
)
_GENERAL: Final[Mapping[str, str]] = {
    "h100-sxm": "H100",
    "h100-pcie": "H100",
    "h200-sxm": "H200",
    "a100-sxm4-80gb": "A100-80GB",
    "a100-pcie-80gb": "A100-80GB",
    "a100-sxm4-40gb": "A100",
    "a100-pcie-40gb": "A100",
    "rtx-6000-ada": "RTX6000-Ada",
    "rtx-5000-ada": "RTX5000-Ada",
    "rtx-4000-ada": "RTX4000-Ada",
    "rtx-2000-ada": "RTX2000-Ada",
    "v100-sxm2-16gb": "V100",
    "v100-pcie-16gb": "V100",
    "v100-sxm2-32gb": "V100-32GB",
    **{slug: slug.upper() for slug in _IN_CAPITALS},
    **{slug: slug.upper().replace("-", "") for slug in _WITHOUT_DASHES},
}
_OF_CLOUD: Final[Mapping[str, Mapping[str, str]]] = {
    "runpod": {
        "h100-sxm": "H100-SXM",
        "h200-sxm": "H200-SXM",
        "a100-sxm4-80gb": "A100-80GB-SXM",
        "rtx-pro-6000-server": "RTXPRO6000",
        "rtx-pro-6000-ws": "RTXPRO6000-WK",
        "rtx-pro-6000-maxq": "RTXPRO6000-MaxQ",
        "rtx-pro-4500": "RTXPRO4500",
        "rtx-4080-super": "RTX4080-SUPER",
        "rtx-3090-ti": "RTX3090-Ti",
        "rtx-3080-ti": "RTX3080-Ti",
        "v100-sxm2-16gb": "V100-SXM2",
        "v100-sxm2-32gb": "V100-SXM2-32GB",
    },
    "vast": {
        "h100-nvl": "H100",
        "h200-nvl": "H200",
        "a100-sxm4-80gb": "A100",
        "a100-pcie-80gb": "A100",
        "rtx-pro-6000-server": "RTXPRO6000S",
        "rtx-pro-6000-ws": "RTXPRO6000WS",
        "rtx-4090d": "RTX4090",
        "rtx-3090-ti": "RTX3090",
        "rtx-3080-ti": "RTX3080",
        "v100-sxm2-32gb": "V100",
    },
    "lambda": {"rtx-a6000": "A6000"},
    "shadeform": {
        "h100-nvl": "H100",
        "rtx-a6000": "A6000",
        "rtx-a5000": "A5000",
        "rtx-a4000": "A4000",
        "rtx-6000-ada": "RTX6000Ada",
    },
    "verda": {
        "rtx-pro-6000-server": "RTX-PRO-6000",
        "rtx-6000-ada": "RTX-6000-Ada",
        "rtx-a6000": "RTX-A6000",
    },
}


@dataclass(frozen=True, slots=True)
class Accelerator:
    """SkyPilot's name of a GPU; `also` are other cards that it calls the same there."""

    name: str
    is_known: bool
    also: tuple[str, ...]


def accelerator_of(gpu: str, cloud: str | None) -> Accelerator:
    """The name of a GPU slug on a cloud of SkyPilot (None: any); an unknown one keeps its slug, in capitals."""
    names = {**_GENERAL, **_OF_CLOUD.get(cloud or "", {})}
    if gpu not in names:
        return Accelerator(gpu.upper(), is_known=False, also=())
    same = tuple(slug for slug, name in names.items() if name == names[gpu] and slug != gpu)
    return Accelerator(names[gpu], is_known=True, also=same)
