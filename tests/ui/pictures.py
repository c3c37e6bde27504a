"""The pictures of pages for README.md and docs/pages.md, of the played market: `make pictures`."""

import tempfile
from pathlib import Path
from typing import Final

from sutler.adapters.fake.market import Market
from sutler.adapters.fake.server import FakeCloud
from sutler.service.cli.dev import settings_of
from sutler.service.cli.pages_demo import playing
from tests.ui.chromium import ROOT, a_tab, browsing
from tests.ui.conftest import a_port

PICTURES: Final = ROOT / "docs" / "pictures"
HEIGHT: Final = 760


def main() -> None:
    """Plays the demo, and keeps what its pages look like."""
    cloud = FakeCloud(Market(seed=1))
    cloud.start()
    try:
        with tempfile.TemporaryDirectory(prefix="sutler-") as name, browsing() as browser:
            folder = Path(name)
            played = {**settings_of(cloud), "SUTLER_DATA_DIR": str(folder / "data")}
            with playing(folder, played, port=a_port()) as url, a_tab(browser, url, height=HEIGHT) as tab:
                for picture, path in (("deployment", "/ui/deployments/chat"), ("market", "/ui/market")):
                    tab.open(path)
                    tab.page.screenshot(path=PICTURES / f"{picture}.png")
                    print(PICTURES / f"{picture}.png")
    finally:
        cloud.close()


if __name__ == "__main__":
    main()
