"""Setpoints: exact bytes, once, in time, and none while the controller is silent."""

import math
import struct

import pytest
from pymavlink.dialects.v20 import common

from companion.core.enums import ControlSource, FcuMode
from companion.core.frames import rpy_from_quat
from companion.core.messages import LinkTx, SentSetpoint, Setpoint

DEG = math.pi / 180
OFFBOARD = 6 << 16
POSITION = 3 << 16


def setpoint(now_s, **changes):
    values = dict(
        stamp_s=now_s, expires_s=now_s + 0.1, roll_rad=0.0, pitch_rad=0.0, yaw_rad=0.0, yaw_rate_rad_s=0.0,
        thrust=0.35, source=ControlSource.NMPC,
    )  # fmt: skip
    return Setpoint(**{**values, **changes})


def decoded(data):
    """Fields of a SET_ATTITUDE_TARGET frame by the layout in common.xml, with nothing but struct."""
    payload = data[10:-2].ljust(39, b"\0")
    boot_ms, *rest = struct.unpack("<I4f3ffBBB", payload)
    q, rates, thrust, (system, component, mask) = rest[:4], rest[4:7], rest[7], rest[8:]
    return dict(boot_ms=boot_ms, q=q, rates=rates, thrust=thrust, system=system, component=component, mask=mask)


def test_the_bytes_have_the_setpoint_in_px4s_frames(flying):
    now_s = flying.now_s
    s = setpoint(now_s, roll_rad=5 * DEG, pitch_rad=10 * DEG, yaw_rad=30 * DEG, yaw_rate_rad_s=0.2, thrust=0.4)
    tx, sent = flying.publish(s)
    assert tx.data[0] == 0xFD and tx.data[7:10] == bytes((82, 0, 0)) and tx.data[5:7] == bytes((1, 191))
    m = decoded(tx.data)
    assert rpy_from_quat(m["q"]) == pytest.approx((5 * DEG, -10 * DEG, 60 * DEG), abs=1e-6)
    assert m["rates"] == pytest.approx([0.0, 0.0, -0.2])
    assert m["thrust"] == pytest.approx(0.4)
    assert (m["system"], m["component"], m["mask"]) == (1, 1, 0b00000011)
    assert sent == SentSetpoint(
        stamp_s=now_s, roll_rad=5 * DEG, pitch_rad=10 * DEG, yaw_rad=30 * DEG, yaw_rate_rad_s=0.2, thrust=0.4
    )


def test_pymavlink_reads_the_same(flying):
    flying.publish(setpoint(flying.now_s, pitch_rad=10 * DEG, yaw_rad=90 * DEG))
    (m,) = flying.sent("SET_ATTITUDE_TARGET")
    assert rpy_from_quat(m.q) == pytest.approx((0.0, -10 * DEG, 0.0), abs=1e-6)
    assert m.type_mask & common.ATTITUDE_TARGET_TYPEMASK_ATTITUDE_IGNORE == 0
    assert m.type_mask & common.ATTITUDE_TARGET_TYPEMASK_THROTTLE_IGNORE == 0


def test_nothing_is_sent_again_when_the_controller_falls_silent(flying):
    for _ in range(25):
        flying.publish(setpoint(flying.now_s))
        flying.run(0.02)
    assert len(flying.sent("SET_ATTITUDE_TARGET")) == 25
    flying.run(5.0)
    assert len(flying.sent("SET_ATTITUDE_TARGET")) == 25


def stream(flying, duration_s):
    """Number of setpoints that left, of those delivered 50 times a second."""
    before = len(flying.sent("SET_ATTITUDE_TARGET"))
    for _ in range(round(duration_s / 0.02)):
        flying.publish(setpoint(flying.now_s))
        flying.run(0.02)
    return len(flying.sent("SET_ATTITUDE_TARGET")) - before


def test_a_stream_with_a_long_pause_in_offboard_is_refused_until_it_ends(flying):
    """PX4 leaves offboard after 0.5 s; a returning stream would put it back into offboard without a request."""
    flying.armed, flying.custom_mode = True, OFFBOARD
    flying.run(2.0)
    assert stream(flying, 1.0) == 50
    flying.run(0.3)
    assert stream(flying, 1.0) == 50, "PX4 has not left yet: the stream was never lost"
    flying.run(0.45)
    assert stream(flying, 3.0) == 0
    assert flying.node.counters["setpoints_interrupted"] == 150
    flying.run(1.9)
    assert stream(flying, 1.0) == 0, "a second pause is no request"
    flying.run(2.1)
    assert stream(flying, 1.0) == 50, "another stream"


def test_a_pause_in_which_setpoints_arrived_too_late_is_one(flying):
    """A controller that was stopped: its last setpoint arrives late and expired, 0.39 s before it continues."""
    flying.armed, flying.custom_mode = True, OFFBOARD
    flying.run(2.0)
    stream(flying, 1.0)
    flying.run(0.13)
    flying.publish(setpoint(flying.now_s - 0.13))
    assert flying.node.counters["setpoints_expired"] == 1
    flying.run(0.39)
    assert stream(flying, 1.0) == 0


def test_a_stream_that_returns_after_px4_has_reported_its_failsafe_is_refused(flying):
    """PX4 has left offboard in the pause and said so before the controller continues."""
    flying.armed, flying.custom_mode = True, OFFBOARD
    flying.run(2.0)
    stream(flying, 1.0)
    flying.run(0.5)
    flying.custom_mode = POSITION
    flying.deliver(flying.heartbeat())
    assert flying.node.status.mode == FcuMode.POSCTL
    assert stream(flying, 3.0) == 0
    flying.run(2.1)
    assert stream(flying, 1.0) == 50, "another stream"


def test_after_a_takeover_in_a_running_stream_a_pilot_may_hand_over_again_soon(flying):
    flying.armed, flying.custom_mode = True, OFFBOARD
    flying.run(2.0)
    stream(flying, 1.0)
    flying.custom_mode = POSITION
    assert stream(flying, 2.0) < 60, "until the report comes"
    flying.run(1.2)
    assert stream(flying, 1.0) == 50


@pytest.mark.parametrize("armed, mode, pause_s", [(False, OFFBOARD, 0.6), (True, 3 << 16, 0.6), (True, OFFBOARD, 2.1)])
def test_a_stream_that_px4_did_not_follow_or_a_new_stream_may_begin(flying, armed, mode, pause_s):
    flying.armed, flying.custom_mode = armed, mode
    flying.run(2.0)
    stream(flying, 1.0)
    flying.run(pause_s)
    assert stream(flying, 1.0) == 50


@pytest.mark.parametrize("late_s", [0.0, 0.001, 0.2])
def test_an_expired_setpoint_never_leaves(flying, late_s):
    s = setpoint(flying.now_s - 0.05, expires_s=flying.now_s - late_s)
    assert not [m for m in flying.publish(s) if type(m) in (LinkTx, SentSetpoint)]
    assert flying.sent("SET_ATTITUDE_TARGET") == []
    assert flying.node.counters["setpoints_expired"] == 1


def test_a_setpoint_older_than_the_table_allows_never_leaves_whatever_its_expiry(flying):
    flying.publish(setpoint(flying.now_s - 0.15, expires_s=flying.now_s + 10))
    assert flying.sent("SET_ATTITUDE_TARGET") == []


def test_setpoints_leave_in_the_order_of_their_stamps(flying):
    flying.publish(setpoint(flying.now_s, thrust=0.5))
    flying.publish(setpoint(flying.now_s - 0.02, thrust=0.1))
    flying.publish(setpoint(flying.now_s, thrust=0.2))
    assert [m.thrust for m in flying.sent("SET_ATTITUDE_TARGET")] == [0.5]
    assert flying.node.counters["setpoints_out_of_order"] == 2


def test_a_setpoint_without_a_time_is_counted_and_dropped(flying):
    flying.publish(setpoint(math.nan))
    assert flying.sent("SET_ATTITUDE_TARGET") == []
    assert flying.node.errors == 1 and flying.node.last_error == "setpoint has no time"


@pytest.mark.parametrize(
    "bad",
    [dict(roll_rad=math.nan), dict(pitch_rad=math.inf), dict(yaw_rad=-math.inf), dict(thrust=math.nan),
     dict(thrust=1.01), dict(thrust=-0.01), dict(roll_rad=1.1), dict(pitch_rad=-1.1), dict(yaw_rate_rad_s=4.0),
     dict(valid=False), dict(expires_s=math.nan), dict(stamp_s=1e9, expires_s=1e9 + 1)],
)  # fmt: skip
def test_a_corrupt_setpoint_is_counted_reported_and_dropped(flying, bad):
    out = flying.publish(setpoint(flying.now_s, **bad))
    assert flying.sent("SET_ATTITUDE_TARGET") == []
    assert flying.node.counters["setpoints_invalid"] == 1
    assert [m.text for m in out if hasattr(m, "text")][0].startswith("setpoint not sent")
    flying.publish(setpoint(flying.now_s))
    assert len(flying.sent("SET_ATTITUDE_TARGET")) == 1  # and does not block the next good one


def test_a_hundred_bad_setpoints_are_one_text(flying):
    out = [m for _ in range(100) for m in flying.publish(setpoint(flying.now_s, thrust=2.0))]
    assert len(out) == 1


def test_setpoints_stream_without_a_connection_and_are_marked_invalid(peer):
    *_, sent = peer.publish(setpoint(peer.now_s))
    assert len(peer.sent("SET_ATTITUDE_TARGET")) == 1
    assert sent.valid is False


def test_no_thrust_goes_to_an_autopilot_that_is_not_px4(peer):
    peer.autopilot = common.MAV_AUTOPILOT_ARDUPILOTMEGA
    peer.run(1.0)
    peer.publish(setpoint(peer.now_s))
    assert peer.sent("SET_ATTITUDE_TARGET") == []
