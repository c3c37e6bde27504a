"""A market snapshot in a file, read as if it were a cloud: markets of one's own, made by hand or by another program.

The file is a `sutler/market/v1` document, as `sutler market offers --json` prints it. `SUTLER_FILE_PATH` names it and
`SUTLER_FILE_PROVIDER` picks the offers of one of its providers; without it all of them are taken. Names are put after
the provider that the row names (`vastai/123`), so that rows of several providers stay apart. The time that counts is
that of reading: `taken_at` and `observed_at` are shown, not used, so the file has to be renewed by who writes it.
Machines of one's own may cost 0; other prices have to lie in the usual band.
Nothing is asked over the network.
"""

import json
from pathlib import Path
from typing import Any, Final

from sutler.adapters import values
from sutler.adapters.base import MOST_GPUS_OF_AN_OFFER, Contract, Coverage, Offer, Poll, PriceBand
from sutler.adapters.config import OWNER, Provider, ProviderConfig, ProviderOption
from sutler.adapters.errors import AnswerError, RowError, SetupError
from sutler.adapters.gpu_names import identify
from sutler.adapters.http import USUAL_POLICY, HttpClient
from sutler.adapters.rows import Collected
from sutler.adapters.tally import joined
from sutler.adapters.values import Row

NAME: Final = "file"
SCHEMA: Final = "sutler/market/v1"
CONTRACTS: Final[dict[str, Contract]] = {
    "on_demand": "on_demand",
    "interruptible": "interruptible",
    "spot": "interruptible",
    "reserved": "reserved",
}
FIGURES: Final = (
    *("reliability_fraction", "intra_machine_gb_per_s", "inter_machine_gb_per_s", "disk_gb", "disk_usd_per_gb_month"),
    *("inet_down_gb_per_s", "inet_up_gb_per_s", "inet_down_usd_per_gb", "inet_up_usd_per_gb"),
    *("ram_gb", "cpu_cores", "compute_capability", "cuda_max"),
)
PATH: Final = ProviderOption("path", choices=(), default="", help="the snapshot file, a path on this machine")
ONLY_PROVIDER: Final = ProviderOption(
    "provider", choices=(), default="", help="take only the offers of this provider"
)


def fetch(config: ProviderConfig, _: HttpClient) -> Poll:
    """Reads the file; nothing is asked. Raises SetupError or AnswerError."""
    path = config.text(PATH)
    if not path:
        raise SetupError("config_error", "file: set SUTLER_FILE_PATH to the snapshot file to read")
    return parse(_document(Path(path)), provider=config.text(ONLY_PROVIDER) or None, price_band=config.price_band)


def _document(path: Path) -> Any:
    """The file as JSON. Raises AnswerError (bad_body)."""
    try:
        with path.open("rb") as file:
            content = file.read(USUAL_POLICY.most_body_bytes + 1)
    except (OSError, ValueError) as error:
        kind = getattr(error, "strerror", None) or type(error).__name__
        raise AnswerError("bad_body", f"SUTLER_FILE_PATH: {values.short(str(path))} cannot be read: {kind}") from None
    if len(content) > USUAL_POLICY.most_body_bytes:
        raise AnswerError("bad_body", f"SUTLER_FILE_PATH: more than {USUAL_POLICY.most_body_bytes} bytes")
    try:
        return json.loads(content, parse_int=values.integer_of_digits)
    except (ValueError, RecursionError) as error:
        raise AnswerError("bad_body", f"SUTLER_FILE_PATH: the file is no JSON: {str(error)[:80]}") from None


def parse(data: Any, *, price_band: PriceBand, provider: str | None = None) -> Poll:
    """The offers of a snapshot, or of one `provider` in it. Raises AnswerError (bad_shape)."""
    offers = values.inside(data, "offers")
    if not isinstance(offers, list) or data.get("schema") != SCHEMA:
        raise AnswerError("bad_shape", f"SUTLER_FILE_PATH: the file must hold schema {SCHEMA} and a list of offers")
    collected = Collected()
    chosen = [
        row for row in offers if provider is None or not isinstance(row, dict) or row.get("provider") == provider
    ]
    machines: dict[str, tuple[str, int | None]] = {}

    def offer_of(row: Row) -> Offer:
        """The offer, which has to agree with earlier rows on its machine."""
        offer = _offer(row, price_band)
        machine = (offer.gpu, offer.machine_gpus)
        if offer.machine_id is not None and machines.setdefault(offer.machine_id, machine) != machine:
            raise RowError("bad_shape", "gpu, machine_gpus: differ from those of another row of the machine")
        return offer

    read = sum(collected.read(row, offer_of, *_ids(row)) for row in chosen)
    taken_at = values.text(data, "taken_at") or "an unknown time"
    return collected.poll(Coverage("", None, read), detail=f"taken at {taken_at}", http_status=None)


def _ids(row: object) -> tuple[str | None, ...]:
    """What tells rows apart; the contract only where it is not the usual one."""
    contract = values.text(row, "contract")
    others = (contract,) if contract in CONTRACTS and contract != "on_demand" else ()
    return (values.optional_identifier(row, "provider"), values.optional_identifier(row, "offer_id"), *others)


def _offer(row: Row, price_band: PriceBand) -> Offer:
    """Raises RowError; the limits of a snapshot are those of every offer."""
    provider = values.identifier(row, "provider")
    offer_id = joined(provider, values.identifier(row, "offer_id"))
    gpu = identify(values.text(row, "gpu"), provider=NAME)
    gpus = values.count(row, "gpus", most=MOST_GPUS_OF_AN_OFFER)
    available = values.stated(values.whole(row, "available"), "available")
    machine = values.optional_identifier(row, "machine_id")
    host = values.optional_identifier(row, "host_id")
    return Offer(
        offer_id=offer_id,
        feed=f"{provider}/{'offers' if available else 'list'}",
        gpu=gpu,
        gpus=gpus,
        available=available,
        availability_basis="count" if available else "list",
        price_usd_per_hour=_price_usd_per_hour(row, gpus, price_band),
        contract=_contract(row),
        divisible=values.flag(row, "divisible") or False,
        machine_id=None if machine is None else joined(provider, machine),
        machine_gpus=values.whole(row, "machine_gpus"),
        gpu_ids=_gpu_ids(row),
        site=values.text(row, "site"),
        region=values.text(row, "region"),
        disk_included_gb=values.number(row, "disk_included_gb") or 0.0,
        host_id=None if host is None else joined(provider, host),
        is_verified=values.flag(row, "is_verified"),
        listed_until=values.instant(row, "listed_until"),
        open_ports=values.whole(row, "open_ports"),
        **{name: values.number(row, name) for name in FIGURES},
    )


def _price_usd_per_hour(row: Row, gpus: int, band: PriceBand) -> float:
    """0 is a price here: whoever writes such a file says so of machines that are owned, prepaid or committed."""
    price = values.stated(values.number(row, "price_usd_per_hour"), "price_usd_per_hour")
    return values.checked_price(price, gpus=gpus, band=band, name="price_usd_per_hour") if price else 0.0


def _contract(row: Row) -> Contract:
    found = CONTRACTS.get(values.text(row, "contract") or "")
    if found is None:
        raise RowError("bad_shape", f"contract: {values.short(row.get('contract'))} is not {' or '.join(CONTRACTS)}")
    return found


def _gpu_ids(row: Row) -> tuple[int, ...] | None:
    cards = values.whole_numbers(row, "gpu_ids")
    if row.get("gpu_ids") is not None and cards is None:
        raise RowError("bad_shape", f"gpu_ids: {values.short(row['gpu_ids'])} does not name cards, each once")
    return cards


PROVIDER: Final = Provider(
    name=NAME,
    title="Snapshot file",
    base_url="http://localhost",  # never asked
    fetch=fetch,
    secrets=(),
    needs_key=False,
    options=(PATH, ONLY_PROVIDER, OWNER),
    marks=(PATH.name,),
    poll_interval_s=60.0,
    least_poll_interval_s=5.0,
)
