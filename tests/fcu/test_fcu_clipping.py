"""VIBRATION: how many samples of the accelerometers are at the end of their range."""

import math

import pytest
from pymavlink.dialects.v20 import common

from companion.core.messages import FcuStatus
from companion.fcu.status import CLIPS_AGE_S

VIBRATION = common.MAVLINK_MSG_ID_VIBRATION


def counts(*clipped):
    return lambda boot_ms: common.MAVLink_vibration_message(boot_ms * 1000, 0.0, 0.0, 0.0, *clipped)


def rising(hz, start=0, accelerometer=0):
    def message(boot_ms):
        clipped = [0, 0, 0]
        clipped[accelerometer] = start + int(hz * boot_ms / 1000)
        return counts(*clipped)(boot_ms)

    return message


def clipping_hz(peer):
    return [m for _, m in peer.out if type(m) is FcuStatus][-1].clipping_hz


def test_counts_are_requested_and_become_a_rate(flying):
    assert math.isnan(clipping_hz(flying))
    requested = {int(m.param1): m.param2 for _, m in flying.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL)}
    assert requested[VIBRATION] == 500_000
    flying.content[VIBRATION] = counts(7000, 0, 20)  # since the start, long ago
    flying.run(2.5)
    assert clipping_hz(flying) == 0.0
    flying.content[VIBRATION] = rising(400.0, 7000, accelerometer=1)
    flying.run(2.0)
    assert clipping_hz(flying) == pytest.approx(400.0, rel=0.1)


def test_a_restart_and_a_single_wrong_count_are_no_lasting_rate(flying):
    flying.content[VIBRATION] = counts(0, 0, 0)
    flying.run(2.0)
    flying.deliver(counts(2**32 - 1, 0, 0)(0))
    flying.run(1.5)
    assert not clipping_hz(flying) > 0.0
    flying.content[VIBRATION] = counts(5, 0, 0)
    flying.run(2.0)
    assert clipping_hz(flying) == 0.0


def test_an_old_rate_is_unknown(flying):
    flying.content[VIBRATION] = rising(400.0)
    flying.run(2.0)
    del flying.content[VIBRATION]
    flying.run(CLIPS_AGE_S + 0.5)
    assert math.isnan(clipping_hz(flying))
