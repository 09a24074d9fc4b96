"""A bundle whose markers are spread over a face places the camera better; the page has the figures of the command."""

from pathlib import Path

import pytest
from marker_spread import BUNDLES, certainty, main

PAGE = Path(__file__).parents[2] / "docs/inspection_plan.md"


def test_spread_markers_place_the_camera_ten_times_better_than_a_board():
    board, wide = (certainty(BUNDLES[name]) for name in ("board 0.9 x 0.6 m, 5 markers", "3.4 x 3.2 m"))
    assert wide.sideways_m < 0.15 * board.sideways_m and wide.heading_rad < 0.15 * board.heading_rad


def test_the_error_sideways_is_that_of_the_heading_at_the_distance():
    for bundle in BUNDLES.values():
        found = certainty(bundle)
        assert found.sideways_m == pytest.approx(5.0 * found.heading_rad, rel=0.4)


def test_the_page_has_the_figures_of_the_command(capsys):
    main()
    assert capsys.readouterr().out.strip() in PAGE.read_text(encoding="utf-8")
