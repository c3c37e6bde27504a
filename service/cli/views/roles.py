"""Plans whose prompts and answers run on replicas of their own: who hands over to whom, and in which ratio."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from rich.table import Table

from sutler.service.cli.views.layout import table_of
from sutler.service.cli.views.wording import number, percent
from sutler.service.documents.plan import ComboDocument, KvTransferDocument

MOST_HAND_OVERS = 30  # chosen: what a screen holds


def hand_overs(transfers: Iterable[KvTransferDocument], group_of: Mapping[str, str]) -> Table:
    """A row per workload and pair of groups; `group_of`: how the tables call a replica."""
    rows: dict[tuple[str, str, str, str], list[KvTransferDocument]] = defaultdict(list)
    for one in transfers:
        rows[one.model, one.workload, group_of[one.prefill], group_of[one.decode]].append(one)
    table = table_of(
        texts=("model", "workload", "from", "to"), numbers=("of its requests", "KV GB each", "exposed ms")
    )
    for names, found in list(rows.items())[:MOST_HAND_OVERS]:
        exposed_s = max((one.exposed_s for one in found if one.exposed_s is not None), default=None)
        table.add_row(
            *names,
            percent(sum(one.fraction for one in found)),
            number(found[0].kv_gb, digits=3),
            number(None if exposed_s is None else 1000 * exposed_s, digits=3),
        )
    if len(rows) > MOST_HAND_OVERS:
        table.add_row(f"... {len(rows) - MOST_HAND_OVERS} more (--json lists all)")
    return table


def combos(found: Iterable[ComboDocument]) -> Table:
    """A row per model and network: `1 × h800 → 2 × h20`, and what a dollar buys."""
    table = table_of(
        texts=("model", "network", "prefill → decode"), numbers=("replicas", "tokens per $", "at peak rates")
    )
    for combo in found:
        table.add_row(
            combo.model,
            combo.network,
            f"{_gpus(combo.prefill_gpus)} → {_gpus(combo.decode_gpus)}",
            f"{combo.prefill_replicas}:{combo.decode_replicas}",
            number(combo.tokens_per_usd),
            number(combo.peak_tokens_per_usd),
        )
    return table


def _gpus(gpus: Mapping[str, int]) -> str:
    return " + ".join(f"{count} × {gpu}" for gpu, count in gpus.items())
