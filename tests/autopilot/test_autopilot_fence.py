"""PX4's own fence and its power checks in the PX4 emulator, by the sources of PX4 1.17."""

import pytest
from pymavlink.dialects.v20 import common

from companion.core.enums import FcuMode

POSCTL, ALTCTL, LOITER, RTL, LAND = (3, 0), (2, 0), (4, 3), (4, 5), (4, 6)
UP, FORWARD = 2, 1  # channels, from 0


def stick(flight, channel=None, mode=None) -> None:
    """Move one stick, or the mode switch."""
    channels = list(flight.autopilot.rc_neutral_us)
    if channel is not None:
        channels[channel] = 1900
    if mode is not None:
        channels[flight.autopilot.rc_mode_channel - 1] = flight.autopilot.rc_mode_positions_us[mode]
    flight.autopilot.set_rc(channels)


def leave(flight, channel, action, until_s=10.0, **limits) -> None:
    """Fly out of the fence in position mode and release the stick."""
    for name, value in (limits | {"GF_ACTION": action, "COM_FAIL_ACT_T": 0.0}).items():
        flight.set_parameter(name, value)
    assert flight.set_mode(3) == 0
    stick(flight, channel)
    flight.run(until_s, lambda: flight.autopilot.commander.inputs.fence)
    stick(flight)
    flight.run(0.5)


@pytest.mark.parametrize(("action", "mode"), [(0, POSCTL), (1, POSCTL), (2, LOITER), (3, RTL), (5, LAND)])
def test_too_high_is_followed_by_the_action_and_reported(flying, action, mode):
    leave(flying, UP, action, until_s=4.0, GF_MAX_VER_DIST=6.0)
    assert flying.plant.p_W[2] > 5.5
    assert flying.mode == mode
    reported = "Geofence: exceeding maximum altitude above Home" in flying.texts()
    assert reported == (action != 0)


def test_too_far_holds_and_only_the_mode_switch_ends_it(flying):
    leave(flying, FORWARD, 2, GF_MAX_HOR_DIST=10.0)
    assert flying.mode == LOITER
    assert "Geofence: exceeding maximum distance to Home" in flying.texts()
    stick(flying, FORWARD)
    flying.run(1.0)
    assert flying.mode == LOITER
    stick(flying, mode=FcuMode.ALTCTL)
    flying.run(0.3)
    assert flying.mode == ALTCTL


def test_by_default_there_is_no_fence(flying):
    leave(flying, UP, 2, until_s=3.0)
    assert flying.mode == POSCTL


def test_arming_is_refused_outside_the_fence(grounded):
    home = grounded.autopilot.stack.home.p_W
    grounded.autopilot.stack.set_home((home[0] + 30.0, home[1], home[2]))
    grounded.set_parameter("GF_MAX_HOR_DIST", 20.0)
    grounded.run(0.5)
    assert grounded.command(common.MAV_CMD_COMPONENT_ARM_DISARM, 1, 0) == 1
    grounded.set_parameter("GF_ACTION", 0)
    grounded.run(0.5)
    assert grounded.command(common.MAV_CMD_COMPONENT_ARM_DISARM, 1, 0) == 0


def test_with_the_power_checks_off_an_empty_battery_has_no_effect(flying):
    flying.set_parameter("COM_LOW_BAT_ACT", 2)
    flying.set_parameter("CBRK_SUPPLY_CHK", 894281)
    flying.battery_remaining = 0.02
    flying.run(7.0)
    assert flying.mode == LOITER and flying.fresh_heartbeat().system_status == 4
    flying.set_parameter("CBRK_SUPPLY_CHK", 0)
    flying.run(7.0)
    assert flying.mode == LAND
