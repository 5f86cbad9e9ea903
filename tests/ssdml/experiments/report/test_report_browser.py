"""The report in a browser: loading, controls, keyboard, touch, print."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ssdml import SSDML
from ssdml.datasets import Dataset, LabelScarceSplit
from ssdml.experiments import compare
from ssdml.experiments.labeling.labels import label_rows
from ssdml.experiments.report import write_report
from ssdml.experiments.report.labeled import render_page
from ssdml.experiments.runs.details import load_details, save_details
from ssdml.experiments.runs.results import RESULTS, read_rows

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")

METHODS = ("input", "lda", "ssdml")
PANEL = ".map canvas:not(.marks)"
WIDTHS = {"desk": 1100, "phone": 390}


@pytest.fixture(scope="module")
def pictures() -> Dataset:
    """Three overlapping classes of images of two by two pixels."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 40)
    X = (rng.normal(size=(120, 4)) + 2 * np.eye(4)[y]).astype(np.float32)
    return Dataset("<blobs> & co", X, y, ("a", "b", "<c>"), item_shape=(2, 2))


@pytest.fixture(scope="module")
def folder(pictures, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("compared")
    compare(pictures, METHODS, out=out, labels_per_class=[5], seeds=[0, 1])
    write_report(out)
    return out


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        shown = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield shown
        shown.close()


class Complaints(list[str]):
    """Console messages, errors and outside requests of pages."""

    def hear(self, page: Any) -> None:
        page.on("console", lambda message: self.append(message.text))
        page.on("pageerror", lambda error: self.append(str(error)))
        page.on("request", lambda request: self.refuse_outside(request.url))

    def refuse_outside(self, url: str) -> None:
        if not url.startswith(("about:", "file:", "data:", "blob:")):
            self.append(f"asked for {url}")


@pytest.fixture(scope="module")
def complaints() -> Complaints:
    return Complaints()


@pytest.fixture(scope="module")
def blank_page(browser, complaints):
    """An empty page of a width with settings; each has one process, which takes a second."""

    @cache
    def page(width: str, settings: tuple[tuple[str, Any], ...]) -> Any:
        size = {"width": WIDTHS[width], "height": 900}
        page = browser.new_context(viewport=size, **dict(settings)).new_page()
        complaints.hear(page)
        return page

    def blank(width: str, settings: dict[str, Any]) -> Any:
        found = page(width, tuple(sorted(settings.items())))
        found.emulate_media(media="screen")
        found.mouse.move(0, 0)
        found.goto("about:blank")
        return found

    return blank


@pytest.fixture
def open_page(blank_page, complaints, folder):
    """Open the report; console messages and outside requests fail the test."""
    complaints.clear()

    def opened(width: str = "desk", **settings: Any) -> Any:
        page = blank_page(width, settings)
        page.goto((folder / "report.html").as_uri())
        return page

    yield opened
    assert complaints == []


def drawn(page: Any, panel: int = 1) -> str:
    """The pixels of a map, as text."""
    return page.locator(PANEL).nth(panel).evaluate("canvas => canvas.toDataURL()")


def answers(folder: Path) -> tuple[list[str], dict[str, Any], LabelScarceSplit]:
    """Methods on the map, their answers, and the split."""
    rows = {row["method"]: row for row in read_rows(folder / RESULTS) if row["seed"] == 0}
    found = {
        name: load_details(folder / "details" / f"{row['config_hash']}.npz").answers
        for name, row in rows.items()
    }
    (split,) = (folder / "splits").glob("*seed-0.json")
    return list(rows), found, LabelScarceSplit.load(split)


def test_the_page_loads_without_outside_requests(open_page):
    page = open_page()
    page.wait_for_selector(".explorer.ready")
    assert page.locator(PANEL).count() == 2
    assert "Point at a sample" in page.inner_text(".card")


def test_arrow_keys_describe_samples_correctly(open_page, folder, pictures):
    page = open_page()
    _, found, split = answers(folder)
    shown = page.locator(".panels figure:has(.map) h3").all_inner_texts()
    methods = [name.split()[-1] for name in shown]
    page.locator(PANEL).nth(0).focus()
    seen = set()
    for key in ("ArrowLeft", "ArrowUp", "ArrowRight", "ArrowRight", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
        told = page.inner_text(".card")
        row = re.search(r"sample (\d+): (\S+)", told)
        if row is None:
            continue  # a labeled sample
        number = int(row[1])
        seen.add(number)
        assert row[2] == pictures.class_names[pictures.y[number]]
        place = int(np.flatnonzero(split.test == number)[0])
        for method in methods:
            near = split.test[found[method].neighbors[place]]
            n_alike = int((pictures.y[near] == pictures.y[number]).sum())
            assert re.search(rf"{method} .*{n_alike} of {len(near)} neighbors", told)
            taken = found[method].predictions.classes[place]
            verdict = "✓" if taken == pictures.y[number] else "✗"
            assert f"predicted {pictures.class_names[taken]} {verdict}" in told
    assert len(seen) > 1
    page.keyboard.press("Escape")
    assert "Point at a sample" in page.inner_text(".card")


def test_pointing_marks_the_sample_in_both_maps(open_page):
    page = open_page()
    page.wait_for_selector(".explorer.ready")
    marks = page.locator(".map .marks")
    before = [marks.nth(i).evaluate("canvas => canvas.toDataURL()") for i in (0, 1)]
    canvas = page.locator(PANEL).nth(0)
    size = canvas.bounding_box()["width"]
    for share in np.linspace(0.1, 0.9, 30):  # the diagonal meets a dot somewhere
        canvas.hover(position={"x": share * size, "y": share * size})
        if "Point at a sample" not in page.inner_text(".card"):
            break
    after = [marks.nth(i).evaluate("canvas => canvas.toDataURL()") for i in (0, 1)]
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_color_buttons_switch_map_and_legend(open_page):
    page = open_page()
    by_class = drawn(page)
    pictures = {"class": by_class}
    for name in ("errors", "confidence"):
        page.click(f"button[data-color={name}]")
        pictures[name] = drawn(page)
        assert page.get_attribute(f"button[data-color={name}]", "aria-pressed") == "true"
        assert page.get_attribute("button[data-color=class]", "aria-pressed") == "false"
        assert page.locator(f"[data-legend={name}]").is_visible()
        assert not page.locator("[data-legend=class]").is_visible()
    assert len(set(pictures.values())) == 3
    page.click("button[data-color=class]")
    assert drawn(page) == by_class


@pytest.mark.parametrize(
    ("there", "back"),
    [("data-only='1'", "data-only='1'"), ("data-zoom='2'", "data-zoom='0.5'")],
    ids=["a class shown alone", "enlarged"],
)
def test_map_changes_are_reversible(open_page, there, back):
    page = open_page()
    before = drawn(page)
    page.click(f"button[{there}]")
    assert drawn(page) != before
    page.click(f"button[{back}]")
    assert drawn(page) == before


def test_the_gallery_shows_the_neighbors_per_method(open_page, folder, pictures):
    page = open_page()
    _, found, split = answers(folder)
    y = pictures.y[split.test]
    shown = page.locator(".panels figure:has(.map) h3").all_inner_texts()
    before, after = (found[name.split()[-1]].neighbors for name in shown)
    finds = {"before": y[before[:, 0]] == y, "after": y[after[:, 0]] == y}
    n = {"any": len(y), "gained": (~finds["before"] & finds["after"]).sum(),
         "lost": (finds["before"] & ~finds["after"]).sum()}  # fmt: skip
    assert n["gained"] or n["lost"]
    for name, count in n.items():
        page.click(f"button[data-queries={name}]")
        told = page.inner_text(".shown")
        assert told == (f"1 to {min(6, count)} of {count}" if count else "none")
        assert page.locator(".query").count() == min(6, count)
        assert page.locator("button[data-queries=next]").is_disabled() == (count <= 6)
    page.click("button[data-queries=any]")
    right, wrong = page.locator(".found li.right").count(), page.locator(".found li.wrong").count()
    assert right + wrong == 6 * (before.shape[1] + after.shape[1])
    assert page.locator(".found li.wrong .verdict").count() == wrong > 0
    page.click("button[data-queries=next]")
    assert page.inner_text(".shown") == f"7 to 12 of {len(y)}"


def dot(page: Any) -> dict[str, float]:
    """Position of a test sample on the second map, in its pixels."""
    canvas = page.locator(PANEL).nth(1)
    size = canvas.bounding_box()["width"]
    for x, y in np.random.default_rng(0).uniform(0.1 * size, 0.9 * size, (200, 2)):
        canvas.hover(position={"x": x, "y": y})
        if re.search(r"sample \d+:", page.inner_text(".card")):
            return {"x": x, "y": y}
    raise AssertionError("no sample found")


@pytest.mark.parametrize("by", ["key", "mouse", "finger"])
def test_a_chosen_sample_leads_the_gallery(open_page, by):
    place = dot(open_page())
    page = open_page(**({"has_touch": True} if by == "finger" else {}))
    canvas = page.locator(PANEL).nth(1)
    if by == "key":
        canvas.hover(position=place)
        canvas.focus()
        page.keyboard.press("Enter")
    elif by == "mouse":
        canvas.click(position=place)
    else:
        canvas.tap(position=place)
    told = page.locator(".card .picture").get_attribute("aria-label")
    assert page.locator(".query").count() == 7
    assert page.locator(".asked .picture").first.get_attribute("aria-label") == told


def test_a_zoomed_map_follows_the_keys(open_page):
    page = open_page()
    page.locator(PANEL).nth(1).focus()
    for _ in range(4):
        page.keyboard.press("+")
    before = drawn(page)
    for _ in range(40):
        page.keyboard.press("ArrowLeft")
    assert drawn(page) != before
    assert re.search(r"sample \d+", page.inner_text(".card"))


def test_dragging_a_zoomed_map_chooses_no_sample(open_page):
    page = open_page()
    page.click("button[data-zoom='2']")
    canvas = page.locator(PANEL).nth(1)
    before, box = drawn(page), canvas.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y + 40, steps=4)
    page.mouse.up()
    assert drawn(page) != before
    assert page.locator(".query").count() == 6


def test_sections_without_answers_stay_static(browser, pictures, tmp_path):
    for name in ("earlier", "later"):
        again = replace(pictures, name=name, X=pictures.X + len(name))
        compare(again, ["input", "lda"], out=tmp_path, labels_per_class=[5], seeds=[0], resume=True)
        if name == "earlier":
            for path in (tmp_path / "details").iterdir():
                save_details(path, replace(load_details(path), answers=None))
    page = browser.new_page()
    page.goto(write_report(tmp_path).as_uri())
    assert page.locator("h1:visible").all_inner_texts() == ["earlier with 5 labels per class"]
    page.click("text=later")
    page.wait_for_selector(".explorer.ready")
    assert page.locator("h1:visible").all_inner_texts() == ["later with 5 labels per class"]
    assert page.locator(".map svg").count() == page.locator(PANEL).count() == 2
    page.keyboard.press("ArrowLeft")
    assert page.locator("[aria-selected=true]").all_inner_texts() == ["earlier"]
    page.goto(f"{page.url.partition('#')[0]}#set-2-scores")
    assert page.locator("[aria-selected=true]").all_inner_texts() == ["later"]
    page.emulate_media(media="print")
    assert page.locator("h1:visible").count() == 2
    page.close()


def test_contents_stay_and_lead_to_the_headings(open_page):
    page = open_page()
    names = page.locator(".contents a").all_inner_texts()
    assert names[:2] == ["Maps", "Scores"]
    assert names == page.locator("h2").all_inner_texts()
    for link in page.locator(".contents a").all():
        link.click()
        target = page.locator(link.get_attribute("href"))
        page.wait_for_function("y => window.scrollY >= 0", arg=0)
        box = target.bounding_box()
        bar = page.locator(".contents").bounding_box()
        assert bar["y"] == 0
        assert bar["height"] <= box["y"] < 900


def test_a_thumbnail_shows_its_sample(open_page, pictures):
    """The four pixels are in the order of those of the sample."""
    page = open_page()
    page.locator(PANEL).nth(1).focus()
    page.keyboard.press("ArrowLeft")
    number = int(re.search(r"sample (\d+)", page.inner_text(".card"))[1])
    shot = page.locator(".card .picture").screenshot()
    from io import BytesIO

    from PIL import Image

    pixels = np.asarray(Image.open(BytesIO(shot)).convert("L"), dtype=float)
    h, w = (side // 4 for side in pixels.shape)
    corners = np.array([pixels[h, w], pixels[h, 3 * w], pixels[3 * h, w], pixels[3 * h, 3 * w]])
    assert len(set(corners)) > 2
    assert (np.diff(corners[pictures.X[number].argsort()]) >= 0).all()  # rounded to whole numbers


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_fits_the_screen(open_page, width):
    phone = {"is_mobile": True, "has_touch": True} if width == "phone" else {}
    page = open_page(width, **phone)
    page.wait_for_selector(".explorer.ready")
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]


LONG = [f"a_rather_long_name_of_class_{c}" for c in range(77)]


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> Path:
    """A report on 77 classes with long names, close to each other."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(77), 12)
    X = (rng.normal(size=(len(y), 8)) + 1.5 * rng.normal(size=(77, 8))[y]).astype(np.float32)
    out = tmp_path_factory.mktemp("many")
    texts = np.array([f"text {i} about nothing in particular" for i in range(len(y))], dtype=object)
    many = Dataset("many", X, y, tuple(LONG), texts=texts)
    compare(many, ["input", "lda"], out=out, labels_per_class=[3], seeds=[0])
    return write_report(out)


SPY = """
const shown = [];
window.shown = shown;
const fill = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const half = this.measureText(text).width / 2;
  shown.push([x - half, y - 5, x + half, y + 5, this.canvas.clientWidth]);
  return fill.call(this, text, x, y);
};
"""


@pytest.mark.parametrize("width", WIDTHS)
def test_names_stay_on_a_crowded_map(browser, many, width):
    size = {"width": WIDTHS[width], "height": 900}
    page = browser.new_page(viewport=size)
    page.add_init_script(SPY)
    page.goto(many.as_uri())
    page.wait_for_selector(".explorer.ready")
    boxes = page.evaluate("window.shown")
    assert boxes
    assert all(b[0] >= 0 and b[1] >= 0 and max(b[2], b[3]) <= b[4] for b in boxes)
    page.close()


@pytest.fixture
def phone(blank_page):
    """A page on a screen that is touched."""
    return blank_page("phone", {"is_mobile": True, "has_touch": True})


def test_many_classes_stay_short_on_a_phone(phone, many):
    phone.goto(many.as_uri())
    phone.wait_for_selector(".explorer.ready")
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    assert phone.evaluate("document.documentElement.scrollHeight") < 10_000
    assert phone.locator(".query").count() == 3
    # A name is broken after an underscore, never in a word.
    broken = phone.evaluate(
        """() => [...document.querySelectorAll("table th, table td, .verdict")].flatMap((cell) => {
          const range = document.createRange();
          return [...cell.childNodes].filter((node) => node.nodeType === 3 && node.data.trim())
            .filter((node) => (range.selectNode(node), range.getClientRects().length > 1))
            .filter((node) => !/\\s/.test(node.data.trim())).map((node) => node.data);
        })"""
    )
    assert broken == []


def test_what_scrolls_on_a_phone_is_reached_by_the_keyboard(phone, many):
    phone.goto(many.as_uri())
    phone.wait_for_selector(".explorer.ready")
    unreached = phone.evaluate(
        """() => [...document.querySelectorAll("body *")]
          .filter((box) => /auto|scroll/.test(getComputedStyle(box).overflowX))
          .filter((box) => box.scrollWidth > box.clientWidth)
          .filter((box) => box.tabIndex < 0 && !box.querySelector("a, button, [tabindex]"))
          .map((box) => box.outerHTML.slice(0, 80))"""
    )
    assert unreached == []


def test_wide_tables_scroll_in_their_boxes(browser, many):
    page = browser.new_page(viewport={"width": 300, "height": 844})
    page.goto(many.as_uri())
    wide = page.evaluate(
        """() => [...document.querySelectorAll(".scroll")]
          .filter((box) => box.scrollWidth > box.clientWidth)
          .map((box) => getComputedStyle(box))
          .map((style) => [style.overflowX, style.backgroundImage.includes("gradient")])"""
    )
    assert wide
    assert all(found == ["auto", True] for found in wide)
    page.close()


def test_dark_mode_includes_the_maps(open_page):
    light, dark = open_page(), open_page(color_scheme="dark")
    color = "getComputedStyle(document.body).backgroundColor"
    assert light.evaluate(color) != dark.evaluate(color)
    for page in (light, dark):
        page.click("button[data-color=errors]")
    assert drawn(light) != drawn(dark)


def test_static_maps_remain_without_scripts(open_page):
    page = open_page(java_script_enabled=False)
    assert page.locator(".map svg").count() == 2
    assert page.locator(PANEL).count() == 0
    assert "Interactive maps need JavaScript" in page.inner_text(".card")
    assert not page.locator(".gallery").is_visible()


def test_controls_are_not_printed(open_page):
    page = open_page()
    page.wait_for_selector(".explorer.ready")
    page.emulate_media(media="print")
    assert not page.locator(".controls").first.is_visible()
    assert page.locator(PANEL).first.is_visible()


def test_gallery_texts_are_escaped(browser, pictures, tmp_path):
    texts = np.array([f"<b>text</b> {i} & co" for i in range(120)], dtype=object)
    written = replace(pictures, item_shape=None, texts=texts)
    compare(written, ["input", "lda"], out=tmp_path, labels_per_class=[5], seeds=[0])
    page = browser.new_page()
    page.goto(write_report(tmp_path).as_uri())
    page.wait_for_selector(".query")
    shown = page.locator(".asked .text").first.inner_text()
    assert re.fullmatch(r"<b>text</b> \d+ & co", shown)
    page.close()


@pytest.fixture(scope="module")
def labeled(pictures, tmp_path_factory) -> Path:
    """The page of ``ssdml label`` for images in files with long names."""
    labels = np.where(np.arange(120) % 8 == 0, pictures.y, -1)
    found = label_rows(SSDML(random_state=0).fit(pictures.X, labels), labels < 0)
    ids = [f"unlabeled_photographs/img_{i:08}.jpeg" for i in range(120)]
    named = replace(pictures, class_names=("Motorbikes", "airplanes", "Faces_easy"))
    path = tmp_path_factory.mktemp("labeled") / "labeled.html"
    page = render_page(found, named, ids, lead="A", advice="B", footer="C")
    path.write_text(page, encoding="utf-8")
    return path


def test_rows_to_label_next_are_marked_on_the_map(browser, labeled):
    page = browser.new_page()
    page.add_init_script(
        """const arc = CanvasRenderingContext2D.prototype.arc;
        window.arcs = [];
        CanvasRenderingContext2D.prototype.arc = function (x, y, ...rest) {
          if (this.canvas.parentElement) window.arcs.push(`${x} ${y}`);
          return arc.call(this, x, y, ...rest);
        };"""
    )
    page.goto(labeled.as_uri())
    page.wait_for_selector(".labeled.ready")
    n_listed = page.locator(".rows").first.locator("tbody tr").count()
    assert len(set(page.evaluate("window.arcs"))) == n_listed > 3
    assert "Rings are rows to label next." in page.inner_text("main")
    page.close()


def test_rows_to_label_next_fit_a_phone(phone, labeled):
    phone.goto(labeled.as_uri())
    phone.wait_for_selector(".labeled.ready")
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    cells = phone.locator(".rows").first.locator("thead th").all()
    assert all(cell.bounding_box()["x"] + cell.bounding_box()["width"] <= 390 for cell in cells)
