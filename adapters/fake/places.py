"""Where the fake clouds have machines, in the words of each cloud."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Place:
    """`region` is the cloud's own name, `tier` the part of the cloud that a machine there belongs to."""

    region: str
    country: str
    title: str
    tier: str = ""


PLACES: Final[Mapping[str, tuple[Place, ...]]] = {
    "vastai": tuple(
        Place(f"{area}, {country}" if area else country, country, area)
        for area, country in (
            ("Texas", "US"),
            ("California", "US"),
            ("Ohio", "US"),
            ("Quebec", "CA"),
            ("Sweden", "SE"),
            ("Norway", "NO"),
            ("Czechia", "CZ"),
            ("Germany", "DE"),
            ("United Kingdom", "GB"),
            ("Japan", "JP"),
            ("", "KR"),
            ("New South Wales", "AU"),
        )
    ),
    "runpod": (
        Place("US-KS-2", "US", "US-KS-2", "secure"),
        Place("US-TX-3", "US", "US-TX-3", "secure"),
        Place("CA-MTL-1", "CA", "CA-MTL-1", "secure"),
        Place("EU-RO-1", "RO", "EU-RO-1", "secure"),
        Place("EU-SE-1", "SE", "EU-SE-1", "secure"),
        Place("EUR-IS-1", "IS", "EUR-IS-1", "secure"),
        Place("US", "US", "United States", "community"),
        Place("CZ", "CZ", "Czechia", "community"),
        Place("BG", "BG", "Bulgaria", "community"),
    ),
    "lium": tuple(
        Place(region, country, region, tier)
        for tier in ("standard", "standard", "spot")
        for region, country in (("Virginia", "US"), ("Oregon", "US"), ("Ile-de-France", "FR"), ("Singapore", "SG"))
    ),
    "lambda": (
        Place("us-west-1", "US", "California, USA"),
        Place("us-south-2", "US", "North Texas, USA"),
        Place("us-east-1", "US", "Virginia, USA"),
        Place("europe-central-1", "DE", "Germany"),
    ),
    "verda": (
        Place("FIN-01", "FI", "Finland 1"),
        Place("FIN-03", "FI", "Finland 3"),
        Place("ICE-01", "IS", "Iceland 1"),
    ),
    "hyperstack": (
        Place("CANADA-1", "CA", "Canada 1"),
        Place("NORWAY-1", "NO", "Norway 1"),
        Place("US-1", "US", "US 1"),
    ),
    "vultr": (
        Place("ewr", "US", "New Jersey"),
        Place("ams", "NL", "Amsterdam"),
        Place("nrt", "JP", "Tokyo"),
    ),
    "shadeform": (
        Place("desmoines-usa-1", "US", "US, Des Moines, IA", "massedcompute"),
        Place("wilmington-usa-1", "US", "US, Wilmington, DE", "massedcompute"),
        Place("icat-iceland-1", "IS", "IS, Keflavik", "crusoe"),
    ),
}
