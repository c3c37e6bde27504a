"""Which GPUs a problem knows: its catalogue's and the caller's own, checked for what the problem asks of them."""

from collections.abc import Iterable, Iterator, Mapping

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.problem import ProblemDocument
from sutler.service.errors import FieldProblem, short_repr
from sutler.service.translation.mapping import mapped
from sutler.service.translation.market_source import FilteredMarket
from sutler.solver.catalog import load_gpus, resolve_gpu
from sutler.solver.catalog.entries import Gpu
from sutler.solver.errors import UnknownNameError

NEEDED_FOR_ESTIMATES = ("memory_bandwidth_gb_per_s", "peak_tflops_bf16_dense")


class GpuChoice:
    """The GPUs that the names of one problem can mean."""

    def __init__(self, document: ProblemDocument) -> None:
        self._document = document
        self._own = own_gpus(document)
        self._catalog = load_gpus(document.catalog)
        self.known: Mapping[str, Gpu] = {**self._catalog, **self._own}

    def check_names(self) -> None:
        """Raises DocumentError for every name in the problem that no GPU has."""
        self._raise_unknown(self._named_in_problem())

    def used(self, market: FilteredMarket, rented: Iterable[str] = ()) -> dict[str, Gpu]:
        """Every GPU that an offer or a measured rate names or that is rented, in the order of their slugs.

        Raises DocumentError for unknown names, and for GPUs of the caller's own without the figures that this
        problem needs.
        """
        offered = [(f"{market.path}offers[{i}].gpu", offer.gpu) for i, offer in market.offers]
        self._raise_unknown(offered)
        measured = {stage.gpu for row in self._document.throughput.table for stage in row.stages}
        for_rent = {slug for _, slug in offered} | {slug for slug in rented if slug in self.known}
        self._check_figures(for_rent, measured)
        return {slug: self.known[slug] for slug in sorted(for_rent | measured)}

    def notes(self) -> Iterator[str]:
        """What to know about GPUs of the caller's own."""
        for slug in sorted(set(self._own) & set(self._catalog)):
            yield f"gpus.{slug} is the problem's own and replaces the one of the catalogue."

    def _named_in_problem(self) -> list[tuple[str, str]]:
        document = self._document
        return [
            *((f"market.filter.gpus[{i}]", slug) for i, slug in enumerate(document.market.filter.gpus)),
            *(
                (f"market.filter.exclude.gpus[{i}]", slug)
                for i, slug in enumerate(document.market.filter.exclude.gpus)
            ),
            *((f"market.stock[{i}].gpu", entry.gpu) for i, entry in enumerate(document.market.stock)),
            *((f"limits.max_gpus.{slug}", slug) for slug in document.limits.max_gpus),
            *(
                (f"throughput.table[{i}].stages[{j}].gpu", stage.gpu)
                for i, row in enumerate(document.throughput.table)
                for j, stage in enumerate(row.stages)
            ),
        ]

    def _raise_unknown(self, named: list[tuple[str, str]]) -> None:
        problems = [
            FieldProblem(field, short_repr(slug), self._remedy(slug))
            for field, slug in named
            if slug not in self.known
        ]
        if problems:
            raise DocumentError(problems)

    def _remedy(self, name: str) -> str:
        try:
            hint = f"did you mean {resolve_gpu(name, self._document.catalog).slug}? "
        except UnknownNameError:
            hint = ""
        listing = "`sutler catalog gpus` lists all" if self._document.catalog == "default" else _listed(self._catalog)
        return f"is no GPU of the catalogue; {hint}{listing}; or describe it under `gpus`"

    def _check_figures(self, for_rent: set[str], measured: set[str]) -> None:
        problems = []
        for slug in sorted(for_rent):
            gpu = self.known[slug]
            if self._is_power_asked() and gpu.tdp_watts is None:
                problems.append(
                    FieldProblem(f"gpus.{slug}.tdp_watts", None, "is missing: power limits and min_power need it")
                )
            if not self._document.throughput.only and slug not in measured:
                problems.extend(
                    FieldProblem(
                        f"gpus.{slug}.{figure}",
                        None,
                        "is missing: estimates need it, no rate is measured on this GPU",
                    )
                    for figure in NEEDED_FOR_ESTIMATES
                    if getattr(gpu, figure) is None
                )
        if problems:
            raise DocumentError(problems)

    def _is_power_asked(self) -> bool:
        return self._document.objective.kind == "min_power" or self._document.limits.max_power_watts is not None


def own_gpus(document: ProblemDocument) -> dict[str, Gpu]:
    """The GPUs that the problem describes itself, by slug."""
    return {slug: mapped(Gpu, gpu, slug=slug) for slug, gpu in document.gpus.items()}


def _listed(catalog: Mapping[str, Gpu]) -> str:
    return f"use one of {', '.join(catalog)}"
