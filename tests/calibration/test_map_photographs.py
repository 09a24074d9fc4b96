"""Poses of photographs by the adjustment of a made-up flight, and how they get into the pictures' tags."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from map_flights import STATE, Course, fly

from calibration.map.adjust import adjust
from calibration.map.photographs import RefinedPhotographs, RefinedPose, carried, newest, refined_pose
from calibration.map.photographs_command import as_result
from calibration.map.rotations import exp, log
from calibration.results import write_json
from companion.core.enums import CaptureOutcome
from companion.core.frames import quat_from_matrix
from companion.core.messages import Capture, State
from companion.core.refined_poses import PosesError, are_dated, read_poses, with_poses
from companion.planning.camera import PayloadCamera

LEVEL = np.eye(3)
SHORT = Course(spacing_m=3.0, standoff_m=2.5, sway_m=1.0, laps=1, stop_s=0.5)
CAMERA = PayloadCamera(
    name="test camera", width_px=6000, height_px=4000, focal_length_mm=35.0, pixel_pitch_um=6.0, p_BC=(0.2, 0.0, -0.1),
    q_BC=(0.5, -0.5, 0.5, -0.5), pitch_range_rad=(0.0, 0.0), exposure_s=0.002, trigger_period_s=1.0,
    nearest_focus_m=0.3, mass_kg=0.5,
)  # fmt: skip


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

    class Exact:
        unknowns, data, t_s = flight.true, flight.data, flight.data.t_s

    for image in (3, 20, 40):
        for other in (image - 1, image + 1):
            R, p = carried(Exact, image, float(Exact.t_s[other]))
            assert np.linalg.norm(p - flight.true.p_W[other]) < 0.01
            assert np.degrees(np.linalg.norm(log(R.T @ flight.true.R_WB[other]))) < 0.2


@pytest.mark.verify
def test_refined_poses_are_as_wrong_as_they_say():
    """Photographs by a camera that is fixed to the body, in twelve flights: mean normalised squared error between 0.3 and 2."""
    nees, worst_m = [], 0.0
    for seed in range(201, 213):
        flight = fly(seed, SHORT)
        found, true, data = adjust(flight.data), flight.true, flight.data
        states = [
            State(stamp_s=t, **STATE, p_W=tuple(p), v_W=tuple(v), q_WB=quat(R))
            for t, p, v, R in zip(data.t_s.tolist(), data.start.p_W, data.start.v_W, data.start.R_WB, strict=True)
        ]
        R_BC = data.lens.R_BC  # the payload camera looks forward, too
        for image in range(8, len(data.t_s) - 8, 15):
            pose = refined_pose(capture(float(data.t_s[image]), data.start.R_WB[image] @ R_BC), found, CAMERA, states)
            R_MW = true.R_WM[0].T
            p_MC = R_MW @ (true.p_W[image] + true.R_WB[image] @ CAMERA.p_BC - true.p_WM[0])
            error = np.concatenate([pose.p_MC - p_MC, log(pose.R_MC @ (R_MW @ true.R_WB[image] @ R_BC).T)])
            nees.append(error @ np.linalg.solve(pose.covariance, error) / 6)
            worst_m = max(worst_m, float(np.linalg.norm(error[:3])))
    assert 0.3 < np.mean(nees) < 2.0 and worst_m < 0.2


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
    flight = SimpleNamespace(corner_px=0.3, unknowns=SimpleNamespace(mount=np.zeros(3)))
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
