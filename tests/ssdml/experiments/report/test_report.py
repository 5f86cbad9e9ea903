"""The report: valid HTML with the right numbers and escaped names."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from ssdml.experiments import compare
from ssdml.experiments.analysis.formats import visible
from ssdml.experiments.analysis.statistics import mean_interval
from ssdml.experiments.report import write_report
from ssdml.experiments.report.figures import class_maps
from ssdml.experiments.report.report import read_sections
from ssdml.experiments.report.sections import Section
from ssdml.experiments.runs.details import MapSample, RunDetails, load_details, save_details
from ssdml.experiments.runs.results import RESULTS
from tests.rows import append_row

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """Check the nesting of tags; collect text, tags and references."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.references: list[str] = []
        self.text = ""
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.references += [
            value
            for name, value in attrs
            if name in ("src", "href", "xlink:href", "data", "action")
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += f" {data}" if self.open[-1:] not in (["style"], ["script"]) else ""


def words(page: Page) -> str:
    return re.sub(r"\s+", " ", page.text)


def read(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def compared(blobs, broken_method, tmp_path_factory) -> Path:
    """A folder with three methods, one of which fails, and two budgets."""
    out = tmp_path_factory.mktemp("compared")
    methods = ["input", "lda", broken_method]
    compare(blobs, methods, out=out, labels_per_class=[2, 5], seeds=[0, 1])
    return out


@pytest.fixture(scope="module")
def section(compared) -> Section:
    (section,) = read_sections(compared)
    return section


@pytest.fixture(scope="module")
def page(compared, section) -> Page:
    return read(write_report(compared, [section]))


@pytest.fixture
def two_seeds(tmp_path, make_row) -> Path:
    """A folder with rows of known means."""
    for method, values in {"input": (60.0, 62.0), "ssdml": (81.0, 84.0)}.items():
        for seed, nmi in enumerate(values):
            append_row(tmp_path / RESULTS, make_row(method=method, seed=seed, scores={"NMI": nmi}))
    return tmp_path


def test_the_page_is_valid_and_self_contained(compared, page):
    assert {"table", "svg", "h1"} <= set(page.tags)
    assert not {"link", "iframe", "img"} & set(page.tags)
    assert page.references
    assert all(r.startswith(("#", "data:image/png;base64,")) for r in page.references)
    source = (compared / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"https?:|@import|url\((?![#$])", source)


def test_user_names_and_messages_are_escaped(compared, page):
    source = (compared / "report.html").read_text(encoding="utf-8")
    assert "&lt;blobs&gt; &amp; co" in source
    assert "<blobs>" not in source
    assert "<metric>" not in source
    text = words(page)
    assert "RuntimeError: no <metric> & no luck" in text
    assert "<c>" in text  # a class in the legend of the map


def test_the_table_shows_means_and_intervals(two_seeds):
    text = words(read(write_report(two_seeds)))
    for values in ((60.0, 62.0), (81.0, 84.0)):
        estimate = mean_interval(values)
        assert f"{estimate.mean:.1f}" in text
        assert f"±{estimate.half_width:.1f}" in text
    assert "NMI 82.5% +21.5" in text  # mean and paired difference of the best method


def test_only_the_highest_mean_is_bold(two_seeds):
    source = write_report(two_seeds).read_text(encoding="utf-8")
    best = set(re.findall(r'class="value best">([\d.]+)<', source))
    assert "82.5" in best
    assert "61.0" not in best


def test_failures_are_listed_with_their_errors(page):
    text = words(page)
    assert "2 of 2 runs failed" in text
    assert text.count("RuntimeError: no <metric> & no luck") == 4


def test_the_report_says_that_nothing_failed(two_seeds):
    assert "Every run finished." in words(read(write_report(two_seeds)))


def test_several_budgets_have_curves(page, section):
    assert "Scores by number of labels" in words(page)
    assert [picture.title for picture in section.curves] == ["NMI", "accuracy"]


def test_one_budget_has_no_curve(two_seeds):
    assert "Scores by number of labels" not in words(read(write_report(two_seeds)))


def test_maps_show_input_and_best_method(section):
    before, after = section.explorer.maps.values()
    assert list(section.explorer.maps) == ["input", "lda"]
    np.testing.assert_array_equal(before.sample.y, after.sample.y)
    np.testing.assert_array_equal(before.sample.is_labeled, after.sample.is_labeled)
    assert before.points.shape == (39 + 6, 2) or before.points.shape == (39 + 15, 2)


def test_the_report_works_without_details(compared, tmp_path):
    shutil.copytree(compared, tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "details")
    text = words(read(write_report(tmp_path / "out")))
    assert "On the test samples, in percent" in text
    assert "laid out by t-SNE" not in text


def test_purity_is_shown_for_mining_methods(two_seeds, make_row):
    purity = {"positive": 91.25, "negative": 13.5, "both": 12.0, "weighted": 11.0, "n": 4000}
    for seed in (0, 1):
        name = make_row(method="ssdml", seed=seed)["config_hash"]
        details = RunDetails({"parameters": {"class": "SSDML"}}, purity=purity)
        save_details(two_seeds / "details" / f"{name}.npz", details)
    text = words(read(write_report(two_seeds)))
    assert re.search(r"ssdml\s*4,000\s*91\.2%\s*13\.5%\s*12\.0%\s*11\.0%", text)


def test_warnings_are_listed_once_with_their_methods(two_seeds, make_row):
    for method in ("input", "ssdml"):
        name = make_row(method=method)["config_hash"]
        details = RunDetails({"parameters": {"class": "X"}}, warnings=["a <b>careful</b> one"])
        save_details(two_seeds / "details" / f"{name}.npz", details)
    text = words(read(write_report(two_seeds)))
    assert text.count("a <b>careful</b> one") == 1
    assert "input, ssdml" in text


def test_the_report_lists_parameters_and_versions(page):
    text = words(page)
    assert "LabeledRowsOnly(" in text
    assert "shrinkage=0.5" in text
    assert f"numpy {np.__version__}" in text


def test_all_versions_are_listed(tmp_path, make_row):
    for seed, version in enumerate(("1.0", "2.0")):
        append_row(tmp_path / RESULTS, make_row(seed=seed, versions={"torch": version}))
    assert "torch 1.0, 2.0" in words(read(write_report(tmp_path)))


def test_one_seed_has_no_interval(tmp_path, make_row):
    append_row(tmp_path / RESULTS, make_row())
    text = words(read(write_report(tmp_path)))
    assert "±" not in text
    assert "nan" not in text.lower()


def test_failures_alone_make_a_report(blobs, tmp_path, broken_method):
    compare(blobs, [broken_method], out=tmp_path, seeds=[0])
    assert "No method finished a run." in words(read(write_report(tmp_path)))


def test_each_dataset_has_a_section(tmp_path, make_row):
    for name in ("first", "second"):
        append_row(tmp_path / RESULTS, make_row(dataset=name))
    page = read(write_report(tmp_path))
    assert page.tags.count("h1") == 2


def test_known_datasets_show_the_command(tmp_path, make_row):
    for seed in (0, 1):
        append_row(tmp_path / RESULTS, make_row(dataset="digits", seed=seed))
    command = "ssdml compare --dataset digits --methods input --labels-per-class 5 --seeds 2"
    assert command in words(read(write_report(tmp_path)))


def test_an_empty_folder_is_rejected(tmp_path):
    (tmp_path / RESULTS).touch()
    with pytest.raises(ValueError, match=r"results\.jsonl: no run has finished"):
        write_report(tmp_path)


def test_more_than_ten_classes_have_no_legend(tmp_path, make_row, rng):
    append_row(tmp_path / RESULTS, make_row())
    names = [f"class {c}" for c in range(12)]
    sample = MapSample(
        rng.normal(size=(60, 3)).astype(np.float32), np.arange(60) % 12, np.arange(60) > 50
    )
    details = RunDetails({"parameters": {"class": "X"}}, class_names=names, sample=sample)
    save_details(tmp_path / "details" / f"{make_row()['config_hash']}.npz", details)
    text = words(read(write_report(tmp_path)))
    assert "12 classes share 10 colors" in text
    assert "class 3" not in text


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colors as WCAG 2 defines it."""
    light = []
    for color in (one, other):
        parts = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        light.append(linear @ [0.2126, 0.7152, 0.0722] + 0.05)
    return max(light) / min(light)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ink", ["ink", "muted", "accent", "good", "bad"])
@pytest.mark.parametrize("paper", ["paper", "tint"])
def test_text_contrasts_with_both_themes(theme, ink, paper):
    style = (files("ssdml.experiments.report") / "page" / "style.css").read_text(encoding="utf-8")
    themes = re.findall(r":root {(.*?)}", style, flags=re.DOTALL)
    colors = dict(re.findall(r"--(\w+): (#\w{6})", themes[theme]))
    assert contrast(colors[ink], colors[paper]) >= 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_class_colors_contrast_with_the_page(compared, page, theme):
    source = (compared / "report.html").read_text(encoding="utf-8")
    found = re.findall(r":root {(.*?)}", source, flags=re.DOTALL)
    papers = [color for text in found for color in re.findall(r"--paper: (#\w{6})", text)]
    themes = [re.findall(r"--class-\d+: (#\w{6})", text) for text in found if "--class-0" in text]
    assert (len(papers), len(themes), len(themes[theme])) == (2, 2, 10)
    assert all(contrast(color, papers[theme]) >= 3 for color in themes[theme])


def test_percent_signs_do_not_break_away(compared, page):
    text = page.text.replace("\n", " ")
    assert "95% interval" in text
    assert not re.search(r"\d\s%", text)


def test_the_menu_has_the_words_of_the_headings(compared, page):
    source = (compared / "report.html").read_text(encoding="utf-8")
    menu = dict(re.findall(r'<a href="#([\w-]+)">(.*?)</a>', source))
    headings = dict(re.findall(r'<h2 id="([\w-]+)">(.*?)</h2>', source))
    assert len(headings) > 4
    assert headings.items() <= menu.items()


def test_the_lead_names_the_best_other_method(two_seeds, make_row):
    for seed, accuracy in enumerate((81.0, 82.0)):
        row = make_row(method="poisson", seed=seed) | {"scores": {"accuracy": accuracy}}
        append_row(two_seeds / RESULTS, row)
    text = words(read(write_report(two_seeds)))
    assert (
        "ssdml classifies 80 of 100 new samples correctly: 2 fewer than poisson, the best other "
        "method, as many as the nearest class mean in the input."
    ) in text


def test_calibration_and_confusions_are_shown(blobs, tmp_path):
    compare(blobs, ["input", "ssdml"], out=tmp_path, labels_per_class=[2], seeds=[0])
    (section,) = read_sections(tmp_path)
    assert [picture.title for picture in section.reliabilities] == ["ssdml"]
    assert set(section.explorer.confusions) == {"input", "ssdml"}
    assert "input: nearest mean of the labeled samples; ssdml: its predict." in words(
        read(write_report(tmp_path, [section]))
    )


def test_one_embedding_among_classifiers_has_no_rank(tmp_path, make_row):
    for seed in range(2):
        append_row(tmp_path / RESULTS, make_row(method="ssdml", seed=seed))
        row = make_row(method="logistic", seed=seed) | {"scores": {"accuracy": 90.0}}
        append_row(tmp_path / RESULTS, row)
    text = words(read(write_report(tmp_path, read_sections(tmp_path))))
    assert "is the only method that embeds samples. logistic has the highest" in text


def test_a_classifier_has_no_map_and_no_embedding_scores(two_seeds, make_row):
    """It has the highest accuracy; the map, and the lead, are those of the best embedding."""
    for seed in range(2):
        row = make_row(method="logistic", seed=seed) | {"scores": {"accuracy": 90.0}}
        append_row(two_seeds / RESULTS, row)
    (section,) = read_sections(two_seeds)
    text = words(read(write_report(two_seeds, [section])))
    assert re.search(
        r"Scores of ssdml , with the difference from the input\. It has the best mean rank by "
        r"accuracy of 2 methods that embed samples, over 2 seeds\. logistic has the highest "
        r"accuracy, 90\.0",
        text,
    )
    assert re.search(r"logistic 1\.0 – – ▴ 90\.0 ±0\.0", text)
    assert "A dash: the method classifies without an embedding" in text
    assert [picture.title for picture in section.differences] == ["NMI", "R@1", "accuracy"]


def test_runs_of_earlier_versions_have_static_maps(compared, tmp_path):
    shutil.copytree(compared, tmp_path / "out")
    for path in (tmp_path / "out" / "details").glob("*.npz"):
        details = load_details(path)
        save_details(path, replace(details, answers=None))
    (section,) = read_sections(tmp_path / "out")
    assert section.explorer.data is None
    page = read(write_report(tmp_path / "out", [section]))
    assert "before: input" in words(page)
    assert "script" not in page.tags


def test_one_dimensional_embeddings_have_a_map(rng):
    y, is_labeled = np.arange(40) % 2, np.arange(40) > 30
    line = (rng.normal(size=(40, 1)) + 9 * y[:, None]).astype(np.float32)
    (drawn,) = class_maps({"lda": MapSample(line, y, is_labeled)}, ["a", "b"])
    points = drawn.points
    assert points.shape == (40, 2)
    distances = np.linalg.norm(points[:, None] - points, axis=2) + 1e9 * np.eye(40)
    assert (y[distances.argmin(axis=1)] == y).all()


def test_a_method_keeps_its_style_everywhere(tmp_path, make_row):
    """Of two methods without own styles, the later one ranks first."""
    for method, nmi in (("mine", 50.0), ("yours", 90.0)):
        append_row(tmp_path / RESULTS, make_row(method=method, scores={"NMI": nmi}))
    append_row(tmp_path / RESULTS, make_row(method="input"))
    (section,) = read_sections(tmp_path)
    source = write_report(tmp_path, [section]).read_text(encoding="utf-8")
    shown = re.search(r'style="color: (#\w{6})" aria-hidden="true">.</span> yours', source)[1]
    assert shown == section.styles["yours"].color != section.styles["mine"].color
    nmi = next(picture.svg for picture in section.differences if picture.title == "NMI")
    places = [nmi.index(section.styles[method].color) for method in ("yours", "mine")]
    assert places == sorted(places)  # drawn in the order of their ranks


HOSTILE = "\u202egnp.exe\x1b[31m \u05e9\u05dc\u05d5\u05dd \x00 <b>"


def test_control_characters_of_names_are_escaped(tmp_path, make_row, rng):
    row = make_row(dataset=HOSTILE, method=HOSTILE, versions={"numpy": HOSTILE})
    failed = make_row(dataset=HOSTILE, method="other", status="failed", error=HOSTILE)
    for one in (row | {"config_hash": "a"}, failed | {"config_hash": "b"}):
        append_row(tmp_path / RESULTS, one)
    sample = MapSample(
        rng.normal(size=(9, 2)).astype(np.float32), np.arange(9) % 2, np.arange(9) > 6
    )
    details = RunDetails(
        {"parameters": {"class": "X"}}, [HOSTILE], class_names=[HOSTILE, "b"], sample=sample
    )
    save_details(tmp_path / "details" / "a.npz", details)
    source = write_report(tmp_path).read_text(encoding="utf-8")
    hidden = {c for c in source if ord(c) < 32} - {"\n", "\t"} | ({"\u202e"} & set(source))
    assert hidden == set()
    assert "\u2068" + r"\u202egnp.exe\x1b[31m" in source  # isolated, since some of it is Hebrew


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Zürich 数字, ½", "Zürich 数字, ½"),
        ("two\nlines\tand a\u200dzwj", "two\nlines\tand a\u200dzwj"),
        ("a\x00\x7f\x9b", r"a\x00\x7f\x9b"),
        ("a\u2066b\u2029", r"a\u2066b\u2029"),
        (os.fsdecode(b"caf\xe9"), r"caf\udce9"),
        ("\u0634", "\u2068\u0634\u2069"),
    ],
)
def test_visible_text(text, shown):
    assert visible(text) == shown
