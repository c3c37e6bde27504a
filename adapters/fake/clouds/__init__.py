"""Every cloud that the fake plays, by the name of its adapter."""

from collections.abc import Mapping
from typing import Final

from sutler.adapters.fake.clouds.cloud import Cloud
from sutler.adapters.fake.clouds.hyperstack import CLOUD as HYPERSTACK
from sutler.adapters.fake.clouds.lambda_cloud import CLOUD as LAMBDA
from sutler.adapters.fake.clouds.lium import CLOUD as LIUM
from sutler.adapters.fake.clouds.runpod import CLOUD as RUNPOD
from sutler.adapters.fake.clouds.shadeform import CLOUD as SHADEFORM
from sutler.adapters.fake.clouds.vastai import CLOUD as VASTAI
from sutler.adapters.fake.clouds.verda import CLOUD as VERDA
from sutler.adapters.fake.clouds.vultr import CLOUD as VULTR

CLOUDS: Final[Mapping[str, Cloud]] = {
    cloud.name: cloud for cloud in (VASTAI, RUNPOD, LIUM, LAMBDA, VERDA, HYPERSTACK, VULTR, SHADEFORM)
}


def cloud_at(path: str) -> Cloud | None:
    """The cloud that serves this path: no two serve the same."""
    return next((cloud for cloud in CLOUDS.values() if any(path == route for _, route in cloud.routes)), None)
