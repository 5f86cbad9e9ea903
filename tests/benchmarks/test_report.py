"""Size of a report of 10,000 rows, and its time until interactive in a browser."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from ssdml.datasets import Dataset
from ssdml.experiments import compare
from ssdml.experiments.report import write_report

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
READY = "performance.getEntriesByName('explorer-ready')[0].startTime / 1000"


@pytest.fixture
def report(tmp_path):
    """10,000 test rows with pictures of noise, which compress worst, 28 by 28 pixels in gray."""
    rng = np.random.default_rng(0)
    y = np.arange(12_000) % 10
    means = rng.random((10, 784))
    X = (0.5 * means[y] + 0.5 * rng.random((12_000, 784))).astype(np.float32)
    test = np.arange(12_000) >= 2_000
    noise = Dataset("noise", X, y, tuple("0123456789"), test, (28, 28))
    compare(noise, ["input", "lda"], out=tmp_path, seeds=[0], features="raw", map_rows=10_000)
    return write_report(tmp_path)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_report_of_ten_thousand_rows_is_fast(benchmark, report):
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 900})

        def opened() -> float:
            page.goto(report.as_uri())
            page.wait_for_selector(".explorer.ready")
            return page.evaluate(READY)

        benchmark.extra_info["megabytes"] = report.stat().st_size / 1e6
        ready = benchmark.pedantic(opened, rounds=5)
        benchmark.extra_info["ready, s"] = ready
        canvas = page.locator(".map canvas:not(.marks)").first
        canvas.scroll_into_view_if_needed()
        benchmark.extra_info["a move of the pointer, s"] = page.evaluate(
            """() => {
              const canvas = document.querySelector(".map canvas");
              const frame = canvas.getBoundingClientRect();
              const begin = performance.now();
              for (let i = 0; i < 100; i++) {
                const place = (frame.width * i) / 100;
                canvas.dispatchEvent(new PointerEvent("pointermove", {
                  clientX: frame.left + place, clientY: frame.top + place }));
              }
              return (performance.now() - begin) / 100 / 1000;
            }"""
        )
        browser.close()
    assert report.stat().st_size < 8e6
    assert ready < 2
