"""Corners as measurements: accuracy of the position, and rejection of wrong corners by marker."""

import msgspec
import numpy as np
import pytest
from eskf_truth import HoverSimulation, bundle_pose, position_M, vector

from companion.core.clock import SimulatedStopwatch
from companion.core.enums import Sensor
from companion.core.frames import quat_exp, quat_multiply, rotation_matrix
from companion.core.messages import MarkerCorners, Markers
from companion.estimation.estimator import EstimatorNode

SQUARE_M = np.array([[-0.1, 0.1, 0.0], [0.1, 0.1, 0.0], [0.1, -0.1, 0.0], [-0.1, -0.1, 0.0]])
CENTRES_M = np.array([[-0.4, 0.3, 0.0], [0.4, 0.3, 0.0], [0.0, -0.3, 0.02]])


@pytest.fixture
def cornered(vehicle):
    return msgspec.structs.replace(vehicle, estimator=msgspec.structs.replace(vehicle.estimator, marker_mode="corners"))


def with_corners(flight, seed, corrupt=None):
    """An `edit` that adds the corners of three markers to every observation, with 0.3 px of noise.

    corrupt: callable (rng, number of the marker, corners) -> corners, or None.
    """
    rng, camera = np.random.default_rng(seed), flight.vehicle.camera

    def edit(message):
        if isinstance(message, Markers):
            for o in message.observations:
                p_CM, q_CM = bundle_pose(flight.truth(), camera.p_BC, camera.q_BC)
                for number, centre in enumerate(CENTRES_M):
                    corners_M = SQUARE_M + centre
                    p_C = p_CM + corners_M @ rotation_matrix(q_CM).T
                    xy = p_C[:, :2] / p_C[:, 2:] + 0.3 / camera.fx_px * rng.normal(size=(4, 2))
                    if corrupt is not None:
                        xy = corrupt(rng, number, xy)
                    o.markers.append(
                        MarkerCorners(
                            family="tag36h11",
                            id=number,
                            corners_px=(0.0,) * 8,
                            corners_M=tuple(map(tuple, corners_M.tolist())),
                            corners_xy=tuple(xy.ravel().tolist()),
                        )
                    )
        return message

    return edit


# By command, the errors of the camera and the sway of its mount are found less well: a vehicle without a fast link.
WITH_AND_WITHOUT_IMU = pytest.mark.parametrize(("imu", "limit_m"), [(False, 0.045), (True, 0.035)])


def relative_rms_m(vehicle, seed, corrupt=None, more=None, imu=False):
    flight = HoverSimulation(vehicle, seed=seed, imu=imu)
    corners = with_corners(flight, seed, corrupt)
    flight.edit = corners if more is None else lambda message: more(corners(message))
    flight.run(EstimatorNode(vehicle, None, SimulatedStopwatch()), 8.0)
    pairs = zip(flight.states[-500:], flight.truths[-500:], strict=True)
    rms = np.sqrt(np.mean([np.sum((position_M(vector(s)) - position_M(x)) ** 2) for s, x in pairs]))
    return rms, flight


@WITH_AND_WITHOUT_IMU
def test_corners_give_the_position_relative_to_the_bundle(cornered, imu, limit_m):
    """2.4 cm at 4.3 m: the angle to a bundle 0.8 m wide, seen with 0.3 px."""
    rms, flight = relative_rms_m(cornered, 51, imu=imu)
    assert rms < limit_m
    sizes = {i.dof for i in flight.innovations(Sensor.MARKER)[30:]}
    assert sizes == {24}, "three markers of eight numbers"
    assert flight.statuses[-1].rejected["marker"] <= 2


def test_one_wrong_corner_removes_only_its_marker(cornered):
    def wrong(rng, number, xy):
        if number == 1 and rng.random() < 0.5:
            xy[2] += (0.03, -0.02)  # 20 px
        return xy

    clean, _ = relative_rms_m(cornered, 52)
    corrupted, flight = relative_rms_m(cornered, 52, wrong)
    assert corrupted < 1.2 * clean
    assert {i.dof for i in flight.innovations(Sensor.MARKER)[30:]} == {16, 24}


def test_the_pose_is_measured_when_corners_are_not_finite(cornered):
    def not_finite(rng, number, xy):
        xy[0] = np.nan
        return xy

    rms, flight = relative_rms_m(cornered, 53, not_finite)
    assert rms < 0.05
    assert {i.dof for i in flight.innovations(Sensor.MARKER)} == {6}


@WITH_AND_WITHOUT_IMU
def test_corners_are_used_while_two_poses_are_possible(cornered, imu, limit_m):
    def ambiguous(message):
        if isinstance(message, Markers) and message.stamp_s > 13.0:
            for o in message.observations:
                near = tuple(quat_multiply(o.best.q_CM, quat_exp((0.0, 0.3, 0.0))))
                far = tuple(quat_multiply(o.best.q_CM, quat_exp((0.0, -0.3, 0.0))))
                o.alternative = o.best.__class__(p_CM=o.best.p_CM, q_CM=far, reprojection_rms_px=0.4)
                o.best.q_CM, o.ambiguous = near, True
        return message

    rms, flight = relative_rms_m(cornered, 54, more=ambiguous, imu=imu)
    assert rms < limit_m and flight.states[-1].marker_age_s < 0.2
    assert flight.statuses[-1].rejected["marker_ambiguous"] == 0
