"""The page of an inspection in a real browser: tiles load, a click opens the photograph, gaps are listed."""

import csv
from pathlib import Path

import pytest

from companion.recording.inspection_report import read_inspection, write_inspection_report
from companion.recording.log import read_log
from tests.browser import Browser, program
from tests.recording.inspection_world import Made, make_log

SKIPPED = frozenset({3, 4, 5, 6, 7, 8, 15, 16, 17, 18, 24, 25, 26, 27})


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    program()
    folder = tmp_path_factory.mktemp("page")
    inspection = read_inspection([read_log(make_log(folder / "flight.mcap", Made(skipped=SKIPPED, width_px=900)))])
    return write_inspection_report(inspection, folder).page


@pytest.fixture(scope="module")
def browser(page, tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def opened(browser, page):
    browser.errors.clear()
    browser.open(page)
    browser.wait("Number(document.getElementById('surface').dataset.loaded) > 0")
    return browser


def middle_of_view(browser) -> tuple[float, float, float, float]:
    """The view's place in the window: left, top, width, height."""
    browser.js("document.getElementById('viewer').scrollIntoView({block: 'start'})")
    return browser.place("#surface")


def test_tiles_load_and_everything_is_inside_the_folder(opened, page):
    opened.js("document.querySelector('button[data-surface=\"1\"]').click()")
    opened.wait_requested("/tiles/1/")
    files = [address for address in opened.requested if not address.startswith("about:")]
    assert any("/tiles/0/" in file for file in files)
    assert all(file.startswith(page.parent.resolve().as_uri()) for file in files)
    assert opened.errors == []


def test_a_click_opens_the_photograph_of_the_place(opened, page):
    left, top, width, height = middle_of_view(opened)
    # The lowest fifth of the first pier: its first photograph looks there.
    opened.click(left + width / 2, top + height * 0.85)
    opened.wait("document.getElementById('photograph')?.naturalWidth > 0")
    assert opened.js("document.querySelector('#panel h3').textContent") == "first pier, row 0, column 0"
    target = opened.js("document.querySelector('#panel a').getAttribute('href')")
    assert (page.parent / target).is_file()
    facts = opened.js("document.getElementById('panel').textContent")
    row = next(csv.DictReader((page.parent / "photographs.csv").open()))
    assert row["state"] in facts and f"{float(row['gsd_mm_px']):.2f} mm/px" in facts and "“pier”" in facts


def test_a_gap_is_listed_and_shown_by_a_click(opened):
    gaps = opened.js("[...document.querySelectorAll('#gaps tr[data-gap]')].map((row) => row.textContent)")
    assert any("first pier" in gap and "row 0 column 4" in gap for gap in gaps)
    opened.js(
        "[...document.querySelectorAll('#gaps tr[data-gap]')].find((row) => row.textContent.includes('first pier')).click()"
    )
    left, top, width, height = middle_of_view(opened)
    opened.click(left + width / 2, top + height / 2)
    assert "missing" in opened.js("document.getElementById('panel').textContent")
    assert opened.js("document.querySelector('button[data-surface=\"0\"]').getAttribute('aria-pressed')") == "true"


def test_the_wheel_zooms_until_finer_tiles_are_there(opened):
    before = opened.js("Number(document.getElementById('surface').dataset.loaded)")
    left, top, width, height = middle_of_view(opened)
    for _ in range(8):
        opened.call(
            "Input.dispatchMouseEvent",
            type="mouseWheel",
            x=left + width / 2,
            y=top + height * 0.8,
            deltaX=0,
            deltaY=-240,
        )
    opened.wait(f"Number(document.getElementById('surface').dataset.loaded) > {before}")
