"""Markers that are moved, copied, resized, mirrored or flicker: corners and pictures agree, and everything ends."""

import cv2
import numpy as np
import pytest
from test_scene_camera import camera, pixels  # the camera of those tests

from sitl.marker_attacks import MARKER_ATTACKS, MarkerAttacks
from sitl.scenario import Fault, FaultKind


def attacked(cam, kind: FaultKind, value=(), at_s: float = 2.0):
    attacks = MarkerAttacks(cam.printed, 1)
    fault = Fault(at_s=0.0, kind=kind, value=list(value))
    attacks.begin(fault, 0.0)
    return attacks, fault, list(attacks.exposed(at_s))


def corners(markers) -> np.ndarray:
    return np.array([m.corners_W for m in markers])


VALUES = {
    FaultKind.BUNDLE_MOVES: (0.0, 1.0, 0.0),
    FaultKind.BUNDLE_JUMPS: (0.0, 2.0, 0.0),
    FaultKind.BUNDLE_COPIED: (0.0, 2.0, 0.0),
    FaultKind.BUNDLE_ALTERNATES: (0.0, 2.0, 0.0),
    FaultKind.BUNDLE_RESIZED: (0.8,),
    FaultKind.BUNDLE_GROWS: (-0.1,),
    FaultKind.BUNDLE_MIRRORED: (),
    FaultKind.BUNDLE_FLICKERS: (1.0,),
    FaultKind.MARKERS_FLICKER: (1.0,),
}


def test_every_attack_has_a_value_here():
    assert set(VALUES) == set(MARKER_ATTACKS)


@pytest.mark.parametrize("kind", VALUES)
def test_an_attack_changes_the_markers_and_ends(kind):
    cam = camera()
    before = corners(cam.printed)
    attacks, fault, markers = attacked(cam, kind, VALUES[kind])
    after = corners(markers)
    expected = {
        FaultKind.BUNDLE_MOVES: before + (0, 2, 0),
        FaultKind.BUNDLE_JUMPS: before + (0, 2, 0),
        FaultKind.BUNDLE_ALTERNATES: before + (0, 2, 0),
        FaultKind.BUNDLE_COPIED: np.concatenate([before, before + (0, 2, 0)]),
    }
    if kind in expected:
        assert np.allclose(after, expected[kind])
    elif kind in (FaultKind.BUNDLE_RESIZED, FaultKind.BUNDLE_GROWS):
        side = np.linalg.norm(before[0, 0] - before[0, 1])
        assert np.linalg.norm(after[0, 0] - after[0, 1]) == pytest.approx(0.8 * side)
    elif kind == FaultKind.BUNDLE_MIRRORED:
        assert not np.allclose(after, before)
    else:
        assert len(after) == 0
    attacks.end(fault)
    assert attacks.exposed(3.0) is cam.printed and attacks.exposed(3.1) is None


def test_only_the_named_bundle_is_attacked():
    cam = camera()
    attacks = MarkerAttacks(cam.printed, 1)
    attacks.begin(Fault(at_s=0.0, kind=FaultKind.BUNDLE_JUMPS, value=[1.0, 0, 0], name="another"), 0.0)
    assert np.allclose(corners(attacks.exposed(1.0)), corners(cam.printed))


def found_by_aruco(cam) -> dict[int, np.ndarray]:
    """Corners, (4, 2) [px], that OpenCV finds in a picture from 4 m in front of the bundle."""
    detector = cv2.aruco.ArucoDetector(cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_6X6_250))
    picture = pixels(cam.render(0.0, VIEWPOINT, LEVEL, STILL, STILL))
    found, ids, _ = detector.detectMarkers(picture)
    return {int(i): c.reshape(4, 2) for i, c in zip(np.ravel(ids if ids is not None else []), found, strict=True)}


VIEWPOINT, LEVEL, STILL = (-4.0, 0.0, 3.0), (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0)


def test_the_picture_of_an_attacked_bundle_has_its_markers_where_the_corners_are():
    cam = camera(backdrops=(), noise_std=0.0)
    attacks = MarkerAttacks(cam.printed, 1)
    for kind, value in ((FaultKind.BUNDLE_RESIZED, [0.8]), (FaultKind.BUNDLE_JUMPS, [0.5, 0.3, 0.1])):
        attacks.begin(Fault(at_s=0.0, kind=kind, value=value), 0.0)
    cam.place(attacks.exposed(1.0))
    expected = {m.marker.id: m.corners_px for m in cam.project_corners(0.0, VIEWPOINT, LEVEL)}
    found = found_by_aruco(cam)
    assert set(found) == {23, 40, 62, 98}
    for marker, corners_px in found.items():
        assert np.abs(corners_px - expected[marker]).max() < 1.5


def test_no_marker_of_a_mirrored_picture_is_decoded():
    cam = camera(backdrops=(), noise_std=0.0)
    assert found_by_aruco(cam)
    cam.place(attacked(cam, FaultKind.BUNDLE_MIRRORED)[2])
    assert not found_by_aruco(cam)
