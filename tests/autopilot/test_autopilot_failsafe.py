"""Failsafes of the PX4 emulator, as PX4 1.17 has them: loss of offboard, RC, battery and GNSS."""

import math

import pytest
from pymavlink.dialects.v20 import common

from companion.core.enums import FcuMode
from sitl.autopilot.modes import CommanderMode

LOITER, LAND, RTL = (4, 3), (4, 6), (4, 5)
POSCTL, ALTCTL, OFFBOARD = (3, 0), (2, 0), (6, 0)


def enter_offboard(flight):
    flight.stream = flight.hover_bytes
    flight.run(1.2)
    assert flight.set_mode(6) == 0
    flight.run(0.5)
    assert flight.mode == OFFBOARD


def test_offboard_loss_falls_back_to_position_mode_after_a_second(flying):
    enter_offboard(flying)
    flying.stream, lost_s = None, flying.now_s
    assert flying.run(3.0, lambda: flying.autopilot.mode != FcuMode.OFFBOARD)
    assert abs(flying.now_s - lost_s - 1.0) <= 0.1  # COM_OF_LOSS_T
    assert flying.mode == POSCTL
    assert flying.fresh_heartbeat().system_status == 5
    assert "Failsafe activated" in flying.texts()


@pytest.mark.parametrize(("action", "mode"), [(1, ALTCTL), (3, RTL), (4, LAND), (5, LOITER)])
def test_offboard_loss_follows_its_parameter(flying, action, mode):
    flying.set_parameter("COM_OBL_RC_ACT", action)
    enter_offboard(flying)
    flying.stream = None
    flying.run(1.3)
    assert flying.mode == mode


def test_offboard_loss_without_rc_returns(flying):
    flying.set_parameter("COM_RCL_EXCEPT", 4)
    flying.autopilot.set_rc(None)
    enter_offboard(flying)
    flying.stream = None
    flying.run(1.3)
    assert flying.mode == RTL


def test_offboard_comes_back_with_the_stream_unless_the_pilot_chose_a_mode(flying):
    enter_offboard(flying)
    flying.stream = None
    flying.run(1.5)
    assert flying.mode == POSCTL
    flying.stream = flying.hover_bytes
    flying.run(0.5)
    assert flying.mode == OFFBOARD  # PX4 returns to it with the signal: the intended mode is still offboard
    assert flying.set_mode(3) == 0
    flying.run(1.0)
    assert flying.mode == POSCTL


def test_sticks_take_over_from_auto_but_not_from_offboard_by_default(flying):
    sticks = list(flying.autopilot.rc_neutral_us)
    sticks[1] = 1900
    flying.autopilot.set_rc(sticks)
    flying.run(0.3)
    assert flying.mode == POSCTL
    assert "Pilot took over using sticks" in flying.texts()
    flying.autopilot.set_rc(list(flying.autopilot.rc_neutral_us))
    flying.run(3.0)
    enter_offboard(flying)
    flying.autopilot.set_rc(sticks)
    flying.run(0.5)
    assert flying.mode == OFFBOARD


def test_sticks_take_over_from_offboard_with_the_second_bit(flying):
    flying.set_parameter("COM_RC_OVERRIDE", 3)
    enter_offboard(flying)
    sticks = list(flying.autopilot.rc_neutral_us)
    sticks[1] = 1900
    flying.autopilot.set_rc(sticks)
    flying.run(0.3)
    assert flying.mode == POSCTL


def test_mode_switch_takes_over_from_offboard(flying):
    enter_offboard(flying)
    channels = list(flying.autopilot.rc_neutral_us)
    channels[flying.autopilot.rc_mode_channel - 1] = flying.autopilot.rc_mode_positions_us[FcuMode.ALTCTL]
    flying.autopilot.set_rc(channels)
    flying.run(0.1)
    assert flying.mode == ALTCTL
    flying.run(1.0)
    assert flying.mode == ALTCTL  # although the stream continues


def test_rc_loss_holds_and_then_returns(flying):
    flying.autopilot.set_rc(None)
    lost_s = flying.now_s
    assert flying.set_mode(4, 3) == 0
    assert flying.run(2.0, lambda: flying.autopilot.commander.failsafe)
    assert 0.4 <= flying.now_s - lost_s <= 0.7  # COM_RC_LOSS_T
    assert flying.mode == LOITER
    assert flying.run(7.0, lambda: flying.autopilot.mode == FcuMode.AUTO_RTL)
    assert 5.3 <= flying.now_s - lost_s <= 5.8  # and COM_FAIL_ACT_T
    flying.autopilot.set_rc(list(flying.autopilot.rc_neutral_us))
    flying.run(0.5)
    assert flying.mode == RTL  # until the pilot chooses a mode
    assert flying.set_mode(3) == 0
    flying.run(0.1)
    assert flying.mode == POSCTL


def test_rc_loss_can_be_excepted_in_offboard(flying):
    flying.set_parameter("COM_RCL_EXCEPT", 4)
    enter_offboard(flying)
    flying.autopilot.set_rc(None)
    flying.run(3.0)
    assert flying.mode == OFFBOARD


def test_kill_switch_stops_the_motors_at_once(flying):
    channels = list(flying.autopilot.rc_neutral_us)
    channels[6] = 2000
    flying.autopilot.set_rc(channels)
    flying.run(0.03)
    assert max(flying.autopilot.attitude.motors) == 0.0
    assert flying.fresh_heartbeat().system_status == 8


def test_low_battery_warns_and_critical_battery_returns_by_parameter(flying):
    flying.set_parameter("COM_LOW_BAT_ACT", 3)
    flying.battery_remaining = 0.12
    flying.run(1.0)
    assert flying.mode == LOITER
    assert flying.fresh_heartbeat().system_status == 4  # a warning only
    assert flying.command(common.MAV_CMD_REQUEST_MESSAGE, 147) == 0
    assert flying.last("BATTERY_STATUS").charge_state == 2
    flying.battery_remaining = 0.06
    flying.run(0.5)
    assert flying.mode == LOITER and flying.fresh_heartbeat().system_status == 5  # COM_FAIL_ACT_T of Hold first
    flying.run(5.0)
    assert flying.mode == RTL
    flying.battery_remaining = 0.04
    flying.run(0.5)
    assert flying.mode == LAND


def test_low_battery_only_warns_by_default(flying):
    flying.battery_remaining = 0.02
    flying.run(7.0)
    assert flying.mode == LOITER
    flying.command(common.MAV_CMD_REQUEST_MESSAGE, 147)
    assert flying.last("BATTERY_STATUS").charge_state == 4


def test_gnss_loss_in_position_mode_falls_back_to_altitude_after_five_seconds(flying):
    assert flying.set_mode(3) == 0
    flying.sensors.set_fault("gnss_lost", True)
    lost_s = flying.now_s
    flying.run(4.5)
    assert flying.mode == POSCTL  # dead reckoning
    assert flying.run(2.0, lambda: flying.autopilot.mode == FcuMode.ALTCTL)
    assert 4.8 <= flying.now_s - lost_s <= 5.4
    assert flying.set_mode(4, 3) == common.MAV_RESULT_TEMPORARILY_REJECTED
    flying.sensors.set_fault("gnss_lost", None)
    flying.run(5.0)
    assert flying.mode == POSCTL


def test_gnss_loss_in_hold_descends(flying):
    flying.sensors.set_fault("gnss_lost", True)
    assert flying.run(8.0, lambda: flying.autopilot.mode == CommanderMode.DESCEND)
    assert flying.mode == LAND  # PX4 shows DESCEND as land
    assert flying.run(25.0, lambda: flying.autopilot.stack.land_detector.landed)


def test_gnss_jump_is_rejected_and_then_accepted_by_a_reset(flying):
    before = flying.last("LOCAL_POSITION_NED").y
    flying.sensors.set_fault("gnss_jump", (15.0, 0.0, 0.0))
    flying.run(3.0)
    assert abs(flying.last("LOCAL_POSITION_NED").y - before) < 2.0
    flying.run(6.0)
    assert flying.autopilot.stack.observer.resets == 2  # of position and velocity
    assert math.isfinite(flying.last("LOCAL_POSITION_NED").y)
