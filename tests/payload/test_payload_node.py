"""The payload camera's node against the simulated camera: when it exposes, from where, and what became of each request."""

import math

import msgspec
import numpy as np
import pytest
from pymavlink.dialects.v20 import common

from companion.core.config import ConfigError
from companion.core.enums import CaptureOutcome, ExposureClock
from companion.core.frames import (
    quat_conjugate,
    quat_from_rpy,
    quat_log,
    quat_multiply,
    quat_normalized,
    rotation_matrix,
    rpy_from_quat,
)
from companion.core.messages import CameraRx, CameraTx, MapBundle
from companion.payload.mavlink import decode
from companion.payload.payload_node import PayloadNode
from companion.payload.tags import tags_of
from sitl.payload_camera import PayloadConfig
from tests.payload.rig import BUNDLE_P, BUNDLE_Q, CAMERA, EXACT, FIXED, ORIGIN, VEHICLE, Rig, with_control

CAPTURED = common.MAVLINK_MSG_ID_CAMERA_IMAGE_CAPTURED
COMMAND_LONG = common.MAVLINK_MSG_ID_COMMAND_LONG
SPEED_M_S = np.array([0.1, 0.05, -0.02])


def turned_deg(first, second):
    return math.degrees(float(np.linalg.norm(quat_log(quat_multiply(quat_conjugate(first), second)))))


def command_of(message: CameraTx) -> int:
    return int.from_bytes(message.payload.ljust(33, b"\0")[28:30], "little") if message.number == COMMAND_LONG else -1


# --- pose and time -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("camera", [CAMERA, FIXED], ids=["gimbal", "fixed"])
def test_a_photograph_has_the_true_pose_of_its_exposure(camera):
    rig = Rig(camera).ready()
    rig.body.v_W = SPEED_M_S
    pitch = 0.5 if camera is CAMERA else 0.0
    capture = rig.request(pitch_rad=pitch)
    truth = rig.truths[0]
    assert capture.outcome is CaptureOutcome.TAKEN and capture.valid and capture.reason == ""
    assert capture.clock is ExposureClock.SYNCHRONISED
    assert capture.stamp_s == pytest.approx(truth.stamp_s, abs=0.004)
    assert np.allclose(capture.p_WC, truth.p_WC, atol=0.001)
    assert turned_deg(capture.q_WC, truth.q_WC) < 0.05
    axis = rotation_matrix(capture.q_WC)[:, 2]
    assert math.asin(axis[2]) == pytest.approx(pitch, abs=0.01)
    p_MC = rotation_matrix(BUNDLE_Q).T @ (np.array(truth.p_WC) - BUNDLE_P)
    q_MC = quat_normalized(quat_multiply(quat_conjugate(BUNDLE_Q), truth.q_WC))
    assert capture.bundle == "pier" and np.allclose(capture.p_MC, p_MC, atol=0.001)
    assert turned_deg(capture.q_MC, q_MC) < 0.05
    assert 0.01 <= capture.position_std_m < 0.02 and 0.0035 <= capture.attitude_std_rad < 0.006
    assert capture.gsd_m == pytest.approx(5.0 * 5.97e-6 / 0.035)


@pytest.mark.parametrize("own_deg", [1.0, math.nan], ids=["known", "not reported"])
def test_the_attitude_in_the_frame_of_a_further_bundle_is_as_uncertain_as_that_bundle(own_deg):
    rig = Rig(FIXED)
    state, own_rad = rig.state, math.radians(own_deg)
    near = MapBundle(
        name="second_pier",
        p_WM=(2.0, 0.0, 3.0),
        q_WM=BUNDLE_Q,
        age_s=0.1,
        relative_std_m=0.03,
        attitude_std_rad=own_rad,
    )
    rig.state = lambda: msgspec.structs.replace(state(), bundles=(near,))
    capture = rig.ready().request()
    body_rad, mount_rad = 1e-3, FIXED.control.mount_std_rad
    assert capture.outcome is CaptureOutcome.TAKEN and capture.bundle == "second_pier"
    assert capture.attitude_std_rad == pytest.approx(math.hypot(body_rad, own_rad, mount_rad), rel=0.01, nan_ok=True)
    assert tags_of(capture, FIXED, 1.79e9).attitude_std_rad == (
        None if math.isnan(own_rad) else capture.attitude_std_rad
    )


def test_the_expected_blur_is_the_true_one():
    rig = Rig(FIXED).ready()
    rig.body.v_W = np.array([0.0, 0.2, 0.1])
    rig.body.omega_B = np.array([0.01, 0.02, -0.03])
    capture = rig.request(distance_m=5.0)
    assert capture.blur_px == pytest.approx(rig.truths[0].blur_px, rel=0.02)
    assert 0.1 < capture.blur_px < 0.8


def test_an_aircraft_that_moves_is_waited_for():
    rig = Rig(FIXED).ready()
    rig.body.v_W = np.array([0.0, 1.0, 0.0])
    rig.ask()
    rig.run(2.0)
    assert not rig.truths
    rig.body.v_W = np.zeros(3)
    rig.run(3.0, lambda: bool(rig.captures))
    assert rig.captures[0].outcome is CaptureOutcome.TAKEN and rig.captures[0].blur_px < 0.1


def test_a_photograph_of_an_aircraft_that_never_becomes_still_is_marked():
    rig = Rig(FIXED).ready()
    rig.body.omega_B = np.array([0.0, 0.0, 0.3])
    capture = rig.request()
    assert capture.outcome is CaptureOutcome.BLURRED and "more than 0.65 px" in capture.reason
    assert rig.truths[0].stamp_s - 1.0 > CAMERA.control.still_time_s
    assert rig.counts == {"requested": 1, "blurred": 1}


def test_a_photograph_without_a_state_has_no_pose():
    rig = Rig(FIXED).ready()
    state = rig.state
    rig.state = lambda: msgspec.structs.replace(state(), valid=False)
    rig.run(1.0)
    rig.node.history._states.clear()
    capture = rig.request()
    assert not capture.valid and all(map(math.isnan, capture.p_WC))
    assert capture.outcome is CaptureOutcome.BLURRED and "not known" in capture.reason


def test_utc_stands_in_where_a_camera_does_not_answer_timesync():
    rig = Rig(FIXED, msgspec.structs.replace(EXACT, answers_timesync=False)).ready()
    capture = rig.request()
    assert capture.clock is ExposureClock.UTC and capture.time_std_s == pytest.approx(0.03)
    assert capture.stamp_s == pytest.approx(rig.truths[0].stamp_s, abs=0.004)


def test_a_camera_without_any_clock_is_used_with_the_delay_of_its_file():
    rig = Rig(FIXED, msgspec.structs.replace(EXACT, answers_timesync=False)).ready()
    rig.node._read_utc_offset_s = lambda: math.nan
    rig.body.v_W = SPEED_M_S
    capture = rig.request()
    assert capture.clock is ExposureClock.ARRIVAL and capture.time_std_s == pytest.approx(0.03)
    assert capture.stamp_s == pytest.approx(rig.truths[0].stamp_s, abs=0.09)
    assert capture.position_std_m > 0.01


def test_the_geographic_place_follows_from_the_flight_controllers_origin():
    rig = Rig(FIXED).ready()
    rig.run(2.0)
    capture = rig.request()
    assert capture.geo is not None
    latitude, longitude, altitude = capture.geo
    east = math.radians(longitude - ORIGIN[1]) * 6_371_000.0 * math.cos(math.radians(ORIGIN[0]))
    north = math.radians(latitude - ORIGIN[0]) * 6_371_000.0
    assert np.allclose((east, north, altitude - ORIGIN[2]), capture.p_WC, atol=0.01)
    assert capture.geo_std_m == pytest.approx(math.hypot(1.0, 0.9))
    assert capture.geo_v_std_m == pytest.approx(math.hypot(1.0, 1.7))


@pytest.mark.parametrize("accuracy_m", [math.nan, math.inf])
def test_a_receiver_that_reports_no_accuracy_leaves_that_of_the_geographic_place_out(accuracy_m):
    rig = Rig(FIXED)
    status, state = rig.status, rig.state
    rig.status = lambda: msgspec.structs.replace(status(), gnss_h_acc_m=accuracy_m, gnss_v_acc_m=accuracy_m)
    rig.state = lambda: msgspec.structs.replace(state(), position_std_m=0.02)
    rig.ready().run(2.0)
    capture = rig.request()
    tags = tags_of(capture, FIXED, 1.79e9)
    assert capture.geo is not None and not math.isfinite(capture.geo_std_m)
    assert tags.latitude_deg is not None and (tags.position_error_m, tags.altitude_error_m) == (None, None)


# --- gimbal --------------------------------------------------------------------------------------------------------


def test_a_gimbal_that_never_arrives_ends_the_request():
    rig = Rig().ready()
    rig.payload.faults.gimbal_stuck = True
    capture = rig.request(pitch_rad=1.0)
    assert capture.outcome is CaptureOutcome.REFUSED and capture.reason == "the gimbal stands at 0° and not at 57°"
    assert not rig.truths


def test_a_pitch_beyond_the_gimbals_range_is_refused_at_once():
    rig = Rig().ready()
    capture = rig.request(pitch_rad=2.0, wait_s=0.0)
    assert capture.outcome is CaptureOutcome.REFUSED and "beyond the gimbal's range" in capture.reason


def test_gimbal_reports_with_yaw_from_north_give_the_same_attitude():
    rig = Rig().ready()
    first = rig.request()

    def from_north(message: CameraRx) -> list[CameraRx]:
        if message.number != common.MAVLINK_MSG_ID_GIMBAL_DEVICE_ATTITUDE_STATUS:
            return [message]
        flags = common.GIMBAL_DEVICE_FLAGS_YAW_IN_EARTH_FRAME
        # The nose points east: yaw 90° from north, pitch 0.
        half = math.sqrt(0.5)
        report = common.MAVLink_gimbal_device_attitude_status_message(
            0, 0, 0, flags, [half, 0.0, 0.0, half], math.nan, math.nan, math.nan, 0
        )
        payload = bytes(report.pack(common.MAVLink(None))[10:-2])
        return [msgspec.structs.replace(message, payload=payload)]

    rig.change_rx = from_north
    second = rig.request(id=2)
    assert turned_deg(first.q_WC, second.q_WC) < 0.1


def level_gimbal(message: CameraRx, component: int, device: int = 0) -> CameraRx:
    """The same report as of another gimbal, which stands level."""
    flags = common.GIMBAL_DEVICE_FLAGS_YAW_IN_VEHICLE_FRAME
    report = common.MAVLink_gimbal_device_attitude_status_message(
        0, 0, 0, flags, [1.0, 0.0, 0.0, 0.0], 0.0, 0.0, 0.0, 0, math.nan, math.nan, device
    )
    payload = bytes(report.pack(common.MAVLink(None))[10:-2])
    return msgspec.structs.replace(message, component=component, payload=payload)


@pytest.mark.parametrize("component", [171, 1])
def test_another_gimbal_on_the_link_changes_nothing(component):
    rig = Rig()
    attitude = common.MAVLINK_MSG_ID_GIMBAL_DEVICE_ATTITUDE_STATUS
    rig.change_rx = lambda m: [level_gimbal(m, component), m] if m.number == attitude else [m]
    rig.ready()
    capture = rig.request(pitch_rad=1.2)
    assert capture.outcome is CaptureOutcome.TAKEN, capture.reason
    assert turned_deg(capture.q_WC, rig.truths[0].q_WC) < 0.05
    assert rig.statuses[-1].gimbal_foreign > 10


@pytest.mark.parametrize(
    ("device", "other"),
    [(154, (171, 0)), (0, (171, 0)), (1, (1, 2)), (1, (154, 0))],
    ids=["a gimbal's component", "none: the first", "of two devices of PX4", "of PX4, not another component"],
)
def test_the_gimbal_is_the_one_that_its_manager_names(device, other):
    """PX4 is the manager; by its own devices it reports under its own component."""
    rig = Rig(with_control(CAMERA, gimbal_component_id=1))
    attitude = common.MAVLINK_MSG_ID_GIMBAL_DEVICE_ATTITUDE_STATUS
    status = common.MAVLink_gimbal_manager_status_message(0, 0, device, 1, 192, 0, 0)
    named = CameraRx(
        stamp_s=0, system=1, component=1, number=status.id, payload=bytes(status.pack(common.MAVLink(None))[10:-2])
    )

    def both(message: CameraRx) -> list[CameraRx]:
        if message.number != attitude:
            return [message]
        own = msgspec.structs.replace(message, component=1) if device == 1 else message
        before = [own] if device == 0 else []  # else the other one is heard first
        if rig.now_s > 0.5:
            before.append(named)
        return [*before, level_gimbal(message, *other), own]

    rig.change_rx = both
    rig.ready()
    capture = rig.request(pitch_rad=1.2)
    assert capture.outcome is CaptureOutcome.TAKEN, capture.reason
    assert turned_deg(capture.q_WC, rig.truths[0].q_WC) < 0.05


def test_a_silent_gimbal_is_not_replaced_by_another_one():
    rig = Rig().ready()
    attitude = common.MAVLINK_MSG_ID_GIMBAL_DEVICE_ATTITUDE_STATUS
    rig.change_rx = lambda m: [level_gimbal(m, 171)] if m.number == attitude else [m]
    rig.run(2.0)
    assert rig.request(wait_s=0.0).reason == "gimbal 154: does not report its attitude, another one does"


def commands(rig: Rig, command: int, since: int = 0) -> list:
    """The decoded commands of a kind that the node has sent."""
    sent = [m for m in rig.sent[since:] if command_of(m) == command]
    return [decode(CameraRx(stamp_s=0, system=1, component=1, number=m.number, payload=m.payload)) for m in sent]


def attitude_report(rig: Rig, change: CameraRx, q, flags: int, component: int | None = None) -> CameraRx:
    report = common.MAVLink_gimbal_device_attitude_status_message(
        0, 0, 0, flags, q, math.nan, math.nan, math.nan, 0, math.nan, math.nan, 0
    )
    return msgspec.structs.replace(
        change,
        component=change.component if component is None else component,
        payload=bytes(report.pack(common.MAVLink(None))[10:-2]),
    )


@pytest.mark.parametrize("north", [False, True], ids=["from the body", "from north"])
@pytest.mark.parametrize("pitch_deg", [0.0, 90.0])
@pytest.mark.parametrize(("roll_deg", "yaw_deg"), [(0.0, 90.0), (0.0, 11.0), (12.0, 0.0)])
def test_a_gimbal_that_is_turned_aside_is_commanded_again_and_refuses(roll_deg, yaw_deg, pitch_deg, north):
    """It has the wanted pitch."""
    rig = turned_aside(roll_deg, yaw_deg, pitch_deg, north)
    since = len(rig.sent)
    capture = rig.request(pitch_rad=math.radians(pitch_deg))
    assert capture.outcome is CaptureOutcome.REFUSED and not rig.truths
    assert capture.reason == f"the gimbal is turned by {roll_deg + yaw_deg:.0f}° in yaw or roll"
    assert len(commands(rig, common.MAV_CMD_DO_GIMBAL_MANAGER_PITCHYAW, since)) >= 5


@pytest.mark.parametrize("north", [False, True], ids=["from the body", "from north"])
@pytest.mark.parametrize("pitch_deg", [0.0, 57.0, 90.0])
@pytest.mark.parametrize(("roll_deg", "yaw_deg"), [(6.0, 0.0), (0.0, 5.0), (0.0, -8.0)])
def test_wind_and_drift_keep_no_gimbal_from_its_photograph(roll_deg, yaw_deg, pitch_deg, north):
    """It leans with the aircraft, or its yaw drifts."""
    rig = turned_aside(roll_deg, yaw_deg, pitch_deg, north)
    since = len(rig.sent)
    capture = rig.request(pitch_rad=math.radians(pitch_deg))
    assert capture.outcome is CaptureOutcome.TAKEN, capture.reason
    straight = quat_from_rpy(0.0, -math.radians(pitch_deg), 0.0)
    off_deg = turned_deg(quat_multiply(straight, quat_normalized(np.array(CAMERA.q_BC))), capture.q_WC)
    assert off_deg == pytest.approx(math.hypot(roll_deg, yaw_deg), abs=0.5), "the pose has what the gimbal reports"
    rig.run(4.0)
    assert len(commands(rig, common.MAV_CMD_DO_GIMBAL_MANAGER_PITCHYAW, since)) >= 4


def from_north(rig: Rig, yaw_deg: float = 0.0, pitch_deg: float = 0.0):
    """Reports of a gimbal that has north from the flight controller's compass and stands at this yaw from the true nose."""

    def changed(message: CameraRx) -> list[CameraRx]:
        if message.number != common.MAVLINK_MSG_ID_GIMBAL_DEVICE_ATTITUDE_STATUS:
            return [message]
        heading_rad = rpy_from_quat(rig.body.q_WB)[2] + rig.compass_rad  # from east, to the left
        yaw_rad = math.radians(90.0 + yaw_deg) - heading_rad
        q = quat_from_rpy(0.0, math.radians(pitch_deg), yaw_rad)  # front, right, down
        return [attitude_report(rig, message, q.tolist(), common.GIMBAL_DEVICE_FLAGS_YAW_IN_EARTH_FRAME)]

    return changed


@pytest.mark.parametrize("heading_deg", [0.0, 130.0])
@pytest.mark.parametrize("compass_deg", [-8.0, 12.0, 20.0])
def test_a_compass_that_is_wrong_is_neither_in_the_pose_nor_a_turned_gimbal(compass_deg, heading_deg):
    """Iron turns the flight controller's compass, and the gimbal with yaw from north follows it. It looks straight ahead."""
    rig = Rig()
    rig.body.q_WB, rig.compass_rad = quat_from_rpy(0.0, 0.0, math.radians(heading_deg)), math.radians(compass_deg)
    rig.change_rx = from_north(rig, pitch_deg=30.0)
    rig.ready()
    since = len(rig.sent)
    capture = rig.request(pitch_rad=math.radians(30.0))
    assert capture.outcome is CaptureOutcome.TAKEN, capture.reason
    straight = quat_multiply(rig.body.q_WB, quat_from_rpy(0.0, -math.radians(30.0), 0.0))
    assert turned_deg(quat_multiply(straight, quat_normalized(np.array(CAMERA.q_BC))), capture.q_WC) < 0.1
    assert len(commands(rig, common.MAV_CMD_DO_GIMBAL_MANAGER_PITCHYAW, since)) == 1


def test_a_gimbal_turned_aside_is_found_where_the_compass_is_wrong_by_as_much():
    """By north of the stack it would look straight ahead."""
    rig = Rig()
    rig.compass_rad = math.radians(20.0)
    rig.change_rx = from_north(rig, yaw_deg=20.0)
    capture = rig.ready().request()
    assert capture.outcome is CaptureOutcome.REFUSED
    assert capture.reason == "the gimbal is turned by 20° in yaw or roll"


def test_yaw_from_north_without_the_flight_controllers_heading_gives_no_pose():
    rig = Rig()
    rig.change_rx = from_north(rig)
    rig.ready().has_attitude = False
    rig.run(1.0)
    capture = rig.request()
    assert capture.outcome is CaptureOutcome.BLURRED and capture.reason == "the motion at the exposure is not known"
    assert not capture.valid


def turned_aside(roll_deg: float, yaw_deg: float, pitch_deg: float, north: bool) -> Rig:
    """A gimbal with these angles; the nose of the aircraft points east, which is 90° from north."""
    rig = Rig(msgspec.structs.replace(CAMERA, pitch_range_rad=(-1.6, 1.6)))
    degrees = roll_deg, pitch_deg, yaw_deg + (90.0 if north else 0.0)
    q = quat_from_rpy(*map(math.radians, degrees))  # front, right, down
    frame = common.GIMBAL_DEVICE_FLAGS_YAW_IN_EARTH_FRAME if north else common.GIMBAL_DEVICE_FLAGS_YAW_IN_VEHICLE_FRAME
    attitude = common.MAVLINK_MSG_ID_GIMBAL_DEVICE_ATTITUDE_STATUS
    rig.change_rx = lambda m: [attitude_report(rig, m, q.tolist(), frame)] if m.number == attitude else [m]
    return rig.ready()


def test_a_gimbal_is_commanded_once_for_each_photograph_where_it_stands_right():
    rig = Rig().ready()
    for id in (1, 2, 3):
        since = len(rig.sent)
        assert rig.request(id, pitch_rad=0.0).outcome is CaptureOutcome.TAKEN
        sent = commands(rig, common.MAV_CMD_DO_GIMBAL_MANAGER_PITCHYAW, since)
        assert len(sent) == 1 and sent[0].param7 == common.MAV_COMP_ID_GIMBAL


def test_the_gimbals_control_is_taken_where_it_reports_often_by_itself():
    """The link comes up late, and the gimbal sends 25 reports a second."""
    rig = Rig()
    rig.payload._gimbal_period_s = 0.04
    rig.change_tx = lambda message: [message] if rig.now_s > 2.3 else []
    rig.change_rx = lambda message: [message] if rig.now_s > 2.3 else []
    rig.run(8.0)
    assert rig.node.problem(rig.now_s) == "" and rig.payload.gimbal_controller == (1, 192)
    assert rig.request(pitch_rad=-0.5).outcome is CaptureOutcome.TAKEN
    claims = commands(rig, common.MAV_CMD_DO_GIMBAL_MANAGER_CONFIGURE)
    assert claims[-1].param7 == common.MAV_COMP_ID_GIMBAL
    count = len(claims)
    rig.run(5.0)
    assert len(commands(rig, common.MAV_CMD_DO_GIMBAL_MANAGER_CONFIGURE)) == count  # it has it, and says so


def test_a_gimbal_that_another_station_controls_is_a_problem_and_is_claimed():
    rig = Rig().ready()
    lost = common.MAV_CMD_DO_GIMBAL_MANAGER_CONFIGURE
    rig.change_tx = lambda message: [] if command_of(message) == lost else [message]
    rig.payload.gimbal_controller = (255, 190)
    since = len(rig.sent)
    rig.run(5.0)
    assert rig.node.problem(rig.now_s) == "gimbal 154: is controlled by 255/190, and not by this process (1/192)"
    assert 4 <= len(commands(rig, lost, since)) <= 5
    rig.change_tx = lambda message: [message]
    rig.run(3.0)
    assert rig.node.problem(rig.now_s) == "" and rig.payload.gimbal_controller == (1, 192)


def test_a_denied_command_takes_the_gimbals_control_again():
    """Its manager does not say who has the control."""
    rig = Rig()
    status = common.MAVLINK_MSG_ID_GIMBAL_MANAGER_STATUS
    rig.change_rx = lambda message: [] if message.number == status else [message]
    rig.ready()
    rig.payload.gimbal_controller = (255, 190)
    assert rig.request(pitch_rad=-0.5).outcome is CaptureOutcome.TAKEN
    assert rig.payload.gimbal_controller == (1, 192)


def answers(result: int, command: int = common.MAV_CMD_DO_GIMBAL_MANAGER_PITCHYAW):
    """Acknowledgements of a command of the gimbal's manager, with another result."""
    ack = common.MAVLINK_MSG_ID_COMMAND_ACK

    def changed(message: CameraRx) -> list[CameraRx]:
        if message.number != ack or message.component != 154 or decode(message).command != command:
            return [message]
        other = common.MAVLink_command_ack_message(command, result)
        return [msgspec.structs.replace(message, payload=bytes(other.pack(common.MAVLink(None))[10:-2]))]

    return changed


@pytest.mark.parametrize("result", [common.MAV_RESULT_FAILED, common.MAV_RESULT_UNSUPPORTED])
def test_one_refused_command_of_the_gimbal_costs_no_later_photograph(result):
    """It stands at its pitch, so that nothing but the refusal is a reason to command it again."""
    rig = Rig().ready()
    assert rig.request(1).outcome is CaptureOutcome.TAKEN
    rig.change_rx, since = answers(result), len(rig.sent)
    rig.ask(2)
    rig.run(0.1)
    assert rig.node.problem(rig.now_s).startswith("gimbal 154: refused its command")
    rig.change_rx = lambda message: [message]
    rig.run(3.0)
    assert rig.captures[-1].id == 2 and rig.captures[-1].outcome is CaptureOutcome.TAKEN
    assert rig.node.problem(rig.now_s) == "" == rig.statuses[-1].problem
    assert len(commands(rig, common.MAV_CMD_DO_GIMBAL_MANAGER_PITCHYAW, since)) == 2, (
        "again after a second, and no more"
    )
    assert all(rig.request(id).outcome is CaptureOutcome.TAKEN for id in (3, 4))


def test_a_refusal_without_a_later_acknowledgement_does_not_last():
    rig = Rig().ready()
    rig.change_rx = answers(common.MAV_RESULT_FAILED)
    rig.ask(1)
    rig.run(0.1)
    assert rig.node.problem(rig.now_s)
    rig.change_rx = lambda m: [] if m.number == common.MAVLINK_MSG_ID_COMMAND_ACK and m.component == 154 else [m]
    rig.run(4.0)
    assert rig.node.problem(rig.now_s) == "" and rig.request(2).outcome is CaptureOutcome.TAKEN


def test_a_gimbal_that_refuses_every_command_stays_a_problem():
    rig = Rig().ready()
    rig.change_rx = answers(common.MAV_RESULT_FAILED)
    rig.ask(1)
    rig.run(1.0)
    for _ in range(20):
        rig.run(1.0)
        assert rig.node.problem(rig.now_s) == "gimbal 154: refused its command: failed"
    assert rig.request(2, wait_s=0.0).reason == "gimbal 154: refused its command: failed"


@pytest.mark.parametrize("controller", [(0, 0), (255, 190)], ids=["none", "another one"])
def test_a_gimbal_manager_without_control_obeys_whatever_controller_it_reports(controller):
    """It does not know CONFIGURE, and obeys; its STATUS is never filled in, or names whichever station commanded last."""
    rig = Rig()
    claim, status = common.MAV_CMD_DO_GIMBAL_MANAGER_CONFIGURE, common.MAVLINK_MSG_ID_GIMBAL_MANAGER_STATUS
    unsupported = answers(common.MAV_RESULT_UNSUPPORTED, claim)

    def changed(message: CameraRx) -> list[CameraRx]:
        if message.number != status:
            return unsupported(message)
        other = common.MAVLink_gimbal_manager_status_message(0, 0, 154, *controller, 0, 0)
        return [msgspec.structs.replace(message, payload=bytes(other.pack(common.MAVLink(None))[10:-2]))]

    rig.change_rx = changed
    rig.ready()
    since = len(rig.sent)
    assert rig.request(pitch_rad=-0.5).outcome is CaptureOutcome.TAKEN
    rig.run(5.0)
    assert rig.node.problem(rig.now_s) == "" and not commands(rig, claim, since)


def test_a_gimbal_that_reports_no_controller_is_claimed_and_used_while_it_obeys():
    """It accepts CONFIGURE, and goes on reporting 0/0."""
    rig = Rig()
    status = common.MAVLINK_MSG_ID_GIMBAL_MANAGER_STATUS
    none = common.MAVLink_gimbal_manager_status_message(0, 0, 154, 0, 0, 0, 0).pack(common.MAVLink(None))[10:-2]
    rig.change_rx = lambda m: [msgspec.structs.replace(m, payload=bytes(none)) if m.number == status else m]
    rig.ready()
    since = len(rig.sent)
    assert rig.request(pitch_rad=-0.5).outcome is CaptureOutcome.TAKEN
    rig.run(5.0)
    assert rig.node.problem(rig.now_s) == ""
    assert len(commands(rig, common.MAV_CMD_DO_GIMBAL_MANAGER_CONFIGURE, since)) >= 4


def own_report_of_px4(rig: Rig, flags: int):
    """PX4's report for a gimbal on its outputs: what was commanded, at once."""

    def changed(message: CameraRx) -> list[CameraRx]:
        if message.number != common.MAVLINK_MSG_ID_GIMBAL_DEVICE_ATTITUDE_STATUS:
            return [message]
        q = quat_from_rpy(0.0, rig.payload._wanted_rad, 0.0)
        return [attitude_report(rig, message, q.tolist(), flags, component=1)]

    return changed


def test_a_gimbal_of_which_px4_reports_the_set_point_gets_time_for_its_way():
    rig = Rig(with_control(CAMERA, gimbal_component_id=1))
    rig.change_rx = own_report_of_px4(rig, common.GIMBAL_DEVICE_FLAGS_YAW_IN_VEHICLE_FRAME)
    rig.ready()
    asked_s = rig.now_s
    capture = rig.request(pitch_rad=math.radians(-60.0))
    assert capture.outcome is CaptureOutcome.TAKEN
    assert rig.truths[0].stamp_s - asked_s > 2.0 + CAMERA.control.gimbal_settle_s
    assert capture.attitude_std_rad > 0.03
    assert turned_deg(capture.q_WC, rig.truths[0].q_WC) < 0.1


LOCKS = common.GIMBAL_DEVICE_FLAGS_ROLL_LOCK | common.GIMBAL_DEVICE_FLAGS_PITCH_LOCK
ALL_LOCKS = LOCKS | common.GIMBAL_DEVICE_FLAGS_NEUTRAL | common.GIMBAL_DEVICE_FLAGS_YAW_LOCK


@pytest.mark.parametrize("flags", [LOCKS, ALL_LOCKS], ids=["PX4 1.17", "PX4 before"])
@pytest.mark.parametrize("stabilised", [False, True], ids=["by the mount", "MNT_DO_STAB"])
@pytest.mark.parametrize("pitch_deg", [0.0, -60.0, 57.0])
def test_a_gimbal_on_px4s_servo_outputs_takes_photographs_of_a_leaning_aircraft(flags, stabilised, pitch_deg):
    """PX4 reports what it commands to the servos: with MNT_DO_STAB, Euler angles less those of the body."""
    rig = Rig(with_control(CAMERA, gimbal_component_id=1))
    roll_rad, body_pitch_rad, heading_rad = (math.radians(degrees) for degrees in (4.0, -5.0, 70.0))
    rig.body.q_WB = quat_from_rpy(roll_rad, body_pitch_rad, heading_rad)
    attitude = common.MAVLINK_MSG_ID_GIMBAL_DEVICE_ATTITUDE_STATUS

    def changed(message: CameraRx) -> list[CameraRx]:
        if message.number != attitude:
            return [message]
        # Front, right, down: the pitch of the wanted direction is up, the body's here nose down.
        wanted_rad = rig.payload._wanted_rad
        servos = (-roll_rad, wanted_rad + body_pitch_rad, 0.0) if stabilised else (0.0, wanted_rad, 0.0)
        return [attitude_report(rig, message, quat_from_rpy(*servos).tolist(), flags, component=1)]

    rig.change_rx = changed
    rig.ready()
    capture = rig.request(pitch_rad=math.radians(pitch_deg))
    assert capture.outcome is CaptureOutcome.TAKEN, capture.reason
    wanted = quat_multiply(quat_from_rpy(0.0, 0.0, heading_rad), quat_from_rpy(0.0, -math.radians(pitch_deg), 0.0))
    # The pose is that of the servos, which level a camera as a whole only where it looks forward.
    allowed_deg = 0.1 if not stabilised else 0.5 if pitch_deg == 0 else 4.5
    assert turned_deg(quat_multiply(wanted, quat_normalized(np.array(CAMERA.q_BC))), capture.q_WC) < allowed_deg
    assert capture.attitude_std_rad > 0.03


# --- every photograph is accounted for -------------------------------------------------------------------------------


def test_a_refusal_is_reported_with_the_cameras_reason():
    rig = Rig(FIXED).ready()
    rig.payload.faults.refuses = True
    capture = rig.request()
    assert (
        capture.outcome is CaptureOutcome.REFUSED
        and capture.reason == "the camera refused: busy (temporarily rejected)"
    )
    rig.payload.faults.refuses = False
    again = rig.request()
    assert (again.outcome, again.attempt) == (CaptureOutcome.TAKEN, 2)
    assert rig.counts == {"requested": 2, "taken": 1, "refused": 1}


def test_an_answer_that_never_comes_is_lost_and_the_next_photograph_is_not_taken_for_it():
    rig = Rig(FIXED).ready()
    assert rig.request(id=1).outcome is CaptureOutcome.TAKEN
    rig.payload.faults.loses_answers = True
    lost = rig.request(id=2)
    assert lost.outcome is CaptureOutcome.LOST and lost.reason == "no answer within 3 s"
    rig.payload.faults.loses_answers = False
    third = rig.request(id=3)
    assert (third.id, third.outcome, third.image_index) == (3, CaptureOutcome.TAKEN, 2)
    assert third.stamp_s == pytest.approx(rig.truths[2].stamp_s, abs=0.004)
    assert rig.counts == {"requested": 3, "taken": 2, "lost": 1} and rig.node.shots.missing == 1


@pytest.mark.parametrize("timesync", [True, False], ids=["clock", "no clock"])
def test_a_late_answer_belongs_to_its_own_photograph_and_is_counted_once(timesync):
    rig = Rig(FIXED, msgspec.structs.replace(EXACT, answers_timesync=timesync)).ready()
    if not timesync:
        rig.node._read_utc_offset_s = lambda: math.nan
    rig.payload.faults.late_s = 3.5
    rig.ask(id=1)
    rig.run(10.0, lambda: bool(rig.captures))
    assert rig.captures[0].outcome is CaptureOutcome.LOST
    rig.payload.faults.late_s = 0.0
    rig.run(2.0)
    late = rig.captures[1]
    assert (late.id, late.attempt, late.outcome, late.late) == (1, 1, CaptureOutcome.TAKEN, True)
    assert late.stamp_s == pytest.approx(rig.truths[0].stamp_s, abs=0.004 if timesync else 0.1)
    assert rig.request(id=2).id == 2
    assert rig.counts == {"requested": 2, "taken": 2, "late": 1}


def test_a_late_answer_during_the_repeated_request_is_not_taken_for_the_second_attempt():
    rig = Rig(FIXED).ready()
    rig.payload.faults.late_s = 3.2
    assert rig.request(id=1).outcome is CaptureOutcome.LOST
    rig.payload.faults.late_s = 0.0
    rig.ask(id=1)
    rig.run(4.0, lambda: len(rig.captures) == 3)
    outcomes = {(c.attempt, c.late): c.image_index for c in rig.captures[1:]}
    assert outcomes == {(1, True): 0, (2, False): 1}
    assert rig.counts == {"requested": 2, "taken": 2, "late": 1}


@pytest.mark.parametrize("timesync", ["not answered", "by another clock"])
def test_utc_distinguishes_a_late_answer_from_that_of_the_request_in_work(timesync):
    """MAVSDK answers TIMESYNC by Unix time and stamps by the time since its start."""
    rig = Rig(FIXED, msgspec.structs.replace(EXACT, answers_timesync=False)).ready()

    def answered(message: CameraTx) -> list[CameraTx]:
        if message.number == common.MAVLINK_MSG_ID_TIMESYNC and timesync == "by another clock":
            ts1_ns = int.from_bytes(message.payload.ljust(16, b"\0")[8:16], "little")
            rig.node.clock.answer(round((1.79e9 + rig.now_s) * 1e9), ts1_ns, rig.now_s + 0.004)
        return [message]

    rig.change_tx = answered
    rig.run(3.0)
    rig.payload.faults.late_s = 3.6
    assert rig.request(id=1).outcome is CaptureOutcome.LOST
    rig.ask(id=2)
    rig.run(0.25)  # the command was sent, the shutter is still closed
    rig.payload.faults.late_s = 0.9
    rig.run(8.0, lambda: len(rig.captures) == 3)
    assert {capture.id: (capture.late, capture.image_index) for capture in rig.captures[1:]} == {
        1: (True, 0),
        2: (False, 1),
    }
    assert all(capture.clock is ExposureClock.UTC for capture in rig.captures[1:])


def utc_camera(rig: Rig, behind_s, lost: int):
    """Make the camera's UTC wrong by behind_s(photograph's number), and lose one answer; cameras count from 0."""
    time_utc_at = slice(0, 8)

    def changed(message: CameraRx) -> list[CameraRx]:
        if message.number != CAPTURED:
            return [message]
        payload = bytearray(message.payload.ljust(255, b"\0"))
        index = len(rig.truths) - 1
        utc_us = int.from_bytes(payload[time_utc_at], "little") - round(1e6 * behind_s(index))
        payload[time_utc_at] = utc_us.to_bytes(8, "little")
        return [] if index == lost else [msgspec.structs.replace(message, payload=bytes(payload))]

    rig.change_rx = changed


def photographs_along_a_way(rig: Rig, count: int):
    """The captures of requests 4 m apart, each repeated once where its photograph was lost."""
    for id in range(1, count + 1):
        if rig.request(id).outcome is CaptureOutcome.LOST:
            rig.request(id)
        rig.body.v_W = np.array([0.0, 1.0, 0.0])
        rig.run(4.0)
        rig.body.v_W = np.zeros(3)
        rig.run(1.0)
    places = {truth.image_index: truth.p_WC for truth in rig.truths}
    taken = [c for c in rig.captures if c.outcome is not CaptureOutcome.LOST]
    for capture in taken:
        assert np.allclose(capture.p_WC, places[capture.image_index], atol=0.01), capture
    return taken


@pytest.mark.parametrize("behind_s", [8.0, 4.0, 1.0, 0.3])
def test_a_camera_whose_utc_is_behind_keeps_its_photographs_apart_after_a_loss(behind_s):
    rig = Rig(FIXED, msgspec.structs.replace(EXACT, answers_timesync=False)).ready()
    utc_camera(rig, lambda _: behind_s, lost=2)
    taken = photographs_along_a_way(rig, 6)
    assert [c.id for c in taken] == [1, 2, 3, 4, 5, 6] and {c.clock for c in taken} == {ExposureClock.ARRIVAL}
    assert rig.counts == {"requested": 7, "taken": 6, "lost": 1}


@pytest.mark.parametrize("step_s", [0.3, 1.0, 4.0, 8.0])
def test_a_camera_whose_utc_steps_backwards_goes_on(step_s):
    rig = Rig(FIXED, msgspec.structs.replace(EXACT, answers_timesync=False)).ready()
    utc_camera(rig, lambda index: step_s if index >= 3 else 0.0, lost=-1)
    taken = photographs_along_a_way(rig, 6)
    assert [c.id for c in taken] == [1, 2, 3, 4, 5, 6]
    assert [c.clock for c in taken] == [ExposureClock.UTC] * 3 + [ExposureClock.ARRIVAL] * 3


def test_a_repeated_answer_is_counted_once():
    rig = Rig(FIXED).ready()
    rig.payload.faults.repeats_answers = True
    assert rig.request().outcome is CaptureOutcome.TAKEN
    rig.run(1.0)
    assert len(rig.captures) == 1 and rig.counts == {"requested": 1, "taken": 1, "duplicated": 1}


def test_a_photograph_by_another_hand_is_counted_as_foreign():
    rig = Rig(FIXED).ready()
    rig.payload.expose_after_latency(rig.now_s)
    rig.run(1.0)
    assert rig.request().image_index == 1
    assert rig.counts == {"requested": 1, "taken": 1, "foreign": 1}


def test_a_lost_command_is_sent_again_and_takes_one_photograph():
    rig = Rig(FIXED).ready()
    dropped = []

    def first_lost(message: CameraTx) -> list[CameraTx]:
        if command_of(message) == common.MAV_CMD_IMAGE_START_CAPTURE and not dropped:
            dropped.append(message)
            return []
        return [message]

    rig.change_tx = first_lost
    assert rig.request().outcome is CaptureOutcome.TAKEN
    assert len(rig.truths) == 1 and dropped


def test_a_lost_acknowledgement_takes_no_second_photograph():
    rig = Rig(FIXED).ready()
    rig.change_rx = lambda m: [] if m.number == common.MAVLINK_MSG_ID_COMMAND_ACK else [m]
    rig.payload.faults.late_s = 0.8
    assert rig.request().outcome is CaptureOutcome.TAKEN
    sent = [m for m in rig.sent if command_of(m) == common.MAV_CMD_IMAGE_START_CAPTURE]
    assert len(sent) > 1 and len(rig.truths) == 1 and rig.counts == {"requested": 1, "taken": 1}


def test_a_failed_photograph_is_refused_with_its_number():
    rig = Rig(FIXED).ready()

    def failed(message: CameraRx) -> list[CameraRx]:
        if message.number != CAPTURED:
            return [message]
        answer = common.MAVLink_camera_image_captured_message(0, 0, 0, 0, 0, 0, 0, [1, 0, 0, 0], 0, 0, b"")
        return [msgspec.structs.replace(message, payload=bytes(answer.pack(common.MAVLink(None))[10:-2]))]

    rig.change_rx = failed
    capture = rig.request()
    assert capture.outcome is CaptureOutcome.REFUSED and "failed" in capture.reason and capture.image_index == 0


def test_one_photograph_at_a_time():
    rig = Rig(FIXED).ready()
    rig.ask(id=1)
    rig.ask(id=1)  # repeated: ignored
    rig.ask(id=2)
    assert [(c.id, c.outcome, c.reason) for c in rig.captures] == [
        (2, CaptureOutcome.REFUSED, "photograph 1 is in work")
    ]
    rig.run(3.0, lambda: len(rig.captures) == 2)
    assert rig.captures[1].id == 1 and rig.counts == {"requested": 2, "taken": 1, "refused": 1}


def test_photographs_keep_the_cameras_period():
    rig = Rig(FIXED).ready()
    for id in range(1, 5):
        rig.request(id)
    stamps = [truth.stamp_s for truth in rig.truths]
    assert len(stamps) == 4 and min(np.diff(stamps)) > CAMERA.trigger_period_s - 0.1


def test_a_card_that_is_formatted_between_two_flights_costs_no_photograph():
    rig = Rig(FIXED).ready()
    for id in (1, 2, 3, 4):
        assert rig.request(id).outcome is CaptureOutcome.TAKEN
    rig.run(60.0)
    rig.payload.count = 0
    for id in range(101, 107):
        assert rig.request(id).outcome is CaptureOutcome.TAKEN
    assert rig.counts == {"requested": 10, "taken": 10}


@pytest.mark.parametrize("before", [1, 3])
def test_a_process_that_starts_again_takes_every_photograph(before):
    """The camera takes a command with the sequence number of the last one for that one, sent again."""
    rig = Rig(FIXED).ready()
    for id in range(1, 1 + before):
        rig.request(id)
    former = len(rig.captures)
    rig.node = PayloadNode(rig.camera, VEHICLE, lambda: 1.79e9)
    rig.run(5.0, lambda: not rig.node.problem(rig.now_s))
    for id in range(1, 4):
        assert rig.request(id).outcome is CaptureOutcome.TAKEN
    keys = {(capture.id, capture.attempt) for capture in rig.captures}
    assert len(keys) == len(rig.captures) == former + 3


def test_the_sequence_begins_above_the_cameras_own_count():
    """The computer was restarted, and its clock begins at 0; the camera ran on."""
    rig = Rig(FIXED)
    rig.payload.count, rig.payload._sequence = 500, 3.0
    rig.ready()
    rig.run(1.0)
    assert rig.request().outcome is CaptureOutcome.TAKEN and rig.payload._sequence == 501.0


def test_a_photograph_by_another_hand_after_a_lost_command_is_not_taken_for_it():
    rig = Rig(FIXED).ready()
    rig.request(1)
    lost = common.MAV_CMD_IMAGE_START_CAPTURE
    rig.change_tx = lambda message: [] if command_of(message) == lost else [message]
    assert rig.request(2).outcome is CaptureOutcome.LOST
    rig.body.v_W = np.array([0.0, 1.0, 0.0])
    rig.run(15.0)
    rig.payload.expose_after_latency(rig.now_s)
    rig.run(2.0)
    assert len(rig.captures) == 2
    assert rig.counts == {"requested": 2, "taken": 1, "lost": 1, "foreign": 1}


def test_a_denied_request_for_a_missing_answer_does_not_end_the_reports_of_the_storage():
    rig = Rig(FIXED).ready()
    rig.run(12.0)
    rig.request(1)
    answers = rig.payload._send_requested
    rig.payload._send_requested = lambda number, parameter, now_s: (
        int(common.MAV_RESULT_DENIED) if number == CAPTURED else answers(number, parameter, now_s)
    )
    rig.change_rx = lambda m: [] if m.number == CAPTURED else [m]
    assert rig.request(2).outcome is CaptureOutcome.LOST
    rig.change_rx = lambda m: [m]
    rig.payload.faults.without_storage = True
    rig.run(8.0)
    assert rig.node.problem(rig.now_s).endswith("it has no storage; insert a card")


@pytest.mark.parametrize("result", [common.MAV_RESULT_DENIED, common.MAV_RESULT_UNSUPPORTED])
def test_a_camera_that_refuses_one_report_of_its_storage_is_asked_again(result):
    rig = Rig(FIXED).ready()
    answers = rig.payload._send_requested
    refused = []

    def once(number: int, parameter: float, now_s: float) -> int:
        if number == common.MAVLINK_MSG_ID_STORAGE_INFORMATION and not refused:
            refused.append(now_s)
            return int(result)
        return answers(number, parameter, now_s)

    rig.payload._send_requested = once
    rig.run(8.0)
    rig.payload.faults.without_storage = True
    rig.run(8.0)
    assert refused and rig.node.problem(rig.now_s).endswith("it has no storage; insert a card")


def test_a_camera_that_denies_reports_of_its_storage_can_be_used():
    rig = Rig(FIXED)
    answers = rig.payload._send_requested
    rig.payload._send_requested = lambda number, parameter, now_s: (
        int(common.MAV_RESULT_DENIED)
        if number == common.MAVLINK_MSG_ID_STORAGE_INFORMATION
        else answers(number, parameter, now_s)
    )
    rig.ready()
    assert rig.request().outcome is CaptureOutcome.TAKEN


# --- start -----------------------------------------------------------------------------------------------------------


def test_a_camera_without_storage_refuses_with_one_line():
    rig = Rig(FIXED, msgspec.structs.replace(EXACT, storage_mb=0.0))
    rig.run(3.0)
    assert (
        rig.statuses[-1].problem == ("camera simulated Sony RX1, 35 mm: it has no storage; insert a card")
        and not rig.captures
    )
    assert rig.request(wait_s=0.0).reason == rig.statuses[-1].problem


def test_a_full_card_refuses():
    rig = Rig(FIXED, msgspec.structs.replace(EXACT, storage_mb=40.0))
    rig.run(3.0)
    assert rig.statuses[-1].problem.endswith("40 MB of its storage are free, less than 50")
    assert rig.statuses[-1].storage_free_mb == 40.0


READY, EMPTY, UNFORMATTED = (
    common.STORAGE_STATUS_READY,
    common.STORAGE_STATUS_EMPTY,
    common.STORAGE_STATUS_UNFORMATTED,
)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first slot first", "second slot first"])
@pytest.mark.parametrize(
    ("slots", "problem", "free_mb"),
    [
        (((READY, 60000.0), (EMPTY, 0.0)), "", 60000.0),
        (((READY, 20.0), (READY, 8000.0)), "", 8000.0),
        (((READY, 20.0), (EMPTY, 0.0)), "20 MB of its storage are free, less than 50", 20.0),
        (((UNFORMATTED, 0.0), (EMPTY, 0.0)), "its storage is not formatted", math.nan),
        (((EMPTY, 0.0), (EMPTY, 0.0)), "it has no storage; insert a card", math.nan),
    ],
)
def test_one_card_that_is_ready_is_enough_for_a_camera_with_two_slots(order, slots, problem, free_mb):
    introduction = Rig(FIXED).ready().node.introduction
    introduction.put_heartbeat(1, 20.0)  # after a silence: it introduces itself again
    for number in (common.MAVLINK_MSG_ID_CAMERA_INFORMATION, *order):
        if number in order:
            status, free = slots[number]
            total = 64000.0 if free else 0.0
            introduction.put(
                common.MAVLink_storage_information_message(0, number + 1, 2, status, total, total - free, free, 0, 0),
                20.0,
            )
        else:
            introduction.put(common.MAVLink_camera_information_message(0, [65] * 32, [66] * 32, *[0] * 9, b""), 20.0)
    assert introduction.problem(20.0).endswith(problem) and bool(introduction.problem(20.0)) is bool(problem)
    assert introduction.storage_free_mb == pytest.approx(free_mb, nan_ok=True)


def test_a_silent_camera_refuses_and_comes_back():
    rig = Rig(FIXED).ready()
    rig.payload.faults.silent = True
    rig.run(5.0)
    assert not rig.statuses[-1].connected and rig.statuses[-1].problem.endswith("no heartbeat")
    assert rig.request(wait_s=0.0).outcome is CaptureOutcome.REFUSED
    rig.payload.faults.silent = False
    rig.run(3.0)
    assert rig.request(id=2).outcome is CaptureOutcome.TAKEN


def test_a_camera_that_knows_only_the_older_commands_introduces_itself():
    rig = Rig(FIXED)
    new = common.MAV_CMD_REQUEST_MESSAGE

    def older(message: CameraTx) -> list[CameraTx]:
        """The simulated camera knows the newer command: older ones are translated for it, newer ones refused."""
        command = command_of(message)
        numbers = {521: 259, 525: 261, 527: 262}
        if command == new:
            ack = common.MAVLink_command_ack_message(new, common.MAV_RESULT_UNSUPPORTED)
            payload = bytes(ack.pack(common.MAVLink(None))[10:-2])
            answer = CameraRx(stamp_s=rig.now_s, system=1, component=100, number=77, payload=payload)
            rig._take(rig.node.handle(answer, rig.now_s))
            return []
        if command not in numbers:
            return [message]
        translated = common.MAVLink_command_long_message(1, 100, new, 0, numbers[command], 0, 0, 0, 0, 0, 0)
        return [CameraTx(stamp_s=rig.now_s, number=76, payload=bytes(translated.pack(common.MAVLink(None))[10:-2]))]

    rig.change_tx = older
    rig.ready()
    assert rig.node.introduction.model == "simulated Sony RX1, 35 mm"


def test_a_camera_file_without_control_is_refused():
    with pytest.raises(ConfigError, match="control: missing table"):
        PayloadNode(msgspec.structs.replace(CAMERA, control=None), VEHICLE)


@pytest.mark.parametrize("payload", [b"", b"\xff" * 255, bytes(255)], ids=["empty", "ones", "zeros"])
@pytest.mark.parametrize("number", [0, 77, 111, 112, 259, 261, 262, 263, 281, 285, 12345])
def test_broken_messages_change_nothing(number, payload):
    rig = Rig().ready()
    for component in (1, 100, 154):
        message = CameraRx(stamp_s=rig.now_s, system=1, component=component, number=number, payload=payload)
        rig._take(rig.node.handle(message, rig.now_s))
    rig.run(7.0)
    assert rig.counts.get("taken", 0) == 0


def test_px4_triggers_the_camera():
    """PX4 acknowledges the command and reports the trigger in its own time."""
    camera = with_control(FIXED, trigger="px4", component_id=None)
    rig = Rig(camera)
    rig.timesync_offset_s = -12.0
    triggers = []

    def px4(message: CameraTx) -> list[CameraTx]:
        if command_of(message) != common.MAV_CMD_DO_DIGICAM_CONTROL:
            return []
        triggers.append(rig.now_s)
        boot_us = round((rig.now_s + 12.0) * 1e6)
        for answer in (
            common.MAVLink_command_ack_message(common.MAV_CMD_DO_DIGICAM_CONTROL, 0),
            common.MAVLink_camera_trigger_message(boot_us, len(triggers)),
        ):
            payload = bytes(answer.pack(common.MAVLink(None))[10:-2])
            rig.node.handle(
                CameraRx(stamp_s=rig.now_s, system=1, component=1, number=answer.id, payload=payload), rig.now_s
            )
        return []

    rig.change_tx = px4
    rig.run(1.0)
    capture = rig.request()
    assert capture.outcome is CaptureOutcome.TAKEN and capture.clock is ExposureClock.SYNCHRONISED
    assert capture.stamp_s == pytest.approx(triggers[0] + CAMERA.control.shutter_delay_s, abs=1e-5)
    assert capture.image_index == 1


def test_sixty_photographs_one_refused_one_late_are_each_accounted_for():
    config = PayloadConfig(latency_std_s=0.03)
    rig = Rig(FIXED, config).ready()
    faults = rig.payload.faults
    for id in range(1, 61):  # 200 in test_payload_mavsdk.py
        faults.refuses, faults.late_s = id == 20, 3.2 if id == 40 else 0.0
        rig.request(id)
    rig.run(5.0)
    assert rig.counts == {"requested": 60, "taken": 59, "refused": 1, "late": 1}
    assert sorted(c.image_index for c in rig.captures if c.outcome is CaptureOutcome.TAKEN) == list(range(59))
    truths = {truth.image_index: truth for truth in rig.truths}
    for capture in rig.captures:
        if capture.outcome is CaptureOutcome.TAKEN:
            assert capture.stamp_s == pytest.approx(truths[capture.image_index].stamp_s, abs=0.01)
