"""Regions: predicted by constant velocity, widened by the margin, dropped when they are too old."""

import numpy as np
import pytest

from companion.tracking.region import Box, RegionKeeper


def box(x, y, w=100.0, h=80.0, marker_px=30.0):
    return Box(np.array([x, y], float), np.array([w, h], float), marker_px)


def keeper(width=640, height=480, margin=0.25, every=1000):
    return RegionKeeper(width, height, margin, every)


def test_the_first_search_is_of_the_whole_image():
    assert keeper().next_search(1.0).regions is None


def test_the_region_moves_with_the_bundle():
    k = keeper()
    k.seen(1.0, {"a": box(200, 200)})
    k.seen(1.1, {"a": box(230, 190)})
    (((x, y, w, h), _),) = k.next_search(1.2).regions
    assert (x + w / 2, y + h / 2) == pytest.approx((260, 180), abs=1)
    assert (w, h) == pytest.approx((150, 130), abs=2)


def test_the_region_grows_with_the_bundle():
    k = keeper()
    k.seen(1.0, {"a": box(300, 200, 100, 80)})
    k.seen(1.1, {"a": box(300, 200, 120, 96)})
    (((_, _, w, h), _),) = k.next_search(1.2).regions
    assert (w, h) == pytest.approx((140 + 70, 112 + 70), abs=2)


def test_the_region_stays_inside_the_image():
    k = keeper()
    k.seen(1.0, {"a": box(20, 460)})
    (((x, y, w, h), _),) = k.next_search(1.03).regions
    assert x == 0
    assert y + h == 480


def test_a_bundle_that_leaves_the_image_ends_following():
    k = keeper()
    k.seen(1.0, {"a": box(100, 200)})
    k.seen(1.1, {"a": box(-50, 200)})
    assert k.next_search(1.2).regions is None


def test_an_old_observation_predicts_nothing():
    k = keeper()
    k.seen(1.0, {"a": box(200, 200)})
    assert k.next_search(1.5).regions is None


def test_after_one_of_two_bundles_is_lost_the_whole_image_is_searched_once():
    k = keeper()
    k.seen(1.0, {"a": box(100, 100), "b": box(500, 400)})
    assert len(k.next_search(1.03).regions) == 2
    k.seen(1.03, {"a": box(100, 100)})
    assert k.next_search(1.06).regions is None
    k.seen(1.06, {"a": box(100, 100)})
    assert len(k.next_search(1.09).regions) == 1


def test_overlapping_regions_are_searched_as_one():
    k = keeper()
    k.seen(1.0, {"a": box(200, 200), "b": box(280, 240), "c": box(560, 420, 40, 40)})
    regions = [r for r, _ in k.next_search(1.03).regions]
    assert len(regions) == 2


def test_large_markers_are_searched_in_a_reduced_copy():
    k = keeper()
    k.seen(1.0, {"a": box(300, 200, 300, 200, marker_px=64.0)})
    assert k.next_search(1.03).regions[0][1] == pytest.approx(0.5)
    k.seen(1.03, {"a": box(300, 200, 300, 200, marker_px=20.0)})
    assert k.next_search(1.06).regions[0][1] == 1.0


def test_an_empty_image_is_searched_at_half_and_full_resolution_in_turn():
    k = keeper(1920, 1080)
    scales = []
    for i in range(4):
        scales.append(k.next_search(1 + i / 30).scale)
        k.seen(1 + i / 30, {})
    assert scales == [1.0, 0.5, 1.0, 0.5]
