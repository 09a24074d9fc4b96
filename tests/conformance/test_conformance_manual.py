"""PX4 obeys one source of sticks (COM_RC_IN_MODE): with PX4 only, because the emulator has no joystick."""

import pytest
from conformance_flight import ConformanceFlight, px4_build

from companion.core.enums import FcuMode

pytestmark = pytest.mark.realtime
ALTCTL, OFFBOARD, POSCTL = (2, 0), (6, 0), (3, 0)
STREAM_S = 0.1  # between two MANUAL_CONTROL
EXCEPT_OFFBOARD = 4  # of COM_RCL_EXCEPT: a flight that goes on without RC, so that a joystick can become the source
RC_ONLY, FALLBACK, KEEP_FIRST, RC_FIRST = 0, 2, 3, 5


@pytest.fixture
def begin(tmp_path):
    """Function that takes off and enters offboard."""
    if px4_build() is None:
        pytest.skip("no PX4 found: PX4_BUILD names none, and no px4 on the PATH")
    flights = []

    def make(in_mode: int) -> ConformanceFlight:
        flights.append(
            ConformanceFlight(
                "px4", tmp_path, COM_RC_IN_MODE=in_mode, COM_RC_OVERRIDE=3, COM_RCL_EXCEPT=EXCEPT_OFFBOARD
            )
        )
        flights[0].take_off()
        flights[0].enter_offboard()
        return flights[0]

    yield make
    for flight in flights:
        flight.close()


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
def test_a_joystick_beside_a_living_transmitter_does_not_take_over(begin, in_mode):
    flight = begin(in_mode)
    joystick(flight)
    flight.run(1.0)
    joystick(flight, pitch=1000)
    flight.run(2.0)
    assert flight.mode == OFFBOARD
    switch(flight, FcuMode.ALTCTL)
    flight.until_mode(ALTCTL, 2.0)


@pytest.mark.parametrize("in_mode, obeyed", [(FALLBACK, False), (RC_ONLY, True), (RC_FIRST, True)])
def test_after_a_joystick_became_the_source_only_rc_first_gives_the_transmitter_back(begin, in_mode, obeyed):
    """The transmitter is lost for two seconds while a joystick is there, and comes back."""
    flight = begin(in_mode)
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
