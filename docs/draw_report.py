"""Draw docs/report.png, the README's picture of a report page: `python docs/draw_report.py`.

Needs Chromium and its driver, and selenium (the `dev` extra).
"""

import shutil
import tempfile
from pathlib import Path

from PIL import Image
from selenium import webdriver

import piste

TEXT = "The songs are lovely and both leads are a joy, but the ending is weak and silly."
WIDTH, HEIGHT = 860, 1075


def main() -> None:
    """Explain one sentence with the embedded model and keep what a browser shows of its page."""
    study = piste.explain("builtin:sentiment", TEXT, surrogates=("lime", "slalom"))
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(flag)
    service = webdriver.chrome.service.Service(shutil.which("chromedriver"))
    with tempfile.TemporaryDirectory() as folder, webdriver.Chrome(options, service) as browser:
        path = Path(folder) / "report.html"
        study.to_html(path)
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1.5, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(path.as_uri())
        browser.execute_script(
            "document.querySelector('.fit:last-of-type details').open = true;"
            "document.querySelectorAll('#text-0 .layer mark')[14].focus({ preventScroll: true })"
        )
        picture = Path(__file__).with_name("report.png")
        browser.save_screenshot(str(picture))
    # A palette keeps the file small; the page has few colours.
    Image.open(picture).convert("RGB").quantize(128).save(picture, optimize=True)


if __name__ == "__main__":
    main()
