"""Every cloud that can be polled, by name: adding one means a module and a line here."""

from collections.abc import Mapping
from types import MappingProxyType
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
)
from sutler.adapters.config import Provider

PROVIDERS: Final[Mapping[str, Provider]] = MappingProxyType(
    {
        provider.name: provider
        for provider in (
            vastai.PROVIDER,
            runpod.PROVIDER,
            lium.PROVIDER,
            lambda_cloud.PROVIDER,
            verda.PROVIDER,
            hyperstack.PROVIDER,
            shadeform.PROVIDER,
            snapshot_file.PROVIDER,
            gpuhunt_catalog.PROVIDER,
        )
    }
)
