"""What PX4 was asked for, beside the mode that flies: CURRENT_MODE."""

from companion.core.enums import FcuMode
from companion.fcu.link.decoded import CurrentMode
from companion.fcu.status import INTENDED_AGE_S, VehicleStatus
from sitl.autopilot.modes import custom_mode


def put(status, mode, intended, now_s):
    status.put_current_mode(CurrentMode(custom_mode(mode), custom_mode(intended), 0), now_s)
    return status.message(now_s, connected=True)


def test_a_failsafe_changes_the_mode_and_not_what_was_asked_for():
    status = VehicleStatus()
    before = put(status, FcuMode.OFFBOARD, FcuMode.OFFBOARD, 1.0)
    after = put(status, FcuMode.POSCTL, FcuMode.OFFBOARD, 1.1)
    assert (after.mode, after.intended_mode) == (FcuMode.POSCTL, FcuMode.OFFBOARD)
    assert after.intended_changes == before.intended_changes


def test_every_choice_is_counted_also_between_two_status_messages():
    status = VehicleStatus()
    before = put(status, FcuMode.OFFBOARD, FcuMode.OFFBOARD, 1.0)
    put(status, FcuMode.POSCTL, FcuMode.POSCTL, 1.02)
    after = put(status, FcuMode.OFFBOARD, FcuMode.OFFBOARD, 1.04)
    assert after.intended_mode == before.intended_mode and after.intended_changes == before.intended_changes + 2


def test_an_old_report_is_none_and_an_unknown_mode_is_one():
    status = VehicleStatus()
    assert status.message(0.0, connected=True).intended_mode is None
    put(status, FcuMode.OFFBOARD, FcuMode.OFFBOARD, 1.0)
    assert status.message(1.0 + INTENDED_AGE_S + 0.01, connected=True).intended_mode is None
    status.put_current_mode(CurrentMode(custom_mode(FcuMode.OFFBOARD), 250 << 16, 0), 2.0)
    assert status.message(2.0, connected=True).intended_mode == FcuMode.UNKNOWN
