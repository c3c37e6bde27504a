"""Every cloud that can be polled, by name: adding one means a module and a line here."""

from collections.abc import Mapping
from typing import Final

from sutler.adapters import (
    gpuhunt_catalog,
    hyperstack,
    lambda_cloud,
    lium,
    runpod,
    shadeform,
    snapshot_file,
    vastai,
    verda,
    vultr,
)
from sutler.adapters.config import Provider

_CLOUDS: Final = (
    *(vastai, runpod, lium, lambda_cloud, verda, hyperstack, vultr),
    *(shadeform, snapshot_file, gpuhunt_catalog),
)
PROVIDERS: Final[Mapping[str, Provider]] = {cloud.PROVIDER.name: cloud.PROVIDER for cloud in _CLOUDS}
