"""Poses of photographs by the adjustment of a made-up flight, and how they get into the pictures' tags."""

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from map_flights import STATE, Course, PayloadTruth, fly, photographed, site_text
from payload_cameras import FIXED, GIMBAL

from calibration.map import photographs
from calibration.map.adjust import adjust
from calibration.map.camera_file import contradictions
from calibration.map.exposures import carried
from calibration.map.flight_log import MapLog
from calibration.map.photographs import (
    RefinedPhotographs,
    RefinedPose,
    newest,
    refine,
    refined,
    unused_markers,
    with_photographs,
)
from calibration.map.photographs_command import _show, as_result
from calibration.map.picture_markers import Centre
from calibration.map.pictures import PayloadErrors, Photographs, predict
from calibration.map.rotations import exp, log
from calibration.results import DataError, write_json
from companion.core.enums import CaptureOutcome
from companion.core.frames import quat_from_matrix, rotation_matrix
from companion.core.messages import Capture, State
from companion.core.refined_poses import PosesError, are_dated, read_poses, with_poses

LEVEL = np.eye(3)
AT_REST = State(stamp_s=0.0, p_W=(0.0, 0.0, 0.0), v_W=(0.0, 0.0, 0.0), q_WB=(1.0, 0.0, 0.0, 0.0), **STATE)
SHORT = Course(spacing_m=3.0, standoff_m=2.5, sway_m=1.0, laps=1, stop_s=0.5)

EXACT = PayloadTruth(np.zeros(10), own_rad=0.0, time_s=0.0)


def quat(R):
    return tuple(quat_from_matrix(R).tolist())


def capture(stamp_s=1.0, R_WC=LEVEL, **changes):
    nan3, nan4 = (float("nan"),) * 3, (float("nan"),) * 4
    fields = {
        "stamp_s": stamp_s, "valid": True, "id": 1, "item": "face", "row": 0, "column": 0, "attempt": 1,
        "outcome": CaptureOutcome.TAKEN, "reason": "", "image_index": 0, "file": "", "blur_px": 0.1, "gsd_m": 0.001,
        "p_WC": nan3, "q_WC": quat(R_WC), "bundle": "bundle_0", "p_MC": nan3, "q_MC": nan4, "position_std_m": 0.1,
        "attitude_std_rad": 0.02,
    }  # fmt: skip
    return Capture(**fields | changes)


def test_a_pose_is_carried_by_the_inertial_samples_forwards_and_backwards():
    flight = fly(4, SHORT)
    u, t_s = flight.true, flight.data.t_s
    for other in (2, 4, 19, 21, 39, 41):
        others = np.delete(np.arange(len(t_s)), other)  # carried from the next image to it
        without = replace(u, R_WB=u.R_WB[others], p_W=u.p_W[others], v_W=u.v_W[others])
        at = carried(flight.data.samples, t_s[others], without, t_s[other : other + 1] + (0.01 if other % 4 else -0.01))
        assert abs(at.apart_s[0]) > 0.2 and (at.apart_s[0] > 0) == bool(other % 4 == 0)
        moved_s = -0.01 if other % 4 == 0 else 0.01
        assert np.linalg.norm(at.position(without)[0] - u.p_W[other] - moved_s * u.v_W[other]) < 0.01
        assert np.linalg.norm(at.velocity(without)[0] - u.v_W[other]) < 0.1
        assert np.degrees(np.linalg.norm(log(at.attitude(without)[0].T @ u.R_WB[other]))) < 0.5


def nees_of(found, captures, true, R_WC, p_WC):
    """Mean normalised squared errors of photographs, and the angles of their errors [rad]; R_WC, p_WC: their true poses."""
    nees, angles = [], []
    for pose in refined(found, captures):
        i = captures.index(pose.capture)
        R_MW = true.R_WM[0].T
        error = np.concatenate([pose.p_MC - R_MW @ (p_WC[i] - true.p_WM[0]), log(pose.R_MC @ (R_MW @ R_WC[i]).T)])
        nees.append(error @ np.linalg.solve(pose.covariance, error) / 6)
        angles.append(float(np.linalg.norm(error[3:])))
    return nees, angles


@pytest.mark.verify
def test_refined_poses_are_as_wrong_as_they_say():
    """Photographs by a camera that is fixed to the body, in twelve flights: mean normalised squared error between 0.3 and 2."""
    nees = []
    for seed in range(201, 213):
        flight = fly(seed, SHORT)
        true, data = flight.true, flight.data
        taken = photographed(flight, FIXED, seed, EXACT)
        images = np.arange(8, len(data.t_s) - 8, 15)
        R_BC = data.lens.R_BC  # the payload camera looks forward, too
        captures = [
            msgspec.structs.replace(c, q_WC=quat(data.start.R_WB[k] @ R_BC))
            for c, k in zip(taken.captures, images, strict=True)
        ]
        found = adjust(with_photographs(data, captures, taken.states, FIXED, {}))
        nees += nees_of(found, captures, true, true.R_WB[images] @ R_BC, taken.p_WC)[0]
    assert 0.3 < np.mean(nees) < 2.0


@pytest.mark.verify
def test_poses_with_pictures_are_as_wrong_as_they_say_and_better_than_without():
    """Photographs by a camera on a gimbal whose errors the fit does not know, in twelve flights."""
    nees, with_pictures, without = [], [], []
    for seed in range(201, 213):
        flight = fly(seed, SHORT)
        taken = photographed(flight, GIMBAL, seed, PayloadTruth.drawn(np.random.default_rng(seed)))
        for centres, into in ((taken.centres, with_pictures), ({}, without)):
            found = adjust(with_photographs(flight.data, taken.captures, taken.states, GIMBAL, centres), 5)
            values, angles = nees_of(found, taken.captures, flight.true, taken.R_WC, taken.p_WC)
            into += angles
            nees += values if centres else []
    assert 0.3 < np.mean(nees) < 2.0
    assert np.percentile(with_pictures, 95) < 0.5 * np.percentile(without, 95)


def test_the_markers_in_the_pictures_give_heading_mount_and_lens():
    flight = fly(203, SHORT)
    true = replace(PayloadTruth.drawn(np.random.default_rng(3)), noise_px=0.4)
    taken = photographed(flight, GIMBAL, 3, true)
    for number in (2, 3):  # half hidden behind an edge
        name, p_M, xy_px = taken.centres[number, 1][0]
        taken.centres[number, 1][0] = Centre(name, p_M, xy_px + [6.0, -4.0])
    found = adjust(with_photographs(flight.data, taken.captures, taken.states, GIMBAL, taken.centres), 5)
    _, angles = nees_of(found, taken.captures, flight.true, taken.R_WC, taken.p_WC)
    assert np.degrees(np.percentile(angles, 95)) < 0.5
    kept = found.photographs.photographs.seen.sum(axis=1)
    assert [kept[i] - len(taken.centres[i + 1, 1]) for i in (0, 1, 2, 3)] == [0, -1, -1, 0]
    assert found.unknowns.payload[6] == pytest.approx(true.payload[6], abs=0.004)
    assert true.noise_px / 2 < found.noise.picture_px < 2 * true.noise_px
    assert RefinedPhotographs(found, [], {}, [], [], (1, 2)).picture_px == found.noise.picture_px


def test_pictures_of_another_flight_are_refused():
    flight, other = fly(203, SHORT), fly(204, SHORT)
    taken, wrong = (photographed(f, GIMBAL, 3, EXACT) for f in (flight, other))
    data = with_photographs(flight.data, taken.captures, taken.states, GIMBAL, wrong.centres)
    with pytest.raises(
        DataError, match=r"flight 203: the markers in the pictures do not fit this flight by \d+ px of 2000"
    ):
        adjust(data, 3)


def test_without_a_usable_photograph_the_flight_is_adjusted_without_them(monkeypatch, tmp_path, capsys):
    """Its photographs are after the last image: all are left out, with the reason, also in the file."""
    data = fly(203, SHORT).data
    tables = {"payload_camera": msgspec.to_builtins(GIMBAL), "site": tomllib.loads(site_text())}

    class Log(dict):
        def tables(self, name):
            return tables[name]

    path = tmp_path / "flight.mcap"
    logged = Log(
        capture=[capture(stamp_s=1e4)], capture_truth=[], state=[msgspec.structs.replace(AT_REST, stamp_s=1.0)]
    )
    monkeypatch.setattr(photographs, "read_log", lambda *_: logged)
    monkeypatch.setattr(photographs, "read_map_log", lambda *_, **__: MapLog(path, data, None, None, {}, []))
    monkeypatch.setattr(photographs, "adjust", lambda data, _: adjust(data, 2))
    found = refine(path)
    assert found.poses == [] and found.with_markers == () and found.picture_px is None
    content = as_result(found, path)
    write_json(tmp_path / "poses.json", content)
    assert content["details"]["left_out"] == {"1": "no image near its exposure"}
    assert content["details"]["payload"] is None
    _show(found, content)
    shown = capsys.readouterr().out
    assert "no photograph has an image near its exposure" in shown
    assert "left out: photograph 1: no image near its exposure" in shown


def test_no_photographs_have_no_predicted_centres():
    flight = fly(203, SHORT)
    u, n = replace(flight.true, payload=np.zeros(10)), np.zeros(0)
    none = Photographs(
        n, np.zeros((0, 3, 3)), True, np.zeros(3), np.array([1900.0, 1900.0]), PayloadErrors(0.01, 0.01, n),
        np.zeros((0, 1), int), np.zeros((0, 1, 3)), np.zeros((0, 1), bool), np.zeros((0, 1, 2)),
    )  # fmt: skip
    at = carried(flight.data.samples, flight.data.t_s, u, n)
    assert predict(u, none, at, np.zeros((0, 6, 6)), np.zeros((0, 6))).by_bundles.shape == (0, 2, 14)


def test_markers_of_a_bundle_that_the_navigation_camera_hardly_saw_are_named_with_the_reason(tmp_path):
    data = SimpleNamespace(bundles=("bundle_0",))
    read = MapLog(tmp_path / "a.mcap", data, None, None, {"far": "seen in 5 of the images used, 20 are needed"}, [])
    of = {name: Centre(name, np.zeros(3), np.zeros(2)) for name in ("bundle_0", "far", "new")}
    taken = [capture(id=i) for i in (1, 2, 3, 4, 5)]
    centres = {(1, 1): [of["far"]], (2, 1): [of["bundle_0"], of["far"]], (3, 1): [of["bundle_0"]], (4, 1): [of["new"]]}
    assert unused_markers(read, taken, centres, (2,)) == [
        f"{tmp_path}/a.mcap: bundle 'far', seen in 5 of the images used, 20 are needed: its markers in the pictures of photographs 1, 2 are not used",
        f"{tmp_path}/a.mcap: bundle 'new', not seen by the navigation camera: its markers in the pictures of photograph 4 are not used",
        "photograph 3: no marker of the picture fits the flight: not used",
    ]


def test_one_marker_in_each_picture_does_not_raise_the_noise_of_the_centres_and_shows_none():
    """The photographs' own errors, 4 px by the gimbal, take all that the centres could show of it."""
    flight = fly(203, SHORT)
    taken = photographed(flight, GIMBAL, 3, PayloadTruth.drawn(np.random.default_rng(3)))
    one = {key: centres[:1] for key, centres in taken.centres.items()}
    found = adjust(with_photographs(flight.data, taken.captures, taken.states, GIMBAL, one), 3)
    assert found.noise.picture_px < 0.8 and found.picture_freedom < 5.0
    assert RefinedPhotographs(found, [], {}, [], [], (1, 2)).picture_px is None


def test_a_camera_file_that_the_pictures_contradict_is_named_with_the_value_to_enter():
    """A lens 6 % longer than the file says, which is known to 1 %."""
    flight = fly(203, SHORT)
    drawn = PayloadTruth.drawn(np.random.default_rng(3))
    payload = drawn.payload.copy()
    payload[6] = 0.06
    taken = photographed(flight, GIMBAL, 3, replace(drawn, payload=payload))
    found = adjust(with_photographs(flight.data, taken.captures, taken.states, GIMBAL, taken.centres), 3)
    (note,) = contradictions(found, GIMBAL, Path("a.mcap"))
    pattern = (
        r"a.mcap: the pictures contradict the camera file in the log: focal length \+(\d\.\d) %, (\d\.\d) of its standard "
        r"deviations \(1 %\): enter focal_length_mm = (\d+\.\d+)"
    )
    percent, far, mm = map(float, re.fullmatch(pattern, note).groups())
    assert percent == pytest.approx(6.0, abs=0.5) and far > 3.0
    assert mm == pytest.approx(1.06 * GIMBAL.focal_length_mm, rel=0.005)


def test_each_error_of_a_camera_file_beyond_three_standard_deviations_is_named():
    """Found as they are, with a third of the file's standard deviations: without the file each is 9/8 of it."""
    std = np.array([0.0035] * 3 + [0.01] * 3 + [0.01, 10.0, 10.0, 0.03])
    camera = msgspec.structs.replace(GIMBAL, focal_length_mm=None, pixel_pitch_um=None, fx_px=6000.0, fy_px=6010.0)
    none = np.zeros(0)
    given = Photographs(
        none, np.zeros((0, 3, 3)), True, np.array(GIMBAL.p_BC), np.array([1900.0, 1900.0]), PayloadErrors(0.0035, 0.002, none),
        np.zeros((0, 1), int), np.zeros((0, 1, 3)), np.zeros((0, 1), bool), np.zeros((0, 1, 2)),
    )  # fmt: skip

    def notes(payload):
        u = replace(fly_unknowns, payload=payload)
        solver = SimpleNamespace(covariance=np.diag(np.r_[np.ones(11), (std / 3) ** 2]))
        return contradictions(
            SimpleNamespace(photographs=SimpleNamespace(photographs=given), unknowns=u, solver=solver),
            camera,
            Path("a"),
        )

    fly_unknowns = fly(203, SHORT).true
    assert notes(2.9 * std) == []
    few = 4.0 * std * [0, 0, 1, 1, 0, 0, 1, 1, 0, 1]
    begin = "a: the pictures contradict the camera file in the log: "
    focal, centre, k1, place, mount = (line.removeprefix(begin) for line in notes(few))
    assert focal.endswith("enter fx_px = 6270.0 and fy_px = 6280.4") and focal.startswith("focal length +4.5 %, 4.0 of")
    assert centre.startswith("principal point (45, 0) px of 2000") and k1.startswith(
        "radial distortion k1 = 0.135, 4.0"
    )
    assert place.endswith("enter p_BC = [0.245, 0.000, -0.100]")
    q_BC = np.array(json.loads(mount.split("q_BC = ")[1]))
    turn = log(rotation_matrix(np.array(GIMBAL.q_BC)).T @ rotation_matrix(q_BC))
    np.testing.assert_allclose(turn, [0.0, 0.0, 9 / 8 * 4 * 0.0035], atol=1e-5)


def test_of_several_attempts_the_sharp_one_counts():
    blurred = capture(id=1, attempt=2, outcome=CaptureOutcome.BLURRED)
    found = newest([capture(id=1), blurred, capture(id=2, valid=False)])
    assert [(c.id, c.attempt) for c in found] == [(1, 1)]


def poses_file(path, **changes):
    R = exp(np.array([0.1, 0.2, 0.3]))
    entry = {
        "id": 1, "attempt": 1, "bundle": "bundle_1", "p_MC": [0.0, 0.1, 5.0], "q_MC": list(quat(R)),
        "position_std_m": 0.01, "attitude_std_rad": 0.004, "covariance": np.diag([1e-4] * 3 + [1e-5] * 3).tolist(),
    }  # fmt: skip
    content = {"command": "calibrate photographs", "details": {"photographs": [entry | changes]}}
    path.write_text(json.dumps(content))
    return path


def test_refined_poses_replace_those_of_the_flight(tmp_path):
    file = poses_file(tmp_path / "poses.json")
    (first, second) = with_poses([capture(), capture(id=2)], read_poses(file), file)
    assert first.capture.bundle == "bundle_1" and first.capture.p_MC == (0.0, 0.1, 5.0)
    assert first.covariance == (1e-4, 1e-4, 1e-4, 1e-5, 1e-5, 1e-5)
    assert second.capture.bundle == "bundle_0" and second.covariance is None


def test_poses_of_another_flight_of_the_same_plan_are_refused(tmp_path):
    """Its photographs have the same numbers and attempts."""
    flown = [capture(stamp_s=100.25), capture(stamp_s=104.25, id=2)]
    file = poses_file(tmp_path / "monday.json", stamp_s=100.25)
    assert are_dated(read_poses(file)) and with_poses(flown, read_poses(file), file)[0].covariance is not None
    file = poses_file(tmp_path / "monday.json", stamp_s=312.5)
    with pytest.raises(PosesError, match="monday.json: its photograph 1 was taken at another time: it is of another"):
        with_poses(flown, read_poses(file), file)
    former = read_poses(poses_file(tmp_path / "monday.json"))
    assert not are_dated(former) and with_poses(flown, former, file)[0].covariance is not None


def test_the_written_poses_say_when_their_photographs_were_taken(tmp_path):
    flown = capture(stamp_s=100.25, id=3)
    pose = RefinedPose(flown, "bundle_1", np.zeros(3), LEVEL, np.eye(6))
    unknowns = SimpleNamespace(mount=np.zeros(3), payload=np.zeros(10))
    flight = SimpleNamespace(corner_px=0.3, unknowns=unknowns)
    content = as_result(RefinedPhotographs(flight, [pose], {}, [], []), tmp_path / "flight.mcap")
    write_json(tmp_path / "poses.json", content)
    (read,) = read_poses(tmp_path / "poses.json")
    assert (read.id, read.stamp_s) == (3, 100.25)


def test_poses_of_another_flight_or_another_file_are_refused(tmp_path):
    file = poses_file(tmp_path / "poses.json", id=7)
    with pytest.raises(PosesError, match=r"poses.json: holds none of these photographs"):
        with_poses([capture()], read_poses(file), file)
    file.write_text("{}")
    with pytest.raises(PosesError, match=r"poses.json: holds no poses of photographs"):
        read_poses(file)
    with pytest.raises(PosesError, match=r"no.json: No such file"):
        read_poses(tmp_path / "no.json")
