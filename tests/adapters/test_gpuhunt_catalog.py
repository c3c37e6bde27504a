"""gpuhunt's price lists: from a folder of CSV files, or from gpuhunt in a process of its own."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sutler.adapters.base import USUAL_PRICE_BAND, Coverage, Offer, Poll
from sutler.adapters.config import ProviderConfig
from sutler.adapters.errors import AnswerError, SetupError, TryLaterError
from sutler.adapters.gpuhunt_catalog import CLOUDS, PROVIDER, parse, require_installed, rows_of_command
from sutler.adapters.polling import poll
from tests.adapters.cloud_bodies import a_row

HEADER = "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor,flags"
NO_GPU = "m5.large,us-east-1,0.096,2,8.0,0,,,False,,,"


def a_price(instance: str = "p5.48xlarge", **changes: Any) -> dict[str, Any]:
    plain = {
        "instance_name": instance,
        "location": "us-east-1",
        "price": "55.04",
        "gpu_count": "8",
        "gpu_name": "H100",
        "gpu_memory": "80.0",
        "spot": "False",
        "disk_size": None,
    }
    return a_row(plain, changes)


def a_line(**row: Any) -> str:
    row = {"cpu": "192", "memory": "2048.0", "gpu_vendor": "nvidia", "flags": "", **row}
    return ",".join(str(row[name] or "") for name in HEADER.split(","))


def found_in(*rows: Any, cloud: str = "aws") -> Poll:
    return parse({cloud: list(rows)}, price_band=USUAL_PRICE_BAND)


def found_in_folder(folder: Path, **options: str) -> Poll:
    return poll(PROVIDER, ProviderConfig(PROVIDER.base_url, options={"catalog_dir": str(folder), **options}))


def test_a_folder_of_lists_gives_prices_with_nothing_for_rent(tmp_path: Path) -> None:
    spot = a_line(**a_price(price="21.5", spot="True"))
    lines = [HEADER, a_line(**a_price(disk_size="8000")), spot, NO_GPU]
    (tmp_path / "aws.csv").write_text("\n".join(lines), encoding="utf-8")
    found = found_in_folder(tmp_path, clouds="aws")
    on_demand, interruptible = found.offers
    assert on_demand == Offer(
        offer_id="aws/us-east-1/p5.48xlarge",
        feed="list/aws/on_demand",
        gpu="h100-sxm",
        gpus=8,
        available=0,
        availability_basis="list",
        price_usd_per_hour=55.04,
        contract="on_demand",
        site="aws/us-east-1",
        region="us-east-1",
        disk_gb=8000.0,
        ram_gb=2048.0,
        cpu_cores=192.0,
    )
    assert (interruptible.contract, interruptible.price_usd_per_hour) == ("interruptible", 21.5)
    assert (found.outcome, found.kept, found.rejected) == ("prices_only", 0, ())
    assert found.covered == (Coverage("list/aws/", None, 2),)


def test_a_cloud_without_a_file_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "oci.csv").write_text(f"{HEADER}\n{NO_GPU}\n", encoding="utf-8")
    found = found_in_folder(tmp_path)
    assert (found.outcome, [coverage.feed_prefix for coverage in found.covered]) == ("prices_only", ["list/oci/"])
    assert "cannot be read" in found.detail


def test_a_folder_without_any_file_is_bad_body(tmp_path: Path) -> None:
    found = found_in_folder(tmp_path)
    assert (found.outcome, found.covered) == ("bad_body", ())
    assert "SUTLER_GPUHUNT_CATALOG_DIR" in found.detail


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", HEADER])
def test_a_file_of_another_format_or_without_rows_is_bad_shape(tmp_path: Path, text: str) -> None:
    (tmp_path / "aws.csv").write_text(text, encoding="utf-8")
    assert found_in_folder(tmp_path, clouds="aws").outcome == "bad_shape"


def test_a_file_that_is_no_text_is_bad_body(tmp_path: Path) -> None:
    (tmp_path / "aws.csv").write_bytes(b"\xff\xfe\x00garbage")
    assert found_in_folder(tmp_path, clouds="aws").outcome == "bad_body"


@pytest.mark.parametrize(
    ("cloud", "instance", "gpu_name", "memory_gb", "gpu"),
    [
        ("aws", "p4d.24xlarge", "A100", 40, "a100-sxm4-40gb"),
        ("aws", "p4de.24xlarge", "A100", 80, "a100-sxm4-80gb"),
        ("aws", "p3dn.24xlarge", "V100", 32, "v100-sxm2-32gb"),
        ("aws", "g5.xlarge", "A10G", 24, "a10g"),
        ("gcp", "a2-ultragpu-8g", "A100", 80, "a100-sxm4-80gb"),
        ("gcp", "a3-megagpu-8g", "H100", 80, "h100-sxm"),
        ("azure", "Standard_NC24ads_A100_v4", "A100", 80, "a100-pcie-80gb"),
        ("azure", "Standard_ND96asr_v4", "A100", 40, "a100-sxm4-40gb"),
        ("azure", "Standard_NC40ads_H100_v5", "H100NVL", 94, "h100-nvl"),
        ("oci", "BM.GPU4.8", "A100", 40, "a100-sxm4-40gb"),
        ("oci", "BM.GPU.H100.8", "H100", 80, "h100-sxm"),
        ("nebius", "gpu-h100-sxm 8gpu-128vcpu-1600gb", "H100", 80, "h100-sxm"),
        ("lambdalabs", "gpu_1x_h100_pcie", "H100", 80, "h100-pcie"),
        ("lambdalabs", "gpu_1x_rtx6000", "RTX6000", 24, "q-rtx-6000"),
        ("verda", "8H100.80S.176V", "H100", 80, "h100-sxm"),
    ],
)
def test_the_instance_name_tells_the_form(cloud: str, instance: str, gpu_name: str, memory_gb: int, gpu: str) -> None:
    found = found_in(a_price(instance, gpu_name=gpu_name, gpu_memory=memory_gb), cloud=cloud)
    assert [offer.gpu for offer in found.offers] == [gpu]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"instance_name": "x9.large"}, "unknown_gpu"),
        ({"gpu_name": "v5p"}, "unknown_gpu"),
        ({"gpu_name": None}, "unknown_gpu"),
        ({"gpu_memory": "40"}, "unknown_gpu"),
        ({"instance_name": None}, "bad_shape"),
        ({"spot": "maybe"}, "bad_shape"),
        ({"gpu_count": "x"}, "bad_number"),
        ({"price": None}, "no_on_demand_price"),
        ({"price": "n/a"}, "bad_number"),
        ({"price": "0"}, "price_nonpositive"),
        ({"price": "0.01"}, "price_too_low"),
        ({"price": "5504"}, "price_too_high"),
    ],
)
def test_a_bad_row_is_rejected_alone(changes: dict[str, Any], reason: str) -> None:
    found = found_in(a_price(**changes), "no row", a_price(location="eu-west-1"))
    assert [row.reason for row in found.rejected] == [reason, "bad_shape"]
    assert [offer.region for offer in found.offers] == ["eu-west-1"]


def test_a_rejected_row_has_one_name_whatever_its_price() -> None:
    spot = [a_price(price=price, spot="True") for price in ("0.01", "0.02")]
    found = found_in(a_price(price="0.01"), a_price(price="0.02"), *spot, a_price(price="0", location="eu-west-1"))
    assert [row.offer_id for row in found.rejected] == [
        "aws/us-east-1/p5.48xlarge/on_demand",
        "aws/us-east-1/p5.48xlarge/on_demand",
        "aws/us-east-1/p5.48xlarge/interruptible",
        "aws/us-east-1/p5.48xlarge/interruptible",
        "aws/eu-west-1/p5.48xlarge/on_demand",
    ]


def poll_of_program(program: str, *, time_limit_s: float = 30.0) -> Poll:
    rows = rows_of_command((sys.executable, "-c", program), ("aws",), time_limit_s=time_limit_s)
    return parse(rows, price_band=USUAL_PRICE_BAND)


def test_rows_come_from_a_process_that_is_given_the_clouds() -> None:
    rows = json.dumps([a_price()])
    found = poll_of_program(f"import sys; print('{{\"' + sys.argv[1] + '\": ' + {rows!r} + '}}')")
    assert (found.outcome, [offer.offer_id for offer in found.offers]) == (
        "prices_only",
        ["aws/us-east-1/p5.48xlarge"],
    )


def test_a_process_that_hangs_is_stopped() -> None:
    with pytest.raises(TryLaterError, match=r"longer than 0\.5 s"):
        poll_of_program("import time; time.sleep(600)", time_limit_s=0.5)


def test_a_process_that_fails_is_tried_later() -> None:
    with pytest.raises(TryLaterError, match="no catalogue today"):
        poll_of_program("raise SystemExit('no catalogue today')")


@pytest.mark.parametrize(
    ("printed", "outcome"), [("", "bad_body"), ("[]", "bad_shape"), ('{"aws": []}', "bad_shape")]
)
def test_a_process_that_prints_no_rows_is_no_answer(printed: str, outcome: str) -> None:
    with pytest.raises(AnswerError) as raised:
        poll_of_program(f"print({printed!r})")
    assert raised.value.outcome == outcome


def test_without_the_module_the_remedy_is_named() -> None:
    with pytest.raises(SetupError, match=r"sutler\[gpuhunt\]") as raised:
        require_installed("gpuhunt_that_nobody_has")
    assert raised.value.outcome == "config_error"


def test_unknown_clouds_are_a_wrong_setting(tmp_path: Path) -> None:
    found = found_in_folder(tmp_path, clouds="aws,moon")
    assert (found.outcome, "moon" in found.detail) == ("config_error", True)
    assert "aws" in CLOUDS
