"""In the air: take-off, offboard entry and loss, land, RC."""

import math

import numpy as np
import pytest
from conformance_flight import ARM, LAND, SET_MODE

from companion.core.enums import FcuMode

ALTCTL, POSCTL, LOITER, RTL, LAND_MODE, OFFBOARD, STABILIZED = (2, 0), (3, 0), (4, 3), (4, 5), (4, 6), (6, 0), (7, 0)


def rc(flight, **changes) -> None:
    """Move sticks (roll, pitch, throttle, yaw) the mode switch (mode) or the kill switch (kill) of the RC."""
    channels = list(flight.autopilot.rc_neutral_us)
    for i, name in enumerate(("roll", "pitch", "throttle", "yaw")):
        channels[i] = changes.get(name, channels[i])
    if "mode" in changes:
        channels[flight.autopilot.rc_mode_channel - 1] = flight.autopilot.rc_mode_positions_us[changes["mode"]]
    if "kill" in changes:
        channels[6] = changes["kill"]
    flight.autopilot.set_rc(channels)


def test_takes_off_to_the_requested_height_and_holds(begin):
    flight = begin()
    ground = flight.plant.p_W[2]
    started_s = flight.now_s
    flight.take_off(5.0)
    took_s = flight.now_s - started_s
    print("took", took_s, "height", flight.plant.p_W[2] - ground, "hover", flight.hover_thrust)
    assert flight.plant.p_W[2] - ground == pytest.approx(5.0, abs=1.2)  # by a GNSS altitude that drifts
    assert 4.0 < took_s < 15.0
    assert 0.28 < flight.hover_thrust < 0.35  # 0.344 at 15.2 V; the battery is full
    states = [m.landed_state for _, m in flight.received["EXTENDED_SYS_STATE"]]
    assert states[0] == 1 and states[-1] == 2  # on the ground, in the air


def test_offboard_needs_a_stream(flying):
    results = flying.command(SET_MODE, 1, 6, 0)
    flying.run(0.5)
    print(results, flying.mode)
    assert results == [0, 1] and flying.mode == LOITER


def test_one_fresh_setpoint_is_enough_for_offboard(flying):
    flying.autopilot.receive(flying.hover(), flying.now_s)
    flying.run(0.02)
    results = flying.command(SET_MODE, 1, 6, 0)
    assert results == [0, 0], (results, flying.texts())


def test_offboard_is_entered_with_a_stream(flying):
    flying.stream = flying.hover
    flying.run(1.2)
    assert flying.command(SET_MODE, 1, 6, 0) == [0, 0]
    assert flying.mode == OFFBOARD
    flying.run(5.0)
    assert flying.mode == OFFBOARD and abs(flying.plant.p_W[2] - flying.hold_height_m) < 0.3


@pytest.mark.parametrize("timeout_s", [0.5, 1.0])
def test_offboard_loss_falls_back_to_position_mode_with_rc(begin, timeout_s):
    flight = begin(COM_OF_LOSS_T=timeout_s)
    flight.take_off()
    flight.enter_offboard()
    flight.run(1.0)
    flight.stream = None
    took_s = flight.until_mode(POSCTL, 5.0)
    print("took", took_s)
    assert timeout_s - 0.1 < took_s < timeout_s + 0.7
    before = flight.plant.p_W.copy()
    flight.run(4.0)
    assert flight.armed and abs(flight.plant.p_W[2] - before[2]) < 1.0


def test_offboard_loss_without_rc_returns(begin):
    flight = begin(COM_RCL_EXCEPT=4)
    flight.take_off()
    flight.enter_offboard()
    flight.autopilot.set_rc(None)
    flight.run(2.0)
    assert flight.mode == OFFBOARD  # excepted from the loss of RC
    flight.stream = None
    took_s = flight.until_mode(RTL, 12.0)
    print("took", took_s)


def test_a_stream_that_comes_back_is_offboard_again(begin):
    """PX4's failsafe ends with its cause: after a gap a companion must not stream again by itself."""
    flight = begin()
    flight.take_off()
    flight.enter_offboard()
    flight.stream = None
    flight.until_mode(POSCTL, 5.0)
    flight.stream = flight.hover
    flight.until_mode(OFFBOARD, 3.0)


def test_a_stream_that_comes_back_after_the_pilot_s_switch_has_no_effect(begin):
    flight = begin()
    flight.take_off()
    flight.enter_offboard()
    flight.stream = None
    flight.until_mode(POSCTL, 5.0)
    rc(flight, mode=FcuMode.ALTCTL)
    flight.until_mode(ALTCTL, 2.0)
    flight.stream = flight.hover
    flight.run(3.0)
    assert flight.mode == ALTCTL


def test_rc_loss_in_offboard_is_a_failsafe(begin):
    flight = begin()
    flight.take_off()
    flight.enter_offboard()
    flight.autopilot.set_rc(None)
    took_s = flight.until_mode(RTL, 12.0)
    print("took", took_s)
    assert took_s < 8.0


def test_the_mode_switch_takes_over(begin):
    flight = begin()
    flight.take_off()
    flight.enter_offboard()
    for name, mode in (
        (FcuMode.ALTCTL, ALTCTL),
        (FcuMode.AUTO_LOITER, LOITER),
        (FcuMode.STABILIZED, STABILIZED),
        (FcuMode.POSCTL, POSCTL),
    ):
        rc(flight, mode=name)
        assert flight.until_mode(mode, 1.5) < 1.0, name
    flight.run(2.0)
    assert flight.mode == POSCTL and flight.armed


@pytest.mark.parametrize("override, mode", [(1, OFFBOARD), (3, POSCTL)])
def test_sticks_take_over_from_offboard_only_when_allowed(begin, override, mode):
    flight = begin(COM_RC_OVERRIDE=override)
    flight.take_off()
    flight.enter_offboard()
    rc(flight, pitch=1900)
    flight.run(1.0)
    rc(flight)
    assert flight.mode == mode


def test_position_mode_follows_the_sticks(begin):
    flight = begin()
    flight.take_off()
    flight.command(SET_MODE, 1, 3, 0)
    flight.until_mode(POSCTL, 1.0)
    yaw = flight.rpy[2]
    before = flight.plant.p_W.copy()
    rc(flight, pitch=1750)
    flight.run(3.0)
    rc(flight)
    flight.run(3.0)
    moved = flight.plant.p_W - before
    forward = moved[0] * math.cos(yaw) + moved[1] * math.sin(yaw)
    print("forward", forward, "speed", flight.plant.v_W)
    assert 4.0 < forward < 30.0
    assert abs(moved[2]) < 1.0


def test_lands_and_disarms(flying):
    assert flying.command(LAND, 0, 0, 0, math.nan, math.nan, math.nan, math.nan) == [0]
    assert flying.mode == LAND_MODE
    started_s = flying.now_s
    assert flying.run(30.0, lambda: not flying.last("HEARTBEAT").base_mode & 128), flying.texts()
    print("landed after", flying.now_s - started_s)
    assert flying.plant.p_W[2] < 0.3
    assert flying.last("EXTENDED_SYS_STATE").landed_state == 1
    assert flying.now_s - started_s < 25.0


def test_disarm_is_refused_in_the_air_and_forced_is_not(flying):
    assert flying.command(ARM, 0, 0) == [1]
    assert flying.armed
    assert flying.command(ARM, 0, 21196) == [0]
    assert not flying.armed


def test_the_kill_switch_stops_the_motors(flying):
    rc(flying, kill=2000)
    flying.run(0.8)
    assert flying.motor_commands[-1].max() == 0.0


def fly_out(flight, quantity, outside) -> float:
    """Stream setpoints that leave PX4's fence; the quantity when PX4 has left offboard."""
    flight.run(20.0, lambda: outside() and flight.mode != OFFBOARD)
    reached = quantity()
    print(f"left offboard at {reached:.1f} m: {flight.texts()[-2:]}")
    return reached


def test_the_fence_ends_offboard_with_hold_and_only_the_mode_switch_ends_that(begin):
    """The companion streams on: PX4's own fence acts without it."""
    flight = begin(GF_ACTION=2, GF_MAX_HOR_DIST=12.0, COM_RC_OVERRIDE=3)
    flight.take_off()
    flight.enter_offboard()
    flight.stream = lambda t: flight.hover(pitch=0.12)
    home_W = flight.plant.p_W.copy()
    away = lambda: float(np.linalg.norm((flight.plant.p_W - home_W)[:2]))  # noqa: E731
    reached_m = fly_out(flight, away, lambda: away() > 8.0)
    assert flight.mode == LOITER and 8.0 < reached_m < 16.0  # GNSS is wrong by up to two metres
    assert "Geofence: exceeding maximum distance to Home" in flight.texts()
    flight.run(5.0)
    print("came to", away())
    assert flight.mode == LOITER and away() < 22.0 and np.linalg.norm(flight.plant.v_W) < 1.0
    rc(flight, pitch=1900)
    flight.run(1.0)
    rc(flight)
    assert flight.mode == LOITER
    rc(flight, mode=FcuMode.ALTCTL)
    flight.until_mode(ALTCTL, 2.0)


def test_the_fence_in_height_ends_offboard_with_a_landing(begin):
    flight = begin(GF_ACTION=5, GF_MAX_VER_DIST=8.0)
    flight.take_off()
    flight.enter_offboard()
    flight.stream = lambda t: flight.attitude_target(thrust=flight.hover_thrust * 1.1)
    height = lambda: float(flight.plant.p_W[2])  # noqa: E731
    reached_m = fly_out(flight, height, lambda: height() > 6.0)
    assert 6.0 < reached_m < 11.0
    assert "Geofence: exceeding maximum altitude above Home" in flight.texts()
    flight.until_mode(LAND_MODE, 8.0)  # PX4 holds for COM_FAIL_ACT_T before
    flight.run(4.0)
    assert flight.plant.v_W[2] < -0.3


def test_inside_the_fence_that_preflight_sets_nothing_acts(begin):
    """Five metres beyond a mission of 10 m and 7 m: GNSS that is wrong by its usual metres does not reach it."""
    flight = begin(GF_ACTION=2, GF_MAX_HOR_DIST=15.0, GF_MAX_VER_DIST=12.0)
    flight.take_off(6.0)
    flight.enter_offboard()
    flight.stream = lambda t: flight.hover(pitch=0.05)
    flight.run(20.0, lambda: np.linalg.norm(flight.plant.p_W[:2]) > 9.0)
    assert flight.mode == OFFBOARD and not any("Geofence" in text for text in flight.texts())
