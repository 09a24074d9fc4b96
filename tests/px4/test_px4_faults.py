"""Faults and delays of a scenario with real PX4, without PX4: its process and its simulator link are replaced."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from pymavlink.dialects.v20 import common

import sitl.px4.autopilot as px4_autopilot
from companion.core.config import ConfigError
from companion.core.enums import ProcessName
from sitl.lockstep import Lockstep
from sitl.px4.autopilot import Px4Autopilot
from sitl.px4.build import Px4Build
from sitl.px4.fly import check_real_time
from sitl.px4.hil import Controls
from sitl.px4.setpoint_delay import SetpointDelay
from sitl.scenario import (
    FAULT_NUMBERS,
    FAULT_NUMBERS_MAX,
    IMU_FAULTS,
    Fault,
    FaultKind,
    LoadedScenario,
    fault_problem,
    load_scenario,
)
from sitl.world import World

ROOT = Path(__file__).parents[2]
HOVER = Controls((0.32,) * 6, True)


class Wires:
    """PX4's process and all of its links: they take everything and answer every step with hover commands."""

    port = 0
    answered = True

    def __init__(self, *arguments, **_options) -> None:
        self.writer = self
        self.sent = b""

    def send(self, *values) -> None:
        if len(values) == 1:
            self.sent += values[0]

    def connected(self, wait_s: float) -> bool:
        return True

    def step(self) -> Controls:
        return HOVER

    def receive(self) -> bytes:
        return b""

    def unknown_parameters(self) -> list[str]:
        return []

    def nothing(self, *values) -> None:
        pass

    battery = heartbeat = origin = check = stop = close = nothing


@pytest.fixture
def link() -> Wires:
    """The companion's link."""
    return Wires()


@pytest.fixture
def px4(monkeypatch, tmp_path, link):
    """Function that makes a `Px4Autopilot` of a scenario without PX4."""
    for name in ("HilLink", "SideLink", "Px4Process"):
        monkeypatch.setattr(px4_autopilot, name, Wires)
    monkeypatch.setattr(px4_autopilot, "UdpEndpoint", lambda *_: link)
    monkeypatch.setattr(px4_autopilot, "prepare_run", lambda *_: tmp_path)
    build = Px4Build(tmp_path / "px4", tmp_path)
    return lambda loaded: Px4Autopilot(build, loaded, tmp_path, 1, carry_mavlink=True)


def with_changes(loaded: LoadedScenario, **changes) -> LoadedScenario:
    return msgspec.structs.replace(loaded, scenario=msgspec.structs.replace(loaded.scenario, **changes))


def fault_of(kind: FaultKind) -> Fault:
    """A fault of a kind with numbers that every kind accepts: RC channels, shares, seconds."""
    return Fault(
        at_s=0.02,
        kind=kind,
        duration_s=0.1,
        value=[5.0, 1.0, 1.0, 1.0, 1.0, 1.0][: FAULT_NUMBERS.get(kind, FAULT_NUMBERS_MAX.get(kind, 0))],
        name=ProcessName.TRACKER if kind == FaultKind.PROCESS_DEAD else "",
    )


@pytest.mark.parametrize("kind", [kind for kind in FaultKind if kind not in IMU_FAULTS])
def test_every_fault_begins_and_ends_with_px4_as_the_flight_controller(kind, px4):
    loaded = load_scenario(ROOT / "config/scenarios/bridge_hover.toml", camera_mode="corners")
    loaded = with_changes(loaded, fault=[fault_of(kind)], duration_max_s=1.0)
    assert fault_problem(fault_of(kind)) == "", "a scenario file could not have this fault"
    lockstep = Lockstep(loaded, 1, world=World(loaded, 1, autopilot=px4(loaded)))
    lockstep.start()
    lockstep.run_until(lambda: lockstep.now_s > 0.2)
    assert lockstep.now_s > 0.2


@pytest.mark.parametrize("kind", [kind for kind in FaultKind if kind not in IMU_FAULTS])
def test_a_fault_that_cannot_be_flown_is_refused_with_the_scenario(kind):
    """No fault takes seventeen numbers, and one that needs a number does not begin without."""
    too_many = msgspec.structs.replace(fault_of(kind), value=[1.0] * 17)
    assert "numbers, needs" in fault_problem(too_many)
    if fault_of(kind).value:
        assert "value has 0 numbers" in fault_problem(msgspec.structs.replace(too_many, value=[]))


@pytest.mark.parametrize("kind", [FaultKind.RC_STICKS, FaultKind.RC_MODE_SWITCH, FaultKind.RC_CHANNEL])
def test_a_fault_of_the_transmitter_reaches_px4_and_ends(kind, px4):
    loaded = load_scenario(ROOT / "config/scenarios/bridge_hover.toml", camera_mode="corners")
    loaded = with_changes(loaded, fault=[fault_of(kind)], duration_max_s=1.0)
    autopilot = px4(loaded)
    lockstep = Lockstep(loaded, 1, world=World(loaded, 1, autopilot=autopilot))
    lockstep.start()
    lockstep.run_until(lambda: lockstep.now_s > 0.05)
    assert tuple(autopilot.rc_us) != autopilot.rc_neutral_us
    lockstep.run_until(lambda: lockstep.now_s > 0.15)
    assert tuple(autopilot.rc_us) == autopilot.rc_neutral_us


@pytest.mark.parametrize("mode, way", [("external", "add --speed 2"), ("sih", "--px4-mode sih has none")])
def test_in_real_time_a_fault_is_refused_before_the_flight(mode, way):
    loaded = load_scenario(ROOT / "config/scenarios/bridge_hover.toml")
    check_real_time(loaded, mode)
    with pytest.raises(ConfigError, match=rf"bridge_hover.toml: fault\[0\] \(rc_sticks\): .*{way}"):
        check_real_time(with_changes(loaded, fault=[fault_of(FaultKind.RC_STICKS)]), mode)


def test_in_real_time_a_delay_before_px4_is_refused_and_sih_has_an_aircraft_of_its_own():
    loaded = load_scenario(ROOT / "config/scenarios/hover_wind.toml")
    with pytest.raises(ConfigError, match=r"hover_wind.toml: command_delay_s = 0.03: .*add --speed 2"):
        check_real_time(loaded, "external")
    check_real_time(loaded, "sih")


# --- the delay between companion and PX4 ------------------------------------------------------------------------------

MAV = common.MAVLink(None, 1, 191)


def setpoint(thrust: float) -> bytes:
    return MAV.set_attitude_target_encode(0, 1, 1, 0, (1.0, 0.0, 0.0, 0.0), 0, 0, 0, thrust).pack(MAV)


def test_the_delay_holds_back_setpoints_alone_and_keeps_their_order():
    heartbeat = MAV.heartbeat_encode(18, 8, 0, 0, 4).pack(MAV)
    timesync = MAV.timesync_encode(0, 1).pack(MAV)
    first, second = setpoint(0.3), setpoint(0.4)
    delay = SetpointDelay(0.03)
    assert delay.put(heartbeat + first + timesync, 1.0) == heartbeat + timesync
    assert delay.put(second, 1.02) == b""
    assert delay.due(1.028) == b"" and delay.due(1.03) == first
    assert delay.due(1.06) == second and delay.due(9.0) == b""


def test_without_a_delay_and_for_foreign_bytes_nothing_is_changed():
    data = b"GET / HTTP/1.1" + setpoint(0.3)
    assert SetpointDelay(0.0).put(setpoint(0.3), 1.0) == setpoint(0.3)
    assert SetpointDelay(0.03).put(data, 1.0) == data
    piece = setpoint(0.3)[:20]
    delay = SetpointDelay(0.03)
    assert delay.put(piece, 1.0) + delay.due(2.0) == piece


def test_a_signed_setpoint_is_held_back_with_its_signature():
    signed = bytearray(setpoint(0.3))
    signed[2] |= 1
    frame = bytes(signed) + b"s" * 13
    delay = SetpointDelay(0.03)
    assert delay.put(frame + setpoint(0.4), 1.0) == b"" and delay.due(1.03) == frame + setpoint(0.4)


def test_the_delay_lies_on_the_link_and_px4_s_motors_have_that_of_the_aircraft_alone(px4, link):
    """A delay in the motors would be one inside PX4's rate loop, which then oscillates."""
    loaded = load_scenario(ROOT / "config/scenarios/hover_wind.toml")
    autopilot = px4(loaded)
    world = World(loaded, 1, autopilot=autopilot)
    autopilot.receive(setpoint(0.3), 0.0)
    arrived, turning = [], []
    for _ in range(12):
        world.advance()
        arrived.append(bool(link.sent))
        turning.append(bool(np.any(world.plant.rotor_speed_rad_s > 0.0)))
    assert arrived.index(True) == 8  # the first step at or after 30 ms
    assert turning.index(True) <= 2  # 5 ms of the airframe
