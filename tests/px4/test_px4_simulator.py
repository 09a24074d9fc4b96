"""The messages between our simulator and PX4, without PX4."""

import math
import socket
import threading
from pathlib import Path

import msgspec
import numpy as np
import pytest
from pymavlink.dialects.v20 import common

from companion.core.config import ConfigError
from companion.core.frames import quat_from_rpy
from companion.core.messages import Image, Markers, Photo, PhotoRequest
from sitl.autopilot.conversion import EARTH_RADIUS_M, ORIGIN, q_ned
from sitl.px4.hil import HilLink, hil_sensor
from sitl.px4.process import Px4Ended
from sitl.px4.sensors import DECLINATION_RAD, FIELD_GAUSS, claimed_accuracy_m, hil_gps, magnetic_field, pressure_hpa
from sitl.px4.side_link import SideLink
from sitl.px4.sih import ReportedMotion, SihWorld
from sitl.scenario import load_scenario
from sitl.sensors import PAPER, GnssFix

ROOT = Path(__file__).parents[2]
INSTANCE = 77  # of the ports; not used by any flight
HOVER = [0.31, 0.32, 0.33, 0.34, 0.35, 0.36] + [0.0] * 10


class HilPeer:
    """PX4's end of the simulator's link."""

    def __init__(self, link: HilLink) -> None:
        self.socket = socket.create_connection(("127.0.0.1", link.port))
        self.mav = common.MAVLink(None, 1, 1)

    def send(self, *messages) -> None:
        self.socket.sendall(b"".join(m.pack(self.mav) for m in messages))

    def controls(self, values=HOVER, armed=True):
        return self.mav.hil_actuator_controls_encode(7, values, 128 | 1 if armed else 1, 1)

    def received(self) -> list:
        self.socket.settimeout(2.0)
        return common.MAVLink(None).parse_buffer(self.socket.recv(4096)) or []


@pytest.fixture
def link():
    link = HilLink(INSTANCE)
    yield link
    link.close()


@pytest.fixture
def peer(link):
    peer = HilPeer(link)
    assert link.connected(1.0)
    yield peer
    peer.socket.close()


def test_steps_do_not_wait_before_the_first_answer_and_wait_for_one_after(link, peer):
    link.writer.send("HIL_SENSOR", *hil_sensor(4000, (0, 0, -9.8), (0, 0, 0), None, None))
    assert link.step() is None and not link.answered
    peer.send(peer.mav.heartbeat_encode(2, 12, 0, 0, 0), peer.mav.command_long_encode(0, 0, 511, 0, *[0] * 7))
    peer.send(peer.controls())
    assert link.step().motors == pytest.approx(HOVER[:6])
    timer = threading.Timer(0.3, lambda: peer.send(peer.controls(armed=False)))
    timer.start()
    assert not link.step().armed


def test_each_step_takes_one_answer_in_order_and_frames_in_pieces(link, peer):
    frames = b"".join(peer.controls([0.1 * i] * 16).pack(peer.mav) for i in (1, 2))
    peer.socket.sendall(frames[:50])
    threading.Timer(0.05, lambda: peer.socket.sendall(frames[50:])).start()
    while (first := link.step()) is None:
        pass
    assert first.motors[0] == pytest.approx(0.1) and link.step().motors[0] == pytest.approx(0.2)


def test_a_link_that_carries_no_mavlink_is_one_line(link, peer):
    peer.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(Px4Ended, match="not MAVLink"):
        for _ in range(100):
            link.step()


def test_a_closed_link_is_reported(link, peer):
    peer.send(peer.controls())
    while link.step() is None:
        pass
    peer.socket.close()
    with pytest.raises(Px4Ended, match="closed|broke"):
        link.step()


def test_a_taken_port_is_refused(link):
    with pytest.raises(ConfigError, match=f"TCP port {4560 + INSTANCE}"):
        HilLink(INSTANCE)


def test_only_sensors_that_were_read_are_marked(link, peer):
    link.writer.send("HIL_SENSOR", *hil_sensor(4000, (0.1, 0.2, -9.8), (0.01, 0.02, 0.03), (0.2, 0.0, 0.4), 1005.5))
    link.writer.send("HIL_SENSOR", *hil_sensor(8000, (0, 0, -9.8), (0, 0, 0), None, None))
    link.step()
    first, second = peer.received()
    assert first.fields_updated == 0b1101111111111 & ~0x400 and second.fields_updated == 0b111111
    assert (first.xacc, first.zgyro, first.zmag, first.abs_pressure) == pytest.approx((0.1, 0.03, 0.4, 1005.5))
    assert first.time_usec == 4000 and second.time_usec == 8000


def test_the_compass_points_to_magnetic_north():
    quiet = lambda: 0.0  # noqa: E731
    for yaw in (-2.0, 0.0, 1.0, math.pi / 2):
        x, y, z = magnetic_field(quat_from_rpy(0.0, 0.0, yaw), quiet)
        heading = math.pi / 2 - yaw  # clockwise from north
        magnetic = math.atan2(-y, x)  # as a compass in FRD reads it
        assert math.remainder(magnetic + DECLINATION_RAD - heading, 2 * math.pi) == pytest.approx(0.0, abs=1e-9)
        assert math.hypot(x, y, z) == pytest.approx(FIELD_GAUSS) and z > 0.4  # into the ground


def test_pressure_falls_by_twelve_pascals_a_metre():
    assert pressure_hpa(0.0) == pytest.approx(1013.25)
    assert (pressure_hpa(0.0) - pressure_hpa(1.0)) * 100 == pytest.approx(12.0, abs=0.05)
    assert pressure_hpa(1000.0) == pytest.approx(898.7, abs=0.1)  # table of ISO 2533


def test_a_fix_is_sent_in_px4_s_units():
    fix = GnssFix(1.0, (10.0, 20.0, 5.0), (3.0, 4.0, 1.0), True)
    message = common.MAVLink_hil_gps_message(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    values = dict(zip(message.ordered_fieldnames, hil_gps(5, fix, (0.9, 1.8)), strict=True))
    north_m = math.radians(values["lat"] * 1e-7 - ORIGIN[0]) * EARTH_RADIUS_M
    assert north_m == pytest.approx(20.0, abs=0.02) and values["alt"] == 65000
    assert (values["vn"], values["ve"], values["vd"], values["vel"]) == (400, 300, -100, 500)
    assert values["cog"] == round(math.degrees(math.atan2(3, 4)) * 100) and values["fix_type"] == 3
    assert (values["eph"], values["epv"]) == (90, 180)
    lost = dict(zip(message.ordered_fieldnames, hil_gps(5, fix._replace(ok=False), (0.9, 1.8)), strict=True))
    assert lost["fix_type"] == 0 and lost["satellites_visible"] == 0


def test_an_ordinary_receiver_reports_an_accuracy_without_its_drift():
    assert claimed_accuracy_m(PAPER.gnss) == (0.9, 1.8)


def hil_state(north_m: float, up_m: float, v_ned=(0.0, 0.0, 0.0), q=(1, 0, 0, 0)) -> tuple:
    """HIL_STATE_QUATERNION in wire order with PX4's rounding."""
    lat = int((ORIGIN[0] + math.degrees(north_m / EARTH_RADIUS_M)) * 1e7)
    alt = int((ORIGIN[2] + up_m) * 1e3)
    return (0, *q, 0.1, 0.2, 0.3, lat, int(ORIGIN[1] * 1e7), alt, *(int(v * 100) for v in v_ned), 0, 0, 0, 0, 0)


def test_px4_s_motion_is_converted_to_enu_and_flu():
    motion = ReportedMotion((1.0, 2.0, 0.0))
    q = q_ned(tuple(quat_from_rpy(0.1, -0.2, 0.7)))
    motion.put(hil_state(0.0, 0.0, (1.0, 2.0, -3.0), q), 10.0)
    assert motion.p_W.tolist() == [1.0, 2.0, 0.0] and motion.v_W.tolist() == [2.0, 1.0, 3.0]
    assert motion.omega_B.tolist() == [0.1, -0.2, -0.3]
    assert abs(np.dot(motion.q_WB, quat_from_rpy(0.1, -0.2, 0.7))) == pytest.approx(1.0)


def test_the_smoothed_position_is_finer_than_the_reported_steps():
    motion, errors = ReportedMotion((0.0, 0.0, 0.0)), []
    for i in range(2000):
        t = i * 0.005
        north = 1.5 * math.sin(0.8 * t)
        motion.put(hil_state(north, 0.0, (1.2 * math.cos(0.8 * t), 0, 0)), t)
        errors.append(motion.p_W[1] - north)
    assert np.std(errors[100:]) < 0.002  # the steps are 11 mm


def test_after_a_gap_the_reported_position_is_taken_unsmoothed():
    motion = ReportedMotion((0.0, 0.0, 0.0))
    motion.put(hil_state(0.0, 0.0), 0.0)
    motion.put(hil_state(7.0, 3.0), 5.0)
    assert motion.p_W == pytest.approx([0.0, 7.0, 3.0], abs=0.02)


def test_the_side_link_finds_its_message_among_others_and_damage():
    link = SideLink((18000, 18001), INSTANCE)
    try:
        mav = common.MAVLink(None, 1, 1)
        state = mav.hil_state_quaternion_encode(0, [1, 0, 0, 0], 0, 0, 0.5, 1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0)
        frames = [mav.heartbeat_encode(13, 12, 0, 0, 0).pack(mav), b"\xfd\x09", state.pack(mav)[:20], state.pack(mav)]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(frames[0] + frames[3], ("127.0.0.1", 18001 + INSTANCE))
            sender.sendto(b"\0\1\2" + frames[3], ("127.0.0.1", 18001 + INSTANCE))
        found = link.receive("HIL_STATE_QUATERNION")
        assert len(found) == 2 and all(values[8:11] == (1, 2, 3) for values in found)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(frames[2], ("127.0.0.1", 18001 + INSTANCE))
        assert link.receive("HIL_STATE_QUATERNION") == []
    finally:
        link.close()


def sih_world(camera_mode: str) -> SihWorld:
    """SIH's aircraft 3 m in front of the pier's face."""
    loaded = load_scenario(ROOT / "config/scenarios/bridge_hover.toml", camera_mode=camera_mode)
    start = msgspec.structs.replace(loaded.scenario.start, p_W=(9.0, 0.0, 4.0))
    scenario = msgspec.structs.replace(loaded.scenario, start=start)
    world = SihWorld(msgspec.structs.replace(loaded, scenario=scenario), 1)
    world.motion.put(hil_state(0.0, 0.0, q=q_ned((1.0, 0.0, 0.0, 0.0))), 10.0)
    return world


def test_without_images_the_aircraft_of_sih_sends_the_corners_as_markers():
    """A blank image in their place shows no marker to any tracker."""
    world = sih_world("corners")
    (seen,) = world.arrived(world.expose())
    assert isinstance(seen, Markers) and seen.stamp_s == 10.0
    assert [bundle.bundle for bundle in seen.observations] == ["pier"]
    world.request([PhotoRequest(stamp_s=10.0, id=1)])
    world.motion.put(hil_state(0.0, 0.0, q=q_ned((1.0, 0.0, 0.0, 0.0))), 10.04)
    assert any(isinstance(message, Photo) for message in world.arrived(world.expose()))


def test_with_images_sih_sends_them_to_the_tracker():
    world = sih_world("images")
    (image,) = world.arrived(world.expose())
    assert isinstance(image, Image) and len(set(image.data[::97])) > 20
