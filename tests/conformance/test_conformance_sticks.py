"""Stabilized, Altitude and Position by the sticks of a joystick."""

import math

import pytest
from conformance_flight import ARM, SET_MODE, ConformanceFlight

from companion.core.frames import rotation_matrix

pytestmark = pytest.mark.verify  # tests/autopilot/test_autopilot_sticks.py is the quick one, of the emulator alone
STABILIZED, ALTCTL, POSCTL = (7, 0), (2, 0), (3, 0)
MAVLINK_ONLY = 1  # of COM_RC_IN_MODE


class Joystick:
    """MANUAL_CONTROL at 50 Hz; ``move`` with the fields of the message."""

    def __init__(self, flight: ConformanceFlight) -> None:
        self.flight, self.axes = flight, (0, 0, 500, 0)
        flight.stream = lambda now_s: flight.peer.manual_control_encode(1, *self.axes, 0).pack(flight.peer)

    def move(self, x=0, y=0, z=500, r=0) -> None:
        self.axes = (x, y, z, r)


@pytest.fixture
def joystick(begin) -> Joystick:
    """On the ground, with a joystick as the only source of sticks."""
    flight = begin(COM_RC_IN_MODE=MAVLINK_ONLY, MPC_VEL_MANUAL=4.0)
    made = Joystick(flight)
    flight.run(0.5)
    return made


@pytest.fixture
def flown(joystick) -> Joystick:
    """In hold at 4 m."""
    joystick.flight.take_off(4.0)
    return joystick


def enter(joystick: Joystick, mode: tuple[int, int]) -> None:
    assert joystick.flight.command(SET_MODE, 1, *mode)[-1] == 0, joystick.flight.texts()
    joystick.flight.until_mode(mode, 1.0)


def tilt_deg(flight: ConformanceFlight, heading: float) -> tuple[float, float]:
    """Tilt and its direction from a heading to the right [deg], by the truth."""
    x, y, _ = rotation_matrix(flight.plant.q_WB)[:, 2]
    forward, right = math.cos(heading) * x + math.sin(heading) * y, math.sin(heading) * x - math.cos(heading) * y
    return math.degrees(math.asin(math.hypot(x, y))), math.degrees(math.atan2(right, forward))


@pytest.mark.parametrize("x, y", [(600, 300), (-300, 700), (1000, 1000)])
def test_stabilized_tilts_towards_the_stick(flown, x, y):
    enter(flown, STABILIZED)
    flown.flight.run(0.5)
    heading = flown.flight.rpy[2]
    flown.move(x=x, y=y, z=560)
    flown.flight.run(1.2)
    angle, direction = tilt_deg(flown.flight, heading)
    assert angle == pytest.approx(35.0 * min(math.hypot(x, y) / 1000, 1.0), abs=2.5)
    assert direction == pytest.approx(math.degrees(math.atan2(y, x)), abs=4.0)


def test_altitude_tilts_by_the_stick_without_dead_zone(flown):
    enter(flown, ALTCTL)
    heading = flown.flight.rpy[2]
    for x in (80, 400):
        flown.move(x=x)
        flown.flight.run(1.5)
        angle, _ = tilt_deg(flown.flight, heading)
        assert angle == pytest.approx(math.degrees(math.atan(x / 1000 * math.tan(math.radians(35)))), abs=1.8)


def test_position_reaches_the_speed_of_the_stick_and_stops(flown):
    flight = flown.flight
    enter(flown, POSCTL)
    flown.move(x=1000)
    speeds = []
    for _ in range(5):
        flight.run(1.0)
        speeds.append(math.hypot(*flight.plant.v_W[:2]))
    assert 1.5 < speeds[0] < 3.0 and speeds[1] > 2.5, speeds
    assert speeds[-1] == pytest.approx(4.0, abs=0.5)
    flown.move()
    assert flight.run(5.0, lambda: math.hypot(*flight.plant.v_W[:2]) < 0.4)
    flight.run(2.0)
    stopped = tuple(flight.plant.p_W)
    flight.run(2.0)
    assert math.dist(stopped, flight.plant.p_W) < 0.6


def test_in_position_the_dead_zone_holds(flown):
    flight = flown.flight
    enter(flown, POSCTL)
    flight.run(1.0)
    before = tuple(flight.plant.p_W)
    flown.move(x=90, y=-90, z=545, r=90)
    flight.run(2.0)
    assert math.dist(before, flight.plant.p_W) < 0.5


@pytest.mark.parametrize("z, rate", [(1000, 1.5), (0, -0.7)])
def test_below_5_m_the_climb_rate_is_that_of_take_off_and_landing(flown, z, rate):
    enter(flown, ALTCTL)
    flown.move(z=z)
    flown.flight.run(1.5)
    assert flown.flight.plant.v_W[2] == pytest.approx(rate, abs=0.3)


def test_the_yaw_stick_turns_and_the_heading_is_locked(flown):
    flight = flown.flight
    enter(flown, ALTCTL)
    before = flight.rpy[2]
    flown.move(r=400)
    flight.run(1.0)
    turned = math.remainder(flight.rpy[2] - before, math.tau)
    assert -1.0 < turned < -0.15
    flown.move()
    flight.run(2.0)
    locked = flight.rpy[2]
    flight.run(2.0)
    assert abs(math.remainder(flight.rpy[2] - locked, math.tau)) < math.radians(3.0)


def test_takes_off_with_the_throttle_above_65_percent(joystick):
    flight = joystick.flight
    enter(joystick, POSCTL)
    assert flight.command(ARM, 1, 0) == [0], flight.texts()
    height = flight.plant.p_W[2]
    joystick.move(z=640)
    flight.run(3.0)
    assert flight.plant.p_W[2] < height + 0.1
    joystick.move(z=800)
    assert flight.run(8.0, lambda: flight.plant.p_W[2] > height + 1.0)
