"""Sticks: their sources (COM_RC_IN_MODE), and what Stabilized, Altitude and Position make of them."""

import math

import pytest
from autopilot_flight import QUIET, EmulatorFlight

from companion.core.enums import FcuMode
from companion.core.frames import rotation_matrix
from sitl.autopilot.manual_selector import FIRST_LINK, NO_SOURCE, RC, InMode, ManualSelector
from sitl.autopilot.parameters import load_parameters
from sitl.autopilot.rc import ManualControl

POSCTL, ALTCTL, STABILIZED = (3, 0), (2, 0), (7, 0)
LINK_0, LINK_1 = FIRST_LINK, FIRST_LINK + 1
CHANNELS = [1500] * 8


class Joystick:
    """MANUAL_CONTROL at 25 Hz beside a flight; the fields are those of the message."""

    def __init__(self, flight: EmulatorFlight) -> None:
        self.flight, self.sends, self.target = flight, True, 1
        self.x = self.y = self.r = 0
        self.z = 500
        flight.stream = self.stream

    def stream(self, now_s: float) -> bytes | None:
        if not self.sends:
            return None
        peer = self.flight.peer
        return peer.manual_control_encode(self.target, self.x, self.y, self.z, self.r, 0).pack(peer)

    def move(self, x=0, y=0, z=500, r=0) -> None:
        self.x, self.y, self.z, self.r = x, y, z, r


@pytest.fixture
def joystick(flying) -> Joystick:
    """In hold at 3 m, MAVLink is the only source of sticks."""
    made = Joystick(flying)
    flying.run(0.1)
    flying.set_parameter("COM_RC_IN_MODE", int(InMode.MAVLINK_ONLY))
    flying.run(0.3)
    return made


def tilt(flight: EmulatorFlight, heading: float) -> tuple[float, float]:
    """Tilt of the aircraft by its own estimate [deg] and its direction from a heading to the right [deg]."""
    x, y, _ = rotation_matrix(flight.autopilot.stack.q)[:, 2]
    forward, right = math.cos(heading) * x + math.sin(heading) * y, math.sin(heading) * x - math.cos(heading) * y
    return math.degrees(math.asin(math.hypot(x, y))), math.degrees(math.atan2(right, forward))


@pytest.mark.parametrize(
    "in_mode, chosen",
    [
        (InMode.RC_ONLY, RC),
        (InMode.MAVLINK_ONLY, LINK_0),
        (InMode.FALLBACK, RC),
        (InMode.KEEP_FIRST, RC),
        (InMode.NONE, NO_SOURCE),
        (InMode.RC_THEN_LINKS_UP, RC),
        (InMode.LINKS_UP_THEN_RC, LINK_0),
        (InMode.RC_THEN_LINKS_DOWN, RC),
        (InMode.LINKS_DOWN_THEN_RC, LINK_1),
    ],
)
def test_the_parameter_chooses_among_a_transmitter_and_two_joysticks(in_mode, chosen):
    parameters = load_parameters("f550")
    parameters.set("COM_RC_IN_MODE", int(in_mode))
    selector = ManualSelector(ManualControl(), parameters)
    for step in range(5):
        selector.put_joystick(0, (0.1, 0.0, 0.0, 0.0))
        selector.put_joystick(1, (0.2, 0.0, 0.0, 0.0))
        selector.update(0.02 * step, CHANNELS)
    assert selector.source == chosen


@pytest.mark.parametrize(
    "in_mode, after_loss, after_return",
    [
        (InMode.FALLBACK, LINK_0, LINK_0),
        (InMode.KEEP_FIRST, NO_SOURCE, RC),
        (InMode.RC_THEN_LINKS_UP, LINK_0, RC),
        (InMode.RC_ONLY, NO_SOURCE, RC),
    ],
)
def test_a_transmitter_that_is_lost_and_returns(in_mode, after_loss, after_return):
    parameters = load_parameters("f550")
    parameters.set("COM_RC_IN_MODE", int(in_mode))
    manual = ManualControl()
    selector = ManualSelector(manual, parameters)
    sources = []
    for step in range(200):
        now_s = 0.02 * step
        lost = 1.0 <= now_s < 3.0
        if step == 50:
            selector.lose_rc(now_s)
        selector.put_joystick(0, (0.1, 0.0, 0.0, 0.0))
        selector.update(now_s, None if lost else CHANNELS)
        sources.append(selector.source)
    assert sources[60] == RC, "lost only after COM_RC_LOSS_T"
    assert (sources[140], sources[-1]) == (after_loss, after_return)
    assert manual.ok == (after_return != NO_SOURCE)


def test_the_switches_of_the_transmitter_do_nothing_while_a_joystick_is_the_source(joystick):
    flight = joystick.flight
    channels = list(flight.autopilot.rc_neutral_us)
    channels[6] = 2000  # kill switch
    flight.autopilot.set_rc(channels)
    flight.run(1.0)
    assert flight.autopilot.armed and flight.plant.p_W[2] > 2.0


@pytest.mark.parametrize("x, y", [(500, 0), (0, 500), (1000, 0), (700, 700), (900, 400), (-600, 250)])
def test_stabilized_tilts_towards_the_stick_by_its_size(joystick, x, y):
    flight = joystick.flight
    assert flight.set_mode(*STABILIZED) == 0
    flight.run(0.1)
    heading = flight.autopilot.stack.yaw
    joystick.move(x=x, y=y, z=620)
    flight.run(1.2)
    size = min(math.hypot(x, y) / 1000, 1.0)
    angle, direction = tilt(flight, heading)
    assert angle == pytest.approx(35.0 * size, abs=1.5)
    assert direction == pytest.approx(math.degrees(math.atan2(y, x)), abs=1.5)


def test_altitude_tilts_by_the_stick_and_keeps_the_height(joystick):
    flight = joystick.flight
    assert flight.set_mode(*ALTCTL) == 0
    height = flight.plant.p_W[2]
    joystick.move(x=300)
    flight.run(2.0)
    angle, direction = tilt(flight, flight.autopilot.stack.yaw)
    assert angle == pytest.approx(math.degrees(math.atan(0.3 * math.tan(math.radians(35.0)))), abs=1.5)
    assert direction == pytest.approx(0.0, abs=2.0)
    assert flight.plant.p_W[2] == pytest.approx(height, abs=0.4)


@pytest.mark.parametrize("z, rate", [(1000, 1.5), (0, -0.7)])
def test_near_the_ground_the_climb_rate_is_that_of_take_off_and_landing(joystick, z, rate):
    flight = joystick.flight
    assert flight.set_mode(*ALTCTL) == 0
    joystick.move(z=z)
    flight.run(1.6)
    assert flight.plant.v_W[2] == pytest.approx(rate, abs=0.2)


def test_position_reaches_the_speed_of_the_stick_and_stops_when_it_is_released(joystick):
    flight = joystick.flight
    flight.set_parameter("MPC_VEL_MANUAL", 5.0)
    assert flight.set_mode(*POSCTL) == 0
    joystick.move(x=1000)
    flight.run(6.0)
    yaw = flight.autopilot.stack.yaw
    vx, vy, _ = flight.plant.v_W
    assert math.hypot(vx, vy) == pytest.approx(5.0, abs=0.4)
    assert abs(math.remainder(math.atan2(vy, vx) - yaw, math.tau)) < math.radians(3.0)
    joystick.move()
    flight.run(4.0)
    assert math.hypot(*flight.plant.v_W) < 0.3
    stopped = tuple(flight.plant.p_W)
    flight.run(3.0)
    assert math.dist(stopped, flight.plant.p_W) < 0.5
    assert flight.autopilot.mode == FcuMode.POSCTL


@pytest.mark.parametrize("inside", [80, -80])
def test_in_position_a_stick_within_the_dead_zone_does_not_move_the_aircraft(joystick, inside):
    flight = joystick.flight
    assert flight.set_mode(*POSCTL) == 0
    flight.run(1.0)
    before = tuple(flight.plant.p_W)
    joystick.move(x=inside, y=inside, r=inside, z=500 + inside // 2)
    flight.run(2.0)
    assert math.dist(before, flight.plant.p_W) < 0.3


def test_the_yaw_stick_turns_to_the_right_and_the_heading_is_locked_when_it_is_released(joystick):
    flight = joystick.flight
    assert flight.set_mode(*POSCTL) == 0
    before = flight.autopilot.stack.yaw
    joystick.move(r=400)
    flight.run(1.0)
    joystick.move()
    flight.run(2.0)
    locked = flight.autopilot.stack.yaw
    assert math.remainder(locked - before, math.tau) < -0.2
    flight.run(2.0)
    assert abs(math.remainder(flight.autopilot.stack.yaw - locked, math.tau)) < math.radians(1.5)


def test_takes_off_by_sticks_with_the_throttle_above_65_percent():
    flight = EmulatorFlight(stream_rates_hz=QUIET)
    flight.autopilot.parameters.set("COM_RC_IN_MODE", int(InMode.MAVLINK_ONLY))
    stick = Joystick(flight)
    flight.run(4.0)
    assert flight.set_mode(*POSCTL) == 0
    assert flight.command(400, 1, 0) == 0, flight.texts()
    stick.move(z=640)
    flight.run(3.0)
    assert flight.plant.p_W[2] == pytest.approx(flight.plant.rest_height_m, abs=0.02)
    stick.move(z=800)
    assert flight.run(6.0, lambda: flight.plant.p_W[2] > 1.0)


def test_a_joystick_that_stops_is_lost_after_the_parameters_time_and_the_aircraft_returns(joystick):
    flight = joystick.flight
    assert flight.set_mode(*POSCTL) == 0
    flight.run(1.0)
    joystick.sends = False
    flight.run(0.3)
    assert flight.autopilot.mode == FcuMode.POSCTL
    flight.run(0.5)
    assert flight.autopilot.mode == FcuMode.AUTO_LOITER, "holds for COM_FAIL_ACT_T"
    flight.run(5.0)
    assert flight.autopilot.mode == FcuMode.AUTO_RTL


@pytest.mark.parametrize("action, mode", [(1, FcuMode.AUTO_LOITER), (3, FcuMode.AUTO_LAND)])
def test_the_loss_of_the_joystick_ends_as_nav_rcl_act_says(joystick, action, mode):
    flight = joystick.flight
    flight.set_parameter("NAV_RCL_ACT", action)
    assert flight.set_mode(*ALTCTL) == 0
    joystick.sends = False
    flight.run(6.0)
    assert flight.autopilot.mode == mode


def test_in_an_excepted_mode_the_loss_of_the_joystick_changes_nothing(joystick):
    flight = joystick.flight
    flight.set_parameter("COM_RCL_EXCEPT", 2)  # Hold
    joystick.sends = False
    flight.run(3.0)
    assert flight.autopilot.mode == FcuMode.AUTO_LOITER and not flight.autopilot.commander.failsafe


@pytest.mark.parametrize("target", [2, 7])
def test_sticks_for_another_aircraft_are_not_taken(joystick, target):
    joystick.target = target
    joystick.flight.run(0.7)
    assert joystick.flight.autopilot.stack.sticks.source == NO_SOURCE


def test_an_axis_beyond_its_range_counts_as_centred(joystick):
    flight = joystick.flight
    joystick.move(x=1001, y=-32768, z=1001, r=32767)
    flight.run(0.1)
    assert flight.autopilot.commander.manual.sticks == (0.0, 0.0, 0.0, 0.0)
