"""The vehicle file's own detector: the tracker uses it, and a wrong name is an error of one line."""

import sys

import numpy as np
import pytest
from synthetic_view import ROOT, message, pose, render, with_tracking

from companion.core.camera_model import CameraModel
from companion.core.clock import SimulatedStopwatch
from companion.core.config import ConfigError, parse, read_layered
from companion.core.messages import Markers
from companion.core.site import load_site
from companion.core.vehicle import Vehicle
from companion.tracking.detectors import detector_for
from companion.tracking.tracker import TrackerNode

SITE = load_site(ROOT / "config/markers/pier.toml")
MODULE = """
import numpy as np

from companion.tracking.detection import Detection

class Blind:
    def detect(self, gray, region=None, scale=1.0):
        return []

class One:
    def detect(self, gray, region=None, scale=1.0):
        corners = np.array([[300.0, 220.0], [340.0, 220.0], [340.0, 260.0], [300.0, 260.0]])
        return [Detection("aruco_6x6_250", 23, corners)]

class NoMethod:
    pass

class NeedsAnArgument:
    def __init__(self, weights):
        pass

    def detect(self, gray, region=None, scale=1.0):
        return []

not_a_class = Blind()
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """A module in the current folder, which is not on Python's path; its name."""
    (tmp_path / "own_detector.py").write_text(MODULE)
    (tmp_path / "broken_detector.py").write_text("import numpy\nraise RuntimeError('no weights\\nhere')\n")
    (tmp_path / "incomplete_detector.py").write_text("import no_such_library\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield "own_detector"
    for name in ("own_detector", "broken_detector", "incomplete_detector"):
        sys.modules.pop(name, None)


def markers(node, gray, stamp_s=1.0) -> Markers:
    (answer,) = node.handle(message(gray, stamp_s), stamp_s + 0.05)
    return answer


def view(vehicle):
    return render(CameraModel(vehicle.camera), SITE.bundle[0], *pose(0.1, 0.25, 0.05, (0.2, 0.1, 4.2)))


def test_a_detector_that_sees_nothing_leaves_the_tracker_without_markers(f550, own_module):
    gray = view(f550)
    assert markers(TrackerNode(f550, SITE), gray).observations
    node = TrackerNode(with_tracking(f550, detector="own_detector:Blind"), SITE)
    for k in range(3):
        gray[0, 0] = k  # no two pictures of a camera are the same
        answer = markers(node, gray, 1.0 + k / 30)
        assert answer.valid and answer.observations == []
    assert node.counters["failed"] == 0


def test_the_corners_of_the_own_detector_become_an_observation(f550, own_module):
    node = TrackerNode(with_tracking(f550, detector="own_detector:One"), SITE)
    (seen,) = markers(node, np.zeros((480, 640), np.uint8)).observations
    assert seen.bundle == "pier" and [m.id for m in seen.markers] == [23]


def test_a_detector_given_in_code_replaces_that_of_the_vehicle_file(f550, own_module):
    given = detector_for((m.family, m.id) for m in SITE.bundle[0].markers)
    node = TrackerNode(with_tracking(f550, detector="own_detector:Blind"), SITE, SimulatedStopwatch(), given)
    assert markers(node, view(f550)).observations


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_module:Blind", "no module 'no_such_module' in the installed packages or in /"),
        ("no_such_package.part:Blind", "no module 'no_such_package.part' in the installed packages or in /"),
        ("own_detector:Absent", "module 'own_detector' has no class 'Absent'"),
        ("own_detector:not_a_class", "module 'own_detector' has no class 'not_a_class'"),
        ("own_detector:NoMethod", "the class has no method detect(gray, region, scale)"),
        ("own_detector:NeedsAnArgument", "NeedsAnArgument() failed: TypeError: "),
        ("broken_detector:Blind", "the module cannot be imported: RuntimeError: no weights here"),
        ("incomplete_detector:Blind", "the module cannot be imported: ModuleNotFoundError: No module named 'no_such_"),
        ("own_detector", 'must be "module:Class"'),
        (":Blind", 'must be "module:Class"'),
        ("", 'must be "module:Class"'),
    ],
)
def test_an_unusable_detector_stops_the_start_with_file_key_and_reason(f550, own_module, name, reason):
    with pytest.raises(ConfigError) as error:
        TrackerNode(with_tracking(f550, detector=name), SITE, vehicle_file="mine.toml")
    assert str(error.value).startswith(f"mine.toml: tracking.detector = {name!r}: {reason}")
    assert "\n" not in str(error.value)


def test_without_a_path_the_error_has_the_name_of_the_vehicle(f550, own_module):
    with pytest.raises(ConfigError, match=r"^vehicle file of 'F550': tracking.detector = 'absent:A': no module"):
        TrackerNode(with_tracking(f550, detector="absent:A"), SITE)


def test_the_key_is_optional_in_a_vehicle_file(f550):
    tables = read_layered(ROOT / "config/vehicles/f550.toml")
    assert "detector" not in tables["tracking"] and f550.tracking.detector is None
    tables["tracking"]["detector"] = "own_detector:Blind"
    assert parse(tables, Vehicle, "mine.toml").tracking.detector == "own_detector:Blind"
    tables["tracking"]["detector"] = 3
    with pytest.raises(ConfigError, match=r"mine.toml: tracking.detector = 3: "):
        parse(tables, Vehicle, "mine.toml")
