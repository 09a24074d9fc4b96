"""Flights through MAVLink: arming, take-off, hold, landing, return and offboard."""

import math

import numpy as np
import pytest
from autopilot_flight import QUIET, EmulatorFlight
from pymavlink.dialects.v20 import common

from companion.core.enums import FcuMode
from sitl.autopilot.conversion import geodetic
from sitl.autopilot.guidance import Guidance, TakeoffState
from sitl.autopilot.position import PositionControl, PositionSetpoint

ARM = common.MAV_CMD_COMPONENT_ARM_DISARM
LOITER, LAND, RTL, TAKEOFF = (4, 3), (4, 6), (4, 5), (4, 2)


def test_takes_off_to_the_requested_height_and_holds_it(flying):
    start = len(flying.received["LOCAL_POSITION_NED"])
    home = -flying.autopilot.stack.home.p_W[2]
    assert flying.mode == LOITER
    flying.run(6.0)
    p = np.array([(m.x, m.y, m.z) for _, m in flying.received["LOCAL_POSITION_NED"][start:]])
    assert np.abs(p[:, 2] - (home - 3.0)).max() < 0.5
    assert np.linalg.norm(p[:, :2] - p[0, :2], axis=1).max() < 0.5
    assert abs(flying.plant.p_W[2] - 3.2) < 1.0
    assert flying.last("EXTENDED_SYS_STATE").landed_state == 2
    assert "Takeoff detected" in flying.texts()


def test_lands_and_disarms_by_itself(flying):
    assert flying.command(common.MAV_CMD_NAV_LAND) == 0
    flying.run(1.0)
    assert flying.mode == LAND
    assert flying.last("EXTENDED_SYS_STATE").landed_state == 4
    assert flying.run(20.0, lambda: not flying.autopilot.armed)
    landed = next(t for t, m in flying.received["STATUSTEXT"] if m.text.startswith("Landing detected"))
    disarmed = next(t for t, m in flying.received["STATUSTEXT"] if m.text.startswith("Disarmed by landing"))
    assert 1.9 <= disarmed - landed <= 2.1  # COM_DISARM_LAND
    assert not flying.armed
    assert np.linalg.norm(flying.plant.v_W) < 0.05 and flying.plant.on_ground


def test_returns_home_and_lands(flying):
    o = flying.last("LOCAL_POSITION_NED")
    result = flying.command(
        common.MAV_CMD_DO_REPOSITION, -1, 1, 0, math.nan, *latitude_longitude(flying, north=o.x + 3.0, east=o.y), 63.2
    )
    assert result == 0
    flying.run(6.0)
    assert flying.last("LOCAL_POSITION_NED").x > o.x + 2.0
    assert flying.command(common.MAV_CMD_NAV_RETURN_TO_LAUNCH) == 0
    assert flying.mode == RTL
    assert flying.run(40.0, lambda: not flying.autopilot.armed)
    m = flying.last("LOCAL_POSITION_NED")
    assert math.hypot(m.x - flying.autopilot.stack.home.p_W[1], m.y - flying.autopilot.stack.home.p_W[0]) < 1.0


def latitude_longitude(flight, north, east):
    lat, lon, _ = geodetic((east, north, 0.0))
    return lat, lon


def test_refuses_to_arm_without_position_and_reports_it():
    flight = EmulatorFlight()
    flight.sensors.set_fault("gnss_lost", True)
    flight.run(5.0)
    assert flight.command(ARM, 1, 0) == common.MAV_RESULT_TEMPORARILY_REJECTED
    assert "Arming denied: Resolve system health failures first" in flight.texts()
    assert not flight.armed


def test_forced_arming_from_outside_does_not_skip_the_checks():
    flight = EmulatorFlight()
    flight.run(0.5)
    assert flight.command(ARM, 1, 21196) == common.MAV_RESULT_TEMPORARILY_REJECTED


def test_disarms_in_flight_only_by_force(flying):
    assert flying.command(ARM, 0, 0) == common.MAV_RESULT_TEMPORARILY_REJECTED
    assert flying.armed
    assert flying.command(ARM, 0, 21196) == 0
    assert not flying.armed


def test_disarms_when_no_take_off_follows(grounded):
    assert grounded.command(ARM, 1, 0) == 0
    armed_s = grounded.now_s
    assert grounded.run(13.0, lambda: not grounded.autopilot.armed)
    assert abs(grounded.now_s - armed_s - 11.0) < 0.2  # COM_DISARM_PRFLT + COM_SPOOLUP_TIME
    assert "Disarmed by auto preflight disarming" in grounded.texts()


def test_offboard_is_refused_without_a_stream(flying):
    assert flying.set_mode(6) == common.MAV_RESULT_TEMPORARILY_REJECTED
    flying.autopilot.receive(flying.hover_bytes(), flying.now_s)
    assert flying.set_mode(6) == 0  # PX4 1.17 requires one fresh setpoint only
    assert flying.mode == (6, 0)


@pytest.mark.parametrize("age_s, granted", [(0.9, True), (1.1, False)])
def test_offboard_is_refused_with_an_old_setpoint(flying, age_s, granted):
    flying.autopilot.receive(flying.hover_bytes(), flying.now_s)
    flying.run(age_s)
    assert (flying.set_mode(6) == 0) == granted  # COM_OF_LOSS_T is 1 s


def test_follows_attitude_and_yaw_rate_in_offboard(flying):
    target = {"pitch": 0.0, "rate": None}

    def stream(now_s):
        return flying.attitude_target(
            pitch=target["pitch"],
            thrust=flying.autopilot.stack.position_control.hover,
            yaw=flying.autopilot.stack.yaw,
            yaw_rate=target["rate"],
        )

    flying.stream = stream
    flying.run(1.2)
    assert flying.set_mode(6) == 0
    target["pitch"] = math.radians(8.0)
    flying.run(1.0)
    flying.command(common.MAV_CMD_REQUEST_MESSAGE, 30)
    assert abs(math.degrees(flying.last("ATTITUDE").pitch) + 8.0) < 1.0  # FRD: nose down is negative
    target["pitch"], target["rate"] = 0.0, 0.3
    flying.run(2.0)
    flying.command(common.MAV_CMD_REQUEST_MESSAGE, 30)
    assert abs(flying.last("ATTITUDE").yawspeed + 0.3) < 0.05  # FRD: to the left is negative


def test_follows_body_rates_in_offboard(flying):
    def stream(now_s):
        thrust = flying.autopilot.stack.position_control.hover
        return flying.peer.set_attitude_target_encode(0, 1, 1, 0b10000000, [1, 0, 0, 0], 0, 0, 0.3, thrust).pack(
            flying.peer
        )

    flying.stream = stream
    flying.run(1.2)
    assert flying.set_mode(6) == 0
    flying.run(1.0)
    flying.command(common.MAV_CMD_REQUEST_MESSAGE, 30)
    m = flying.last("ATTITUDE")
    assert abs(m.yawspeed - 0.3) < 0.05 and abs(m.rollspeed) < 0.1


def test_flies_to_a_position_in_offboard(flying):
    o = flying.last("LOCAL_POSITION_NED")
    target = (o.x + 2.0, o.y - 1.0, o.z - 1.0)

    def stream(now_s):
        mask = 0b110111111000 & ~1024
        return flying.peer.set_position_target_local_ned_encode(0, 1, 1, 1, mask, *target, 0, 0, 0, 0, 0, 0, 0, 0).pack(
            flying.peer
        )

    flying.stream = stream
    flying.run(1.2)
    assert flying.set_mode(6) == 0
    flying.run(8.0)
    m = flying.last("LOCAL_POSITION_NED")
    assert math.dist((m.x, m.y, m.z), target) < 0.4


def test_flies_the_heavy_aircraft_too():
    flight = EmulatorFlight("aurelia_x6", stream_rates_hz=QUIET, wind_W=(5.0, 0.0, 0.0))
    flight.take_off(4.0)
    start = flight.last("LOCAL_POSITION_NED")
    flight.run(4.0)
    m = flight.last("LOCAL_POSITION_NED")
    assert math.dist((m.x, m.y, m.z), (start.x, start.y, start.z)) < 0.7


# --- the control of position and the landing, by themselves


def tilt_rad(q):
    return math.acos(1.0 - 2.0 * (q[1] ** 2 + q[2] ** 2))


def test_the_tilt_of_a_sideways_acceleration_does_not_depend_on_the_lift(parameters):
    """MPC_ACC_DECOUPLE: an aircraft whose lift falls to nothing on the ground does not lean more for that."""
    tilts = []
    for climb_m_s in (-0.7, 0.0, 0.3, 0.7):  # estimated, while a sink of 0.7 m/s is wanted
        control = PositionControl(parameters)
        sp = PositionSetpoint(v=(0.0, 0.0, -0.7), a=(1.9, 0.0, 0.0), yaw=0.0)
        q, thrust, _ = control.update(0.008, (0.0, 0.0, 1.0), (0.0, 0.0, climb_m_s), 0.0, sp, math.radians(45))
        assert thrust >= parameters["MPC_THR_MIN"]
        tilts.append(tilt_rad(q))
    assert tilts == pytest.approx([math.atan2(1.9, 9.80665)] * 4, abs=1e-3)


def test_the_tilt_is_limited(parameters):
    sp = PositionSetpoint(a=(30.0, 0.0, 0.0), v=(math.nan, math.nan, 0.0), yaw=0.0)
    q, thrust, _ = PositionControl(parameters).update(0.008, (0, 0, 1), (0.0, 0.0, 0.0), 0.0, sp, math.radians(20))
    assert tilt_rad(q) == pytest.approx(math.radians(20), abs=1e-6) and thrust < parameters["MPC_THR_MAX"]


def test_the_height_of_a_landing_is_followed_and_moves_with_a_reset(parameters):
    """On the ground the path sinks on, and a height that jumps by 5 m is not chased."""
    guidance = Guidance(parameters)
    guidance.takeoff_state = TakeoffState.FLIGHT
    guidance.enter(FcuMode.AUTO_LAND, (0.0, 0.0, 2.0), (0.0, 0.0, 0.0), 0.0)
    setpoints = [guidance.update(0.008, (0.0, 0.0, 2.0), 0.0, (0.0, 0.0, 0.0, 0.0)) for _ in range(500)]
    assert setpoints[-1].v[2] == pytest.approx(-parameters["MPC_LAND_SPEED"], abs=0.01)
    assert setpoints[-1].p[2] < 2.0 - 2.0
    before = setpoints[-1].p[2]
    assert guidance.update(0.008, (0.0, 0.0, 7.0), 0.0, (0.0, 0.0, 0.0, 0.0)).p[2] == pytest.approx(
        before + 5.0, abs=0.02
    )


def test_a_landing_after_another_mode_begins_at_its_own_height(parameters):
    """An automatic mode flew 5 m higher before offboard: that is no reset of the height."""
    guidance = Guidance(parameters)
    guidance.takeoff_state = TakeoffState.FLIGHT
    sticks = (0.0, 0.0, 0.0, 0.0)
    guidance.enter(FcuMode.AUTO_LOITER, (0.0, 0.0, 7.0), (0.0, 0.0, 0.0), 0.0)
    guidance.update(0.008, (0.0, 0.0, 7.0), 0.0, sticks)
    guidance.enter(FcuMode.AUTO_LAND, (0.0, 0.0, 2.0), (0.0, 0.0, 0.0), 0.0)
    assert guidance.update(0.008, (0.0, 0.0, 2.0), 0.0, sticks).p[2] == pytest.approx(2.0, abs=0.02)


def test_position_control_after_attitude_setpoints_finds_the_tilt_against_the_wind_again(flying):
    """PX4 resets its integrals while it follows attitudes."""
    control = flying.autopilot.stack.position_control
    flying.wind_W = (0.0, 5.0, 0.0)
    flying.run(8.0)
    leaning = math.hypot(*control.integral[:2])
    assert leaning > 0.4
    flying.stream = lambda now_s: flying.attitude_target(thrust=control.hover, yaw=flying.autopilot.stack.yaw)
    flying.run(1.2)
    assert flying.set_mode(6) == 0
    flying.run(0.5)
    flying.stream = None
    assert flying.set_mode(*LOITER) == 0
    flying.run(0.1)
    assert math.hypot(*control.integral[:2]) < 0.2 * leaning


def test_the_tilt_against_the_wind_is_kept_between_modes_with_position_control_and_forgotten_with_height_alone(flying):
    control = flying.autopilot.stack.position_control
    flying.wind_W = (0.0, 5.0, 0.0)
    flying.run(8.0)
    leaning = math.hypot(*control.integral[:2])
    assert flying.set_mode(3) == 0  # Position
    flying.run(0.1)
    assert math.hypot(*control.integral[:2]) > 0.9 * leaning
    assert flying.set_mode(2) == 0  # Altitude
    flying.run(0.1)
    assert math.hypot(*control.integral[:2]) == 0.0


def test_a_hover_thrust_that_is_set_before_the_flight_is_used(grounded):
    grounded.set_parameter("MPC_THR_HOVER", 0.4)
    grounded.run(0.2)
    assert grounded.autopilot.stack.position_control.hover == pytest.approx(0.4)


def test_a_hand_over_from_offboard_begins_where_the_aircraft_is(flying):
    """The setpoints of the mode before offboard are 1.5 m away: not followed again."""
    stack = flying.autopilot.stack
    stack.guidance.axes[2].p += 1.5
    stack.guidance.axes[0].p -= 1.5
    flying.stream = lambda now_s: flying.attitude_target(thrust=stack.position_control.hover, yaw=stack.yaw)
    flying.run(1.2)
    assert flying.set_mode(6) == 0
    flying.run(0.3)
    flying.stream = None
    here = list(stack.observer.p)
    assert flying.set_mode(*LOITER) == 0
    flying.run(0.05)
    assert math.dist(stack.position_sp.p, here) < 0.3


@pytest.mark.parametrize("step_m", [2.0, -2.0])
def test_a_reset_of_the_height_is_no_climb_rate(flying, step_m):
    stack, down = flying.autopilot.stack, PositionSetpoint(v=(math.nan, math.nan, -0.7))
    stack.observer._position_fused_s = stack.now_s - 100.0
    before = stack.observer.p[2]
    stack.observer._reset_position(stack.now_s, [0.0, 0.0, step_m])
    assert stack.observer.p[2] == pytest.approx(before + step_m)
    for _ in range(5):
        flying.run(0.02)
        assert abs(stack._climb_rate(down) - stack.observer.v[2]) < 0.6  # 8 m/s with the step in it


def test_a_second_flight_takes_off_to_its_own_height(grounded):
    guidance = grounded.autopilot.stack.guidance
    guidance.takeoff_height = 3.0
    grounded.take_off()
    grounded.autopilot.commander.disarm(grounded.now_s, "test", force=True)
    grounded.run(0.1)
    assert grounded.autopilot.stack._guided_mode is None
