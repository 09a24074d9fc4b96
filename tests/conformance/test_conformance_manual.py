"""PX4 obeys one source of sticks (COM_RC_IN_MODE)."""

import pytest
from conformance_flight import ConformanceFlight

from companion.core.enums import FcuMode

ALTCTL, OFFBOARD, POSCTL = (2, 0), (6, 0), (3, 0)
STREAM_S = 0.1  # between two MANUAL_CONTROL
EXCEPT_OFFBOARD = 4  # of COM_RCL_EXCEPT: a flight that goes on without RC, so that a joystick can become the source
RC_ONLY, FALLBACK, KEEP_FIRST, RC_FIRST = 0, 2, 3, 5


@pytest.fixture
def in_offboard(begin):
    """Function that takes off and enters offboard."""

    def make(in_mode: int) -> ConformanceFlight:
        flight = begin(COM_RC_IN_MODE=in_mode, COM_RC_OVERRIDE=3, COM_RCL_EXCEPT=EXCEPT_OFFBOARD)
        flight.take_off()
        flight.enter_offboard()
        return flight

    return make


def joystick(flight: ConformanceFlight, pitch: int = 0):
    """Stream MANUAL_CONTROL beside the setpoints: a joystick at a ground station."""
    due_s = flight.now_s

    def stream(now_s: float) -> bytes:
        nonlocal due_s
        data = flight.hover(now_s)
        if now_s >= due_s:
            due_s += STREAM_S
            data += flight.peer.manual_control_encode(1, pitch, 0, 500, 0, 0).pack(flight.peer)
        return data

    flight.stream = stream


def switch(flight: ConformanceFlight, mode: FcuMode) -> None:
    channels = list(flight.autopilot.rc_neutral_us)
    channels[flight.autopilot.rc_mode_channel - 1] = flight.autopilot.rc_mode_positions_us[mode]
    flight.autopilot.set_rc(channels)


@pytest.mark.parametrize("in_mode", [KEEP_FIRST, FALLBACK, RC_ONLY, RC_FIRST])
def test_a_joystick_beside_a_living_transmitter_does_not_take_over(in_offboard, in_mode):
    flight = in_offboard(in_mode)
    joystick(flight)
    flight.run(1.0)
    joystick(flight, pitch=1000)
    flight.run(2.0)
    assert flight.mode == OFFBOARD
    switch(flight, FcuMode.ALTCTL)
    flight.until_mode(ALTCTL, 2.0)


@pytest.mark.parametrize("in_mode, obeyed", [(FALLBACK, False), (RC_ONLY, True), (RC_FIRST, True)])
def test_after_a_joystick_became_the_source_only_rc_first_gives_the_transmitter_back(in_offboard, in_mode, obeyed):
    """The transmitter is lost for two seconds while a joystick is there, and comes back."""
    flight = in_offboard(in_mode)
    joystick(flight)
    flight.autopilot.set_rc(None)
    flight.run(2.0)
    flight.autopilot.set_rc(list(flight.autopilot.rc_neutral_us))
    flight.run(1.5)
    assert flight.mode == OFFBOARD
    switch(flight, FcuMode.ALTCTL)
    flight.run(2.0)
    assert (flight.mode == ALTCTL) == obeyed
    channels = list(flight.autopilot.rc_us)
    channels[6] = 2000  # kill switch
    flight.autopilot.set_rc(channels)
    flight.run(1.0)
    assert (flight.motor_commands[-1].max() == 0.0) == obeyed
