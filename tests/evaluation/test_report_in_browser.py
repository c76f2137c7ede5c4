"""The report page in a real browser: pointer, keyboard, dark mode, right to left, small windows."""

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import piste
from piste.evaluation.study import Study

pytestmark = pytest.mark.browser

HEBREW = "הסרט הזה good מאוד, 5 כוכבים, a truly gripping film לדעתי!"
NASTY = "<b>5 < 6 & 7</b> </script> \"q\" 'q' \x01 tab\t\r\n 😀 e\u0301 end"
TEXTS = ["A gripping film with a weak, silly ending.", HEBREW, NASTY, "one long-" + "x" * 150 + " two"]
FLAGS = [
    "--headless=new",
    "--no-sandbox",  # containers have none to offer
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]
CONTRAST = """
const pixel = (...layers) => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const context = canvas.getContext("2d");
  for (const layer of layers) { context.fillStyle = layer; context.fillRect(0, 0, 1, 1); }
  return context.getImageData(0, 0, 1, 1).data;
};
const light = (data) => {
  const [r, g, b] = [...data].slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const paper = getComputedStyle(document.body).backgroundColor;
return [...document.querySelectorAll(arguments[0])].map((element) => {
  const style = getComputedStyle(element);
  const behind = [paper, style.backgroundColor];
  const [one, two] = [light(pixel(...behind)), light(pixel(...behind, style.color))];
  return (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
});
"""


def words(texts: Sequence[str]) -> np.ndarray:
    """Log-odds that every word changes, some up and some down."""
    scores = [sum((ord(word[0]) % 7 - 3) * len(word) for word in text.split()) / 10 for text in texts]
    return np.array(scores)


@pytest.fixture(scope="module")
def study() -> Study:
    model = piste.load_model(words, kind="raw")
    return piste.explain(
        model, TEXTS, surrogates=("lime", "slalom"), space="raw", budget=300, text_ids=list("abcd")
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium and chromium-driver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.chrome.service.Service(driver)
    opened = webdriver.Chrome(options=options, service=service)
    yield opened
    opened.quit()


@pytest.fixture(scope="module")
def address(study: Study, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "r.html"
    study.to_html(path)
    return path.as_uri()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """The page, freshly opened, in light colours on a wide window; it must end without complaint."""
    emulate(browser, "light", 1200)
    browser.get_log("performance")
    browser.get(address)
    yield browser
    assert browser.get_log("browser") == []


def emulate(browser: Any, scheme: str, width: int) -> None:
    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def layer(page: Any, text: int, place: int = 0) -> list[Any]:
    """The units of a text in one of its layers."""
    found: list[Any] = page.find_elements("css selector", f"#text-{text} .layer")
    return list(found[place].find_elements("css selector", "mark"))


def tip(page: Any) -> str | None:
    """What the tooltip says, None while it is hidden."""
    element = page.find_element("id", "tip")
    return str(element.get_property("textContent")) if element.is_displayed() else None


def press(page: Any, *keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(page, duration=0).send_keys(*keys).perform()


def test_pointing_at_a_word_shows_its_numbers(page: Any, study: Study) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    assert tip(page) is None
    unit = layer(page, 0)[1]
    ActionChains(page, duration=0).move_to_element(unit).perform()
    rows = study.attributions.query("text_id == 'a' and surrogate == 'lime'")
    says = (tip(page) or "").split("\n")
    assert says[0] == rows["token"].iloc[1] == "gripping"
    assert float(says[1].replace("−", "-")) == pytest.approx(rows["score"].iloc[1], rel=5e-3)
    assert says[2].startswith("95 %: ")
    assert float(says[3].removeprefix("std. error ")) == pytest.approx(
        rows["std_error"].iloc[1], rel=5e-3
    )
    assert unit.get_attribute("title") == ""  # no second tooltip of the browser's own
    ActionChains(page, duration=0).move_to_element(page.find_element("id", "tip")).perform()
    assert tip(page) is not None
    ActionChains(page, duration=0).move_to_element(page.find_element("tag name", "h1")).perform()
    assert tip(page) is None


def test_the_keyboard_walks_through_words(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    first = layer(page, 0)
    page.execute_script("document.querySelector('#text-0 .layer mark').focus()")
    seen = [(tip(page) or "").split("\n")[0]]
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT, Keys.END, Keys.HOME):
        press(page, key)
        seen.append((tip(page) or "").split("\n")[0])
    assert seen == ["A", "gripping", "film", "gripping", "ending", "A"]
    assert page.switch_to.active_element == first[0]
    assert first[0].get_attribute("aria-describedby") == "tip"
    press(page, Keys.ESCAPE)
    assert tip(page) is None
    assert first[0].get_attribute("aria-describedby") is None
    assert [unit.get_property("tabIndex") for unit in first] == [0] + [-1] * (len(first) - 1)


def test_tab_visits_skip_link_words_and_choices_in_order(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    press(page, Keys.TAB)
    assert page.switch_to.active_element.text == "Skip to the explanations"
    page.execute_script("document.querySelector('#text-0 .layer mark').focus()")
    visited = []
    for _ in range(4):
        press(page, Keys.TAB)
        active = page.switch_to.active_element
        visited.append((active.tag_name, active.accessible_name or active.text))
    assert visited == [
        ("input", "removal"),
        ("mark", "A"),
        ("summary", "Value against importance"),
        ("summary", "All numbers"),
    ]


def test_choosing_a_kind_shows_its_layer(page: Any) -> None:
    shown = page.find_elements("css selector", "#text-0 .fit:nth-of-type(2) .layer")
    assert [each.is_displayed() for each in shown] == [False, False, False, True, False]
    page.find_elements("css selector", "#text-0 .pick label")[0].click()
    assert [each.is_displayed() for each in shown] == [True, False, False, False, False]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(page: Any, scheme: str) -> None:
    emulate(page, scheme, 1200)
    for classes in ("r s9", "l s9", "i s9", "x", "d", "q"):
        page.execute_script(
            "const mark = document.createElement('mark'); mark.className = arguments[0];"
            "document.querySelector('.words').append(mark)",
            classes,
        )
    for selector in ("mark", ".quiet", "a", "h1", ".badge b", "summary", "td", "small", ".tip"):
        ratios = page.execute_script(CONTRAST, selector)
        assert ratios
        assert min(ratios) >= 4.5, selector
    background = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(253, 253, 252)") == (scheme == "light")


def test_right_to_left_text_reads_as_it_is_written(page: Any) -> None:
    units = layer(page, 1)
    left = {unit.text: unit.rect["x"] for unit in units}
    paragraph = page.find_element("css selector", "#text-1 .words")
    assert paragraph.value_of_css_property("direction") == "rtl"
    hebrew = ["הסרט", "הזה", "מאוד", "כוכבים", "לדעתי"]
    assert [left[word] for word in hebrew] == sorted((left[w] for w in hebrew), reverse=True)
    english = ["a", "truly", "gripping", "film"]
    assert [left[word] for word in english] == sorted(left[word] for word in english)
    assert left["הזה"] > left["good"] > left["מאוד"] > left["5"] > left["כוכבים"] > left["film"]
    assert paragraph.get_property("textContent") == HEBREW


def test_arrows_follow_the_direction_of_the_text(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    page.execute_script("document.querySelector('#text-1 .layer mark').focus()")
    press(page, Keys.ARROW_LEFT)
    assert page.switch_to.active_element.text == "הזה"
    press(page, Keys.ARROW_RIGHT)
    assert page.switch_to.active_element.text == "הסרט"
    press(page, Keys.ARROW_DOWN)
    assert page.switch_to.active_element.text == "הזה"


def test_the_browser_reads_back_every_character(page: Any) -> None:
    found = page.execute_script(
        "return [...document.querySelectorAll('.words')].map((each) => each.textContent)"
    )
    assert set(found) == set(TEXTS)
    assert page.execute_script("return document.scripts.length") == 1


def test_nothing_is_asked_of_a_network(page: Any, address: str) -> None:
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    asked = {
        e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"
    }
    assert asked == {address}


def test_a_foreign_script_does_not_run(page: Any, tmp_path: Path, study: Study) -> None:
    study.to_html(tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    (tmp_path / "r.html").write_text(text.replace("</main>", "</main><script>alerted=1</script>"))
    page.get((tmp_path / "r.html").as_uri())
    assert page.execute_script("return typeof alerted") == "undefined"
    (refusal,) = page.get_log("browser")
    assert "Content Security Policy" in refusal["message"]


@pytest.mark.parametrize("width", [320, 600])
def test_a_small_window_does_not_scroll_sideways(page: Any, width: int) -> None:
    emulate(page, "light", width)
    page.execute_script("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    page.execute_script("[...document.querySelectorAll('#text-3 .layer mark')].at(-1).focus()")
    box = page.find_element("id", "tip").rect
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width


def test_without_scripts_everything_is_there(page: Any, address: str) -> None:
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    page.get(address)
    unit = layer(page, 0)[1]
    assert unit.get_dom_attribute("title").split("\n")[1].startswith("95 %: ")
    page.find_elements("css selector", "#text-0 .pick label")[0].click()
    assert page.find_elements("css selector", "#text-0 .layer")[1].is_displayed()
    page.find_elements("css selector", "#text-0 summary")[-1].click()
    assert page.find_element("css selector", "#text-0 td").is_displayed()
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_a_notebook_cell_keeps_its_styles_to_itself(page: Any, tmp_path: Path, study: Study) -> None:
    around = "<!DOCTYPE html><meta charset=utf-8><p id=p>outside <mark id=m>x</mark></p>"
    results = []
    for name, inside in (("with", study._repr_html_()), ("without", "")):
        (tmp_path / name).with_suffix(".html").write_text(around + inside, encoding="utf-8")
        page.get((tmp_path / name).with_suffix(".html").as_uri())
        results.append(
            page.execute_script(
                "return ['p', 'm'].map((id) => [...getComputedStyle(document.getElementById(id))]"
                ".map((key) => getComputedStyle(document.getElementById(id))[key]).join())"
            )
        )
    assert results[0] == results[1]
