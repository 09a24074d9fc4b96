"""Ground stations on the forward share the link, cannot send setpoints, and cannot delay it."""

import socket
import time

import pytest
from pymavlink.dialects.v20 import common

from companion.core.config import ConfigError
from companion.core.messages import FcuText, LinkRx, LinkTx
from companion.fcu.guards.ground_filter import BURST, BYTES_PER_S
from companion.fcu.link.link import open_link
from companion.fcu.link.sender import ANY_SENDER
from companion.fcu.link.signing import EPOCH_S, UNITS_PER_S, Signer

Q = [1.0, 0.0, 0.0, 0.0]
QGC, MAVSDK = (255, 190), (245, 190)


def frame(sender, message):
    return message.pack(common.MAVLink(None, srcSystem=sender[0], srcComponent=sender[1]))


def send_from_ground(peer, data):
    """Deliver bytes of a ground station; returns the frames for the flight controller, and the texts."""
    out = list(peer.node.handle(LinkRx(stamp_s=peer.now_s, data=data, ground=True), peer.now_s))
    peer.collect(out)
    frames = [f for m in out if type(m) is LinkTx for f in split(m.data)]
    return frames, [m.text for m in out if type(m) is FcuText]


def split(data):
    while data:
        size = data[1] + (12 if not data[2] & 1 else 25) if data[0] == 0xFD else data[1] + 8
        yield data[:size]
        data = data[size:]


PASSING = [
    common.MAVLink_heartbeat_message(6, 8, 0, 0, 4, 3),
    common.MAVLink_command_long_message(1, 1, 400, 0, 1, 0, 0, 0, 0, 0, 0),
    common.MAVLink_param_request_list_message(1, 1),
    common.MAVLink_param_set_message(1, 1, b"MC_ROLL_P", 6.5, 9),
    common.MAVLink_manual_control_message(1, 0, 0, 500, 0, 0),
    common.MAVLink_mission_count_message(1, 1, 3),
]
STEERING = [
    common.MAVLink_set_attitude_target_message(1, 1, 1, 7, Q, 0, 0, 0, 0.5),
    common.MAVLink_set_position_target_local_ned_message(1, 1, 1, 1, 0, *([0.0] * 11)),
    common.MAVLink_set_position_target_global_int_message(1, 1, 1, 6, 0, 0, 0, *([0.0] * 9)),
    common.MAVLink_set_actuator_control_target_message(1, 0, 1, 1, [0.0] * 8),
]
MISLEADING = [  # PX4's estimate or the pilot's switches would follow them
    common.MAVLink_vision_position_estimate_message(1, 5.0, 0, 0, 0, 0, 0),
    common.MAVLink_att_pos_mocap_message(1, Q, 5.0, 0, 0),
    common.MAVLink_set_gps_global_origin_message(1, 0, 0, 0),
    common.MAVLink_distance_sensor_message(0, 20, 1000, 40, 0, 3, 0, 0),
    common.MAVLink_optical_flow_rad_message(0, 0, 50000, 0.1, 0, 0, 0, 0, 0, 255, 0, 1.0),
    common.MAVLink_rc_channels_override_message(1, 1, *([2000] * 8)),
]


COMMANDS = {  # that PX4's estimator follows; those of PX4 alone have no name in the dialect
    "EXTERNAL_POSITION_ESTIMATE": common.MAVLink_command_int_message(1, 1, 0, 43003, 0, 0, 0, 0, 1, 1, 0, 0, 0),
    "EXTERNAL_ATTITUDE_ESTIMATE": common.MAVLink_command_long_message(1, 1, 620, 0, 90, 0, 0, 0, 0, 0, 0),
    "EXTERNAL_WIND_ESTIMATE": common.MAVLink_command_long_message(1, 0, 43004, 0, 5, 0, 0, 0, 0, 0, 0),
}


@pytest.mark.parametrize("message", PASSING, ids=lambda m: m.get_type())
@pytest.mark.parametrize("sender", [QGC, MAVSDK])
def test_messages_that_a_ground_station_needs_pass_unchanged(flying, sender, message):
    data = frame(sender, message)
    frames, texts = send_from_ground(flying, data)
    assert frames == [data] and flying.node.ground.blocked == 0
    assert all(text.startswith("the flight controller was changed by ") for text in texts)


@pytest.mark.parametrize("message", STEERING + MISLEADING, ids=lambda m: m.get_type())
def test_setpoints_of_a_ground_station_are_blocked_and_reported(flying, message):
    frames, texts = send_from_ground(flying, frame(MAVSDK, message))
    assert [f for f in frames if f[5:7] == bytes(MAVSDK)] == []
    assert len(texts) == 1 and message.get_type() in texts[0] and "245/190" in texts[0]
    assert flying.node.ground.blocked == 1
    assert flying.node.conflict.text == ""  # its setpoint was blocked, so our stream continues


@pytest.mark.parametrize("name", COMMANDS)
def test_a_position_or_measurement_in_a_command_is_blocked_and_reported(flying, name):
    """Positions of a ground station were blocked as messages and passed as commands."""
    frames, texts = send_from_ground(flying, frame(QGC, COMMANDS[name]))
    assert [f for f in frames if f[5:7] == bytes(QGC)] == []
    assert len(texts) == 1 and f"{name} from 255/190" in texts[0]
    assert flying.node.ground.blocked == 1 and flying.node.foreign.estimate(flying.now_s) == ""


def test_the_state_of_a_telemetry_radio_does_not_reach_px4_and_is_no_event(flying):
    """PX4 reduced the rates of this port to a twentieth by the full buffer of a radio behind the forward."""
    radio = frame((51, 68), common.MAVLink_radio_status_message(180, 170, 0, 40, 35, 0, 0))
    assert send_from_ground(flying, radio) == ([], []) and flying.node.ground.blocked == 0


def test_a_stream_of_setpoints_from_the_ground_is_reported_every_few_seconds_with_its_count(flying):
    reports = []
    for _ in range(600):
        flying.run(0.02)
        reports += send_from_ground(flying, frame(QGC, STEERING[0]))[1]
    assert 2 <= len(reports) <= 3
    assert "(1 so far)" in reports[0] and flying.node.ground.blocked == 600


@pytest.mark.parametrize(
    ("sender", "text"), [((1, 191), "this companion's own ids"), ((1, 1), "flight controller's ids")]
)
def test_frames_with_reserved_ids_are_blocked(flying, sender, text):
    frames, texts = send_from_ground(flying, frame(sender, PASSING[0]))
    assert not [f for f in frames if f[5:7] == bytes(sender) and f[7] == 0]
    assert text in texts[0]


def test_setup_signing_is_blocked(flying):
    frames, texts = send_from_ground(flying, frame(QGC, common.MAVLink_setup_signing_message(1, 1, [7] * 32, 1)))
    assert "SETUP_SIGNING" in texts[0]
    assert not [f for f in frames if f[7] == 0 and f[8] == 1]


def test_a_flood_is_thinned_out_to_a_part_of_the_capacity(flying):
    data = frame(QGC, common.MAVLink_param_set_message(1, 1, b"MC_ROLL_P", 6.5, 9))
    passed = 0
    for _ in range(100):
        passed += sum(len(f) for f in send_from_ground(flying, data * 50)[0])
        flying.now_s += 0.01
    assert passed <= BURST + BYTES_PER_S * 1.0 + len(data)
    assert flying.node.ground.thinned > 1000


def test_corrupted_bytes_lose_no_good_frame(flying):
    good = frame(QGC, PASSING[1])
    frames, _ = send_from_ground(flying, b"\xfd\xff\x00" + good[:12] + b"\x00" * 7 + good + good)
    assert frames == [good, good]


def test_with_a_key_unsigned_ground_stations_are_not_passed_on(peer):
    signer = Signer(bytes(range(32)), 100.0, EPOCH_S + 1e6)
    peer.node.codec.signer = signer
    mav = common.MAVLink(None, srcSystem=255, srcComponent=190)
    mav.signing.secret_key, mav.signing.timestamp = signer.key, round(1e6 * UNITS_PER_S)
    mav.signing.sign_outgoing = True
    signed = PASSING[1].pack(mav)
    out = list(peer.node.handle(LinkRx(stamp_s=100.0, data=signed, ground=True), 100.0))
    assert [m.data for m in out if type(m) is LinkTx] == [signed]
    out = list(peer.node.handle(LinkRx(stamp_s=100.0, data=frame(QGC, PASSING[1]), ground=True), 100.0))
    assert not [m for m in out if type(m) is LinkTx and m.data[5:7] == bytes(QGC)]
    assert peer.node.ground.unsigned == 1


@pytest.mark.parametrize(
    ("key", "behind_s", "why"),
    [(bytes(range(32)), 61, "signed more than a minute ago: the sender's clock is behind"),
     (bytes(32), 0, "without the key's signature")],
)  # fmt: skip
def test_a_ground_station_whose_clock_is_behind_is_not_called_one_with_another_key(flying, key, behind_s, why):
    flying.node.codec.signer = Signer(bytes(range(32)), flying.now_s, EPOCH_S + 1e6)
    mav = common.MAVLink(None, srcSystem=255, srcComponent=190)
    mav.signing.secret_key, mav.signing.timestamp = key, round((1e6 - behind_s) * UNITS_PER_S)
    mav.signing.sign_outgoing = True
    frames, texts = send_from_ground(flying, PASSING[1].pack(mav))
    assert not [f for f in frames if f[5:7] == bytes(QGC)] and flying.node.ground.unsigned == 1
    assert len(texts) == 1 and f"frame from 255/190 {why}" in texts[0]


# --- the sockets -------------------------------------------------------------------------------------------------


@pytest.fixture
def sockets():
    """A flight controller and a ground station, and a link between them."""
    px4, ground = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    for s in (px4, ground):
        s.bind(("127.0.0.1", 0))
        s.settimeout(2.0)
    link = open_link(
        f"udpout:127.0.0.1:{px4.getsockname()[1]}",
        forward=[f"udpout:127.0.0.1:{ground.getsockname()[1]}"],
        sender=ANY_SENDER,
    )
    yield px4, ground, link
    for s in (px4, ground, link, link.ground):
        s.close()


HEARTBEAT = frame((1, 191), PASSING[0])


def test_the_ground_station_gets_the_flight_controllers_bytes_and_our_texts_and_answers(sockets):
    px4, ground, link = sockets
    link.write(HEARTBEAT)
    data, address = px4.recvfrom(1000)
    assert data == HEARTBEAT and ground.recv(1000) == HEARTBEAT
    setpoint = frame((1, 191), STEERING[0])
    link.write(setpoint)
    text = frame((1, 191), common.MAVLink_statustext_message(6, b"HOLD: arrived"))
    link.write(text)
    data, forward = ground.recvfrom(1000)
    assert data == text  # not the setpoint
    px4.sendto(b"\xfd from px4", address)
    assert link.read(1.0) == b"\xfd from px4"
    assert ground.recv(1000) == b"\xfd from px4"
    ground.sendto(b"to px4", forward)
    time.sleep(0.01)
    assert link.read_ground() == b"to px4" and link.read_ground() == b""


def test_an_unknown_sender_on_the_forward_is_ignored(sockets):
    px4, ground, link = sockets
    link.write(HEARTBEAT)
    _, forward = ground.recvfrom(1000)
    px4.sendto(b"unknown sender", forward)
    time.sleep(0.01)
    assert link.read_ground() == b""


def test_an_absent_or_blocked_ground_station_delays_nothing(sockets):
    px4, ground, link = sockets
    link.write(HEARTBEAT)
    _, address = px4.recvfrom(1000)
    ground.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)  # never read: its queue is full at once
    for gone in (False, True):
        if gone:
            ground.close()
        begun = time.perf_counter()
        for i in range(2000):
            px4.sendto(b"\xfd%4d" % i, address)
            assert link.read() in (b"", b"\xfd%4d" % i)
            assert link.write(HEARTBEAT)
        assert time.perf_counter() - begun < 5.0
    assert link.ground.dropped > 0 and link.trouble == ""


def test_a_serial_burst_is_cut_into_datagrams(sockets):
    _, ground, link = sockets
    link.ground.send(bytes(5000))
    assert sum(len(ground.recv(65536)) for _ in range(4)) == 5000
    assert link.ground.dropped == 0


@pytest.mark.parametrize("url", ["", "udpin:0.0.0.0:14550", "udpout:127.0.0.1", "udpout:127.0.0.1:0", "tcp:127.0.0.1:5",
                                 "udpout::14550", "udpout:no.such.host.invalid:14550"])  # fmt: skip
def test_a_wrong_forward_is_one_line_that_names_it(url):
    with pytest.raises(ConfigError) as error:
        open_link("udpout:127.0.0.1:14999", forward=[url], sender=ANY_SENDER)
    text = (
        "host 'no.such.host.invalid' cannot be resolved"
        if "invalid" in url
        else f"fcu.forward {url!r}: not of the form"
    )
    assert text in str(error.value) and url in str(error.value) and "\n" not in str(error.value)
