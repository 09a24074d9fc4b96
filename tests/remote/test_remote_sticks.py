"""Sticks to MANUAL_CONTROL: shapes, ranges, and the world direction of headless sticks as PX4 maps them."""

import itertools
import math
import os
import random

import pytest

from companion.core.config import ConfigError
from companion.core.enums import FcuMode
from companion.core.frames import quat_from_rpy, quat_multiply
from companion.remote import gamepad
from companion.remote.flight_modes import FlightMode, StickModes
from companion.remote.gamepad import AXIS, EVENT, GONE, INITIAL, SILENT_S, Gamepad, parse_axes
from companion.remote.sticks import PX4_EXPO, Sticks, StickShape, heading_rad, manual_control, shaped, unshaped
from sitl.autopilot.sticks import EXPO, stick, tilted

TILT = math.radians(35.0)
VALUES = [math.nan, math.inf, -math.inf, 1e300, -5.0, -1.0, -0.999, -0.0, 0.3, 1.0, 1.0000001, 32768.0]


@pytest.mark.parametrize("mode", [FcuMode.STABILIZED, FcuMode.ALTCTL, FcuMode.POSCTL, FcuMode.UNKNOWN])
@pytest.mark.parametrize("frame", FlightMode)
def test_nothing_beyond_the_range_ever_leaves(mode, frame):
    modes = StickModes(TILT, frame)
    for i, values in enumerate(itertools.product(VALUES, repeat=2)):
        for heading in (0.0, 2.0, math.nan, math.inf):
            for sticks in (Sticks(*values, 0.0, 0.0), Sticks(0.5, -0.5, *values)):
                x, y, z, r = manual_control(sticks, modes, heading, mode, 0.1, 0.02 * i)
                assert all(type(v) is int and -1000 <= v <= 1000 for v in (x, y, r)) and 0 <= z <= 1000


def test_the_axes_are_those_of_px4():
    modes = StickModes(TILT)
    assert manual_control(Sticks(1.0, 0.0, 0.0, 0.0), modes, 0.0, FcuMode.ALTCTL, 0.1, 0.0) == (1000, 0, 500, 0)
    assert manual_control(Sticks(0.0, 1.0, 1.0, 0.0), modes, 0.0, FcuMode.ALTCTL, 0.1, 0.0) == (0, 1000, 1000, 0)
    assert manual_control(Sticks(0.0, 0.0, -1.0, 1.0), modes, 0.0, FcuMode.ALTCTL, 0.1, 0.0) == (0, 0, 0, 1000)


def test_the_shape_is_px4s_and_can_be_undone():
    assert PX4_EXPO == EXPO
    for dead_zone, expo, value in itertools.product(
        (0.0, 0.1, 0.3), (0.0, 0.6, 1.0), (-1.0, -0.4, -0.2, 0.15, 0.5, 1.0)
    ):
        assert shaped(value, dead_zone, expo) == stick(value, dead_zone, expo)
        assert shaped(unshaped(value, dead_zone, expo), dead_zone, expo) == pytest.approx(value, abs=1e-9)
    assert unshaped(0.0, 0.1, 0.6) == 0.0


def test_the_ground_shape_removes_the_rest_of_a_gamepad_and_keeps_the_ends():
    shape = StickShape(dead_zone=0.05, expo=0.5)
    assert shape.apply(Sticks(0.04, -0.05, 0.0, 0.01)) == (0.0, -0.0, 0.0, 0.0)
    assert shape.apply(Sticks(1.0, -1.0, 1.0, -1.0)) == (1.0, -1.0, 1.0, -1.0)
    assert all(0 < s < 0.5 for s in shape.apply(Sticks(0.5, 0.5, 0.5, 0.5)))


@pytest.mark.parametrize("mode", [FcuMode.STABILIZED, FcuMode.ALTCTL, FcuMode.POSCTL])
def test_headless_sticks_have_one_direction_of_the_world_whatever_the_nose(mode):
    """Through the numbers of the message and PX4's own dead zone, expo and unit circle: within 1°."""
    numbers = random.Random(1)
    for _ in range(300):
        size, angle = numbers.uniform(0.3, 1.0), numbers.uniform(-math.pi, math.pi)
        nose, ahead = numbers.uniform(-math.pi, math.pi), numbers.uniform(-math.pi, math.pi)
        modes = StickModes(TILT)
        modes.set_ahead(ahead)
        modes.mode = FlightMode.HEADLESS
        sticks = Sticks(size * math.cos(angle), size * math.sin(angle), 0.0, 0.0)
        for i in range(60):
            x, y, _, _ = manual_control(sticks, modes, nose, mode, 0.1, 0.02 * i)
        forward, right = x / 1000, y / 1000
        if mode is FcuMode.POSCTL:
            forward, right = stick(forward, 0.1), stick(right, 0.1)
            wanted = math.atan2(shaped(sticks.right, 0.1, PX4_EXPO), shaped(sticks.ahead, 0.1, PX4_EXPO))
        else:
            # equation 16: turns about the pilot's axes, so the tilt of a diagonal stick is a little off the diagonal
            alpha, beta = sticks.ahead * TILT, sticks.right * TILT
            wanted = math.atan2(math.sin(beta), math.sin(alpha) * math.cos(beta))
        flown = math.atan2(right, forward) - nose  # to the right of the world's x axis
        assert abs(math.remainder(flown - (wanted - ahead), math.tau)) < math.radians(1.0)


def test_the_heading_of_stabilized_is_that_from_which_px4_tilts():
    for yaw, forward, right in itertools.product((-3.0, 0.0, 1.2), (-0.5, 0.0, 0.5), (-0.5, 0.0, 0.6)):
        q = tilted(forward, right, yaw)
        assert math.remainder(heading_rad(q, FcuMode.STABILIZED) - yaw, math.tau) == pytest.approx(0.0, abs=1e-12)
        q = tuple(quat_multiply(quat_from_rpy(0, 0, yaw), quat_from_rpy(right, forward, 0)))
        assert math.remainder(heading_rad(q, FcuMode.POSCTL) - yaw, math.tau) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("mode", [FcuMode.STABILIZED, FcuMode.POSCTL])
def test_the_frame_changes_in_the_air_without_a_jump(mode):
    modes = StickModes(TILT)
    modes.set_ahead(2.5)
    before, largest = None, 0.0
    for i in range(300):
        if i in (50, 150, 160):
            modes.mode = FlightMode.BODY if modes.mode is FlightMode.HEADLESS else FlightMode.HEADLESS
        control = manual_control(Sticks(0.5, 0.3, 0.0, 0.0), modes, 0.0, mode, 0.1, 0.02 * i)
        if mode is FcuMode.POSCTL:  # the jump that PX4 sees behind its dead zone
            control = tuple(1000 * stick(v / 1000, 0.1) for v in control)
        if before is not None:
            largest = max(largest, math.hypot(control[0] - before[0], control[1] - before[1]))
        before = control
    assert largest < 60, "of 1000, between two messages: 0.5 s from one frame to the other"


def plugged_in(folder, monkeypatch) -> tuple[Gamepad, int]:
    """A gamepad of six axes, and where its events are written."""
    monkeypatch.setattr(gamepad, "axes_of", lambda file: 6)
    device = folder / "js0"
    os.mkfifo(device)
    writer = os.open(device, os.O_RDWR)
    return Gamepad(str(device), parse_axes("0,-1,3,-4")), writer


def test_events_of_a_gamepad_become_sticks_until_it_is_unplugged(tmp_path, monkeypatch):
    pad, writer = plugged_in(tmp_path, monkeypatch)
    assert pad(0.0) == (0.0, 0.0, 0.0, 0.0)
    os.write(writer, EVENT.pack(0, -32767, AXIS | INITIAL, 4) + EVENT.pack(1, 16384, AXIS, 3) + EVENT.pack(2, 1, 1, 0))
    os.write(writer, EVENT.pack(3, -32768, AXIS, 0))
    assert pad(0.1) == Sticks(ahead=1.0, right=pytest.approx(0.5, abs=1e-4), up=0.0, turn=-1.0)
    os.close(writer)
    assert pad(0.2) == pad(0.3) == GONE


def test_a_deflected_gamepad_that_sends_nothing_has_no_sticks(tmp_path, monkeypatch):
    """Its radio or battery has failed: the device stays, with the last position."""
    pad, writer = plugged_in(tmp_path, monkeypatch)
    os.write(writer, EVENT.pack(0, -32767, AXIS, 4))
    assert pad(1.0) == pad(9.0) == Sticks(1.0, 0.0, 0.0, 0.0), "pressed against its end stop it has nothing to say"
    os.write(writer, EVENT.pack(0, -16384, AXIS, 4))
    ahead = Sticks(16384 / 32767, 0.0, 0.0, 0.0)
    assert pad(10.0) == pad(10.0 + SILENT_S) == ahead
    assert "has sent nothing for 1 s" in pad(10.1 + SILENT_S)
    os.write(writer, EVENT.pack(1, 1, 1, 0))  # a button: it is alive
    assert pad(12.0) == ahead
    os.write(writer, EVENT.pack(2, 500, AXIS, 4))
    assert pad(12.1).centred and pad(1000.0).centred, "a gamepad at rest sends nothing"
    os.close(writer)


@pytest.mark.parametrize("device", ["/etc/passwd", "/dev/zero", "/dev/null"])
def test_what_is_no_joystick_device_is_refused(device):
    with pytest.raises(ConfigError, match=f"--gamepad {device}: not a joystick device"):
        Gamepad(device, parse_axes("0,-1,3,-4"))


def test_an_axis_that_the_gamepad_does_not_have_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(gamepad, "axes_of", lambda file: 4)
    (tmp_path / "js0").touch()
    with pytest.raises(ConfigError, match=r"js0: has 4 axes, none with number 4 \(--axes\)"):
        Gamepad(str(tmp_path / "js0"), parse_axes("0,-1,3,-4"))


def test_one_axis_for_two_sticks_is_refused():
    with pytest.raises(ConfigError, match="one axis would move two sticks"):
        parse_axes("0,-1,1,-4")


@pytest.mark.parametrize("axes", ["", "0,1,2", "0,1,2,x", "0,1,2,999", "0,1,2,--3"])
def test_axes_that_are_not_four_numbers_are_refused(axes):
    with pytest.raises(ConfigError, match="--axes"):
        parse_axes(axes)
