"""A wrong IMU stream in flight and from the start: named, counted, and the hold is not worse than without the stream.

Without the stream the hold of these flights is 3.5 cm RMS, 7.1 cm at most (`imu_fault_flights`: "no stream at all").
"""

from functools import cache

import pytest
from imu_fault_flights import FAULTS, ImuFlight, from_start, in_hold

from companion.core.enums import ImuFault, Phase

WITHOUT_RMS_M, WITHOUT_LARGEST_M = 0.035, 0.071
SPARE = 1.15  # the transient when the stream is taken away
TRANSIENT_M = 0.05  # of it, in addition to the largest error
# Rates that are wrong show only by motion, after 0.4 s, in which the controller has followed them.
SPARE_TURNS, TRANSIENT_TURNS_M = 1.3, 0.1

NAMED = {
    "imu_stops": ImuFault.STOPPED,
    "imu_slow": ImuFault.SLOW,
    "imu_time_jumps": ImuFault.STAMPS,
    "imu_swapped, x and y": ImuFault.TURNS,
    "imu_swapped, x and z": ImuFault.DIRECTION,
    "imu_inverted": ImuFault.DIRECTION,
    "imu_frozen, x": ImuFault.FROZEN,
    "imu_frozen, z": ImuFault.FROZEN,
}
UNUSED_FROM_START = ("imu_stops", "imu_slow")  # no reason to stay on the ground
REFUSED = (
    "imu_time_jumps",
    "imu_swapped, x and z",
    "imu_inverted",
    "imu_frozen, x",
    "imu_frozen, z",
)  # seen on the ground
# x and y look alike while the aircraft stands level.

pytestmark = pytest.mark.verify


@cache
def without() -> ImuFlight:
    return from_start(None, without_imu=True)


def check_held(flight: ImuFlight, spare: float = SPARE, transient_m: float = TRANSIENT_M) -> None:
    assert flight.phase == Phase.HOLD and flight.resets == 0, flight.reason
    assert flight.rms_m <= spare * WITHOUT_RMS_M and flight.largest_m <= WITHOUT_LARGEST_M + transient_m


def test_every_fault_is_flown():
    assert set(FAULTS) == set(NAMED)


def test_the_figure_without_the_stream():
    flight = without()
    assert flight.phase == Phase.HOLD and flight.events == ()
    assert flight.rms_m == pytest.approx(WITHOUT_RMS_M, rel=0.1)
    assert flight.largest_m == pytest.approx(WITHOUT_LARGEST_M, rel=0.1)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_the_hold_is_named_and_the_hold_goes_on(name):
    flight = in_hold(FAULTS[name])
    if NAMED[name] is ImuFault.TURNS:
        check_held(flight, SPARE_TURNS, TRANSIENT_TURNS_M)
    else:
        check_held(flight)
    assert flight.events == ("imu_unused",) and flight.rejected[NAMED[name]] > 0
    assert flight.notes and all(note.startswith("inertial measurements are not used: ") for note in flight.notes)


@pytest.mark.parametrize("name", UNUSED_FROM_START)
def test_without_a_stream_the_mission_is_flown_with_a_warning(name):
    flight = from_start(FAULTS[name])
    check_held(flight)
    assert flight.events == () and any("of 200 Hz are not used" in text for text in flight.texts)


@pytest.mark.parametrize("name", REFUSED)
def test_a_stream_that_is_wrong_on_the_ground_is_refused_with_its_reason(name):
    flight = from_start(FAULTS[name])
    assert flight.phase == Phase.WAIT_READY and "inertial measurements: " in flight.reason
    assert flight.rejected[NAMED[name]] > 0


def test_axes_that_look_alike_on_the_ground_are_found_in_the_take_off():
    flight = from_start(FAULTS["imu_swapped, x and y"])
    check_held(flight)
    assert flight.events == ("imu_unused",) and flight.rejected[ImuFault.TURNS] > 1000
