"""gpuhunt's price lists of large clouds (https://github.com/dstackai/gpuhunt): breadth, nothing known to be for rent.

gpuhunt is an optional extra: `pip install 'sutler[gpuhunt]'`. It reads its hosted catalogue, which takes long and has
no time limit of its own, so it runs in a process that can be stopped. Its environment variables GPUHUNT_CATALOG_URL
and GPUHUNT_CATALOG_DIR hold there. With `SUTLER_GPUHUNT_CATALOG_DIR` a folder with `<cloud>.csv` files is read
instead, row by row and without gpuhunt, which knows such a folder only by its own environment variable.

gpuhunt calls an SXM and a PCIe card by one name. The form is taken from the cloud's instance name where that tells it
(`FORMS`); other rows of such a name are unknown_gpu.
"""

import csv
import importlib
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from sutler.adapters import values
from sutler.adapters.base import MOST_GPUS, Coverage, Offer, Poll, PriceBand
from sutler.adapters.config import Provider, ProviderConfig, ProviderOption
from sutler.adapters.errors import AnswerError, FetchError, RowError, SetupError, TryLaterError
from sutler.adapters.gpu_names import identify
from sutler.adapters.http import HttpClient
from sutler.adapters.resellers import OURS
from sutler.adapters.rows import Collected
from sutler.adapters.tally import joined
from sutler.adapters.values import Row

NAME: Final = "gpuhunt"
CLOUDS: Final = ("aws", "gcp", "azure", "oci", "nebius", "lambdalabs", "verda")
TIME_LIMIT_S: Final = 60.0  # chosen: gpuhunt has no limit of its own, and the catalogue is large
COMMAND: Final = (sys.executable, "-P", "-m", "sutler.adapters.gpuhunt_catalog")
FIELDS: Final = (
    *("instance_name", "location", "price", "gpu_count", "gpu_name", "gpu_memory", "spot"),
    *("disk_size", "cpu", "memory"),
)
# Which form the instances of a cloud have, by its own instance names: cloud, gpuhunt's GPU name, instance, form.
# Sources: the clouds' pages on GPU machine types, as of November 2026.
FORMS: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("aws", "A100", r"p4de?\..*", "SXM4"),
    ("aws", "H100", r"p5\..*", "SXM5"),
    ("aws", "V100", r"p3(dn)?\..*", "SXM2"),
    ("gcp", "A100", r"a2-.*", "SXM4"),
    ("gcp", "H100", r"a3-(high|mega|edge)gpu-.*", "SXM5"),
    ("azure", "A100", r"Standard_ND.*", "SXM4"),
    ("azure", "A100", r"Standard_NC.*", "PCIE"),
    ("azure", "H100", r"Standard_ND.*", "SXM5"),
    ("azure", "V100", r"Standard_ND40.*", "SXM2"),
    ("azure", "V100", r"Standard_NC.*", "PCIE"),
    ("oci", "A100", r"BM\.GPU(4|\.A100).*", "SXM4"),
    ("oci", "H100", r"BM\.GPU\.H100\.8", "SXM5"),
    ("oci", "V100", r"(BM|VM)\.GPU3.*", "SXM2"),
    ("nebius", "H100", r"gpu-h100-sxm.*", "SXM5"),
    ("lambdalabs", "A100", r"gpu_.*_sxm4", "SXM4"),
    ("lambdalabs", "H100", r"gpu_.*_sxm5", "SXM5"),
    ("lambdalabs", "H100", r"gpu_.*_pcie", "PCIE"),
    ("verda", "A100", r"[0-9]+A100\..*", "SXM4"),
    ("verda", "H100", r"[0-9]+H100\..*", "SXM5"),
    ("verda", "V100", r"[0-9]+V100\..*", "SXM2"),
)
NAMES_OF_SEVERAL_CARDS: Final = frozenset(name for _, name, _, _ in FORMS)
WANTED: Final = ProviderOption(
    "clouds",
    choices=CLOUDS,
    default=",".join(cloud for cloud in CLOUDS if cloud not in OURS),
    help="whose price lists; those that are polled directly only if they are named",
    several=True,
)
CATALOG_DIR: Final = ProviderOption("catalog_dir", choices=(), default="", help="a folder with <cloud>.csv files")


def fetch(config: ProviderConfig, _: HttpClient) -> Poll:
    """Reads the price lists from a folder or from gpuhunt; nothing is asked by sutler itself. Raises FetchError."""
    clouds = config.chosen(WANTED)
    failure = None
    if folder := config.text(CATALOG_DIR):
        rows, failure = _folder_rows(Path(folder), clouds)
    else:
        require_installed("gpuhunt")
        rows = rows_of_command(COMMAND, clouds)
    return parse(rows, price_band=config.price_band, failure=failure)


def _folder_rows(folder: Path, clouds: tuple[str, ...]) -> tuple[dict[str, list[Any]], FetchError | None]:
    """Rows of `<cloud>.csv` files by cloud, and why the last that is left out cannot be read, which all must not."""
    rows: dict[str, list[Any]] = {}
    failure: FetchError | None = None
    for cloud in clouds:
        try:
            rows[cloud] = list(_file_rows(folder / f"{cloud}.csv"))
        except FetchError as error:
            failure = error
    if failure is not None and not rows:
        raise failure
    return rows, failure


def rows_of_command(
    command: tuple[str, ...], clouds: tuple[str, ...], *, time_limit_s: float = TIME_LIMIT_S
) -> dict[str, Any]:
    """The JSON object of rows by cloud that a command prints. Raises TryLaterError or AnswerError."""
    try:
        done = subprocess.run([*command, *clouds], capture_output=True, timeout=time_limit_s, check=False)
    except subprocess.TimeoutExpired:
        raise TryLaterError(f"gpuhunt took longer than {time_limit_s:g} s") from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", errors="replace").strip().splitlines() or ["nothing"]
        raise TryLaterError(f"gpuhunt failed: {said[-1][:200]}")
    try:
        rows = json.loads(done.stdout)
    except ValueError:
        raise AnswerError("bad_body", "gpuhunt printed no JSON; check the version that is installed") from None
    if not isinstance(rows, dict):
        raise AnswerError("bad_shape", "gpuhunt printed no rows by cloud; check the version that is installed")
    return rows


def _file_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Raises AnswerError for a file that cannot be read (bad_body) or is of another format (bad_shape)."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = {"instance_name", "location", "price", "gpu_count", "gpu_name"} - set(reader.fieldnames or ())
            if missing:
                raise AnswerError("bad_shape", f"{path.name}: has no column {', '.join(sorted(missing))}")
            yield from ({name: row.get(name) or None for name in FIELDS} for row in reader)
    except (OSError, ValueError, csv.Error) as error:
        kind = getattr(error, "strerror", None) or type(error).__name__
        raise AnswerError("bad_body", f"SUTLER_GPUHUNT_CATALOG_DIR: {path.name} cannot be read: {kind}") from None


def parse(rows: Mapping[str, Any], *, price_band: PriceBand, failure: FetchError | None = None) -> Poll:
    """The price lists of these clouds; nothing in them is for rent. A cloud without any row stays as it was."""
    collected = Collected()
    covered = []
    for cloud, listed in rows.items():
        if isinstance(listed, list) and listed:
            read = sum(_collect(cloud, row, collected, price_band) for row in listed)
            covered.append(Coverage(f"list/{cloud}/", None, read))
    if not covered:
        raise AnswerError("bad_shape", f"gpuhunt has no prices of {', '.join(rows) or 'any cloud'}")
    return collected.poll(*covered, outcome="prices_only", failure=failure, http_status=None)


def _collect(cloud: str, value: object, collected: Collected, price_band: PriceBand) -> bool:
    """Whether the row has a price; rows without a GPU are passed over."""
    try:
        row = values.as_row(value)
        if values.whole(row, "gpu_count") == 0:
            return False
        collected.keep(_offer(cloud, row, price_band))
    except RowError as error:
        collected.reject({"cloud": cloud, "row": value}, error, cloud, *_ids(value))
        return False
    return True


def _ids(value: object) -> tuple[str | None, ...]:
    """What tells the rows of a cloud apart, which a price that changes does not."""
    kind = "interruptible" if isinstance(value, dict) and values.flag(value, "spot") else "on_demand"
    return (values.optional_identifier(value, "location"), values.optional_identifier(value, "instance_name"), kind)


def _offer(cloud: str, row: Row, price_band: PriceBand) -> Offer:
    """Raises RowError."""
    instance, location = values.identifier(row, "instance_name"), values.identifier(row, "location")
    gpus = values.count(row, "gpu_count", most=MOST_GPUS)
    gpu = identify(_with_form(cloud, row, instance), provider=NAME, memory_gb=values.number(row, "gpu_memory"))
    price = values.stated(values.number(row, "price"), "price", "no_on_demand_price")
    is_spot = _is_spot(row)
    return Offer(
        offer_id=joined(cloud, location, instance),
        feed=f"list/{cloud}/{'interruptible' if is_spot else 'on_demand'}",
        gpu=gpu,
        gpus=gpus,
        available=0,
        availability_basis="list",
        price_usd_per_hour=values.checked_price(price, gpus=gpus, band=price_band, name="price"),
        contract="interruptible" if is_spot else "on_demand",
        site=joined(cloud, location),
        region=location,
        disk_gb=values.nonnegative(row, "disk_size"),
        ram_gb=values.above_zero(row, "memory", "ram_gb"),
        cpu_cores=values.above_zero(row, "cpu", "cpu_cores"),
    )


def _with_form(cloud: str, row: Row, instance: str) -> str | None:
    """ "A100" of an AWS p4d is "A100 SXM4". Raises RowError where the instance does not tell which card is meant."""
    name = values.text(row, "gpu_name")
    if name not in NAMES_OF_SEVERAL_CARDS:
        return name
    for of_cloud, of_gpu, instances, form in FORMS:
        if (of_cloud, of_gpu) == (cloud, name) and re.fullmatch(instances, instance):
            return f"{name} {form}"
    raise RowError("unknown_gpu", f"{values.short(name)}: {values.short(instance)} does not tell SXM from PCIe")


def _is_spot(row: Row) -> bool:
    spot = values.flag(row, "spot")
    if spot is None:
        raise RowError("bad_shape", f"spot: {values.short(row.get('spot'))} is neither true nor false")
    return spot


def print_rows(clouds: list[str]) -> None:
    """Prints the hosted catalogue's rows with a GPU, by cloud, as one JSON object; needs gpuhunt."""
    gpuhunt = importlib.import_module("gpuhunt")
    catalog = gpuhunt.Catalog(balance_resources=False, auto_reload=True)
    rows: dict[str, list[dict[str, Any]]] = {cloud: [] for cloud in clouds}
    for item in catalog.query(provider=clouds, min_gpu_count=1):
        rows[item.provider].append({name: getattr(item, name, None) for name in FIELDS})
    json.dump(rows, sys.stdout)


def require_installed(module: str) -> None:
    """Raises SetupError where there is no such module."""
    if importlib.util.find_spec(module) is None:
        remedy = "pip install 'sutler[gpuhunt]', or set SUTLER_GPUHUNT_CATALOG_DIR to a folder with its CSV files"
        raise SetupError("config_error", f"{module} is not installed: {remedy}")


PROVIDER: Final = Provider(
    name=NAME,
    title="gpuhunt price lists",
    base_url="http://localhost",  # never asked by sutler itself
    fetch=fetch,
    secrets=(),
    needs_key=False,
    options=(WANTED, CATALOG_DIR),
    marks=(WANTED.name, CATALOG_DIR.name),
    poll_interval_s=21_600.0,
    least_poll_interval_s=900.0,
)

if __name__ == "__main__":
    print_rows(sys.argv[1:])
