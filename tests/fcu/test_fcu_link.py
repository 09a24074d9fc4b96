"""The link: a user's mistake stops the start with one line, a failure in flight never raises."""

import contextlib
import errno
import os
import pty
import select
import socket
import subprocess
import sys
import tty

import pytest
from pymavlink.dialects.v20 import common

from companion.core.config import ConfigError
from companion.fcu.link import holders
from companion.fcu.link.device import LinkDevice
from companion.fcu.link.link import REFUSED_S, RETRY_S, check_url, open_link
from companion.fcu.link.sender import ANY_SENDER, Sender
from companion.fcu.link.transports import PEER_SILENCE_S, SERIAL_SILENCE_S

KEY = bytes(range(32))


def heartbeat(system=1, component=1, key=None):
    mav = common.MAVLink(None, srcSystem=system, srcComponent=component)
    if key is not None:
        mav.signing.secret_key, mav.signing.sign_outgoing = key, True
    return bytes(common.MAVLink_heartbeat_message(13, 12, 129, 3 << 16, 4, 3).pack(mav))


FRAME = heartbeat()


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def free_port(kind=socket.SOCK_DGRAM):
    with socket.socket(socket.AF_INET, kind) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", 0))
    s.settimeout(2.0)
    return s


@pytest.mark.parametrize(
    "url",
    ["", "serial", "serial:/dev/ttyAMA0", "serial:/dev/ttyAMA0:fast", "udp:0.0.0.0:14540", "udpin::14540", "tcp:host:",
     "udpin:127.0.0.1:14540?peer=", "udpin:127.0.0.1:14540?peer=h:x", "udpin:127.0.0.1:14540?peer=h:0", "udpin:127.0.0.1:0", "udpin:127.0.0.1:70000", "tcp:no.such.host.invalid:5760", "serial::57600", "udpout:a:-1", "serial:/dev/ttyAMA0:12", "serial:/dev/ttyAMA0:0", "serial:/dev/ttyAMA0:99999999"],
)  # fmt: skip
def test_a_wrong_url_is_one_line_that_names_it(url):
    with pytest.raises(ConfigError) as error:
        open_link(url, sender=ANY_SENDER)
    assert url in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("url", ["serial:/dev/ttyNOT0:12", "serial:/dev/ttyNOT0:9216000000"])
def test_an_impossible_baud_rate_is_found_without_the_device(url):
    with pytest.raises(ConfigError, match="baud is not in 9600 to 12000000"):
        check_url(url)


def test_an_absent_serial_port_is_named():
    with pytest.raises(ConfigError, match="no serial device /dev/ttyNOT0"):
        open_link("serial:/dev/ttyNOT0:921600", sender=ANY_SENDER)


def test_a_file_that_is_not_a_serial_port_is_named(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigError, match=f"serial device {file} cannot be opened"):
        open_link(f"serial:{file}:57600", sender=ANY_SENDER)


def test_a_busy_udp_port_is_named():
    with udp() as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"UDP port {port} on 127.0.0.1 is in use by process {os.getpid()} \("):
            open_link(f"udpin:127.0.0.1:{port}", sender=ANY_SENDER)


def test_a_busy_port_whose_process_linux_does_not_show_is_named(monkeypatch, serial_pair):
    monkeypatch.setattr(holders, "_processes", lambda: iter([1, 2**22 + 1]))
    monkeypatch.setattr(holders.psutil, "net_connections", lambda kind: [])
    with udp() as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"UDP port {port} on 127.0.0.1 is in use by another program"):
            open_link(f"udpin:127.0.0.1:{port}", sender=ANY_SENDER)
    device, plug = serial_pair
    plug()
    with locked(device), pytest.raises(ConfigError) as refused:
        open_link(f"serial:{device}:57600", sender=ANY_SENDER)
    assert str(refused.value).endswith(f"serial device {device} is in use by another program; end it first")


@contextlib.contextmanager
def locked(device):
    """Another process has the device open, and holds its lock as pyserial does."""
    text = "import fcntl, sys; f = open(sys.argv[1], 'rb+', 0); fcntl.flock(f, fcntl.LOCK_EX); print('locked', flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", text, str(device)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"locked\n"
        yield other.pid
        other.stdin.close()


def test_a_busy_serial_port_is_named_with_the_process_that_holds_it(serial_pair):
    device, plug = serial_pair
    plug()
    with locked(device) as pid, pytest.raises(ConfigError) as refused:
        open_link(f"serial:{device}:57600", sender=ANY_SENDER)
    text = str(refused.value)
    assert f"serial device {device} is in use by process {pid} (" in text and "import fcntl" in text
    assert text.endswith("; end it first") and "\n" not in text


def test_udpin_answers_its_first_peer_and_counts_others(clock):
    port = free_port()
    link = open_link(f"udpin:127.0.0.1:{port}", clock, sender=ANY_SENDER)
    with udp() as px4, udp() as other:
        link.write(FRAME)
        assert link.dropped == 1  # no peer yet
        px4.sendto(FRAME, ("127.0.0.1", port))
        assert link.read(1.0) == FRAME
        other.sendto(b"\xfd other", ("127.0.0.1", port))
        px4.sendto(FRAME + b"2", ("127.0.0.1", port))
        assert link.read(1.0) + link.read() == FRAME + b"2"
        assert link.foreign == 1
        link.write(b"answer")
        assert px4.recv(100) == b"answer"
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(100)
    link.close()


def wrong_checksum():
    return FRAME[:-1] + bytes((FRAME[-1] ^ 1,))


OTHERS = {
    "one byte": b"\xfd",
    "not MAVLink": b"GET / HTTP/1.0",
    "a header": FRAME[:10],
    "a wrong checksum": wrong_checksum(),
    "another flight controller": heartbeat(system=3),
    "a ground station": heartbeat(255, 190),
    "a component of the aircraft": heartbeat(1, 154),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_sender_neither_takes_the_peers_place_nor_gets_our_frames(clock, name):
    """One byte 0xFD every 4 s kept the flight controller out for 100 s, and the other got our frames."""
    port = free_port()
    link = open_link(f"udpin:127.0.0.1:{port}", clock, sender=Sender(1, 1))
    with udp() as other, udp() as px4:
        for _ in range(3):
            other.sendto(OTHERS[name], ("127.0.0.1", port))
            link.read(1.0)
            clock.now_s += 4.0
        assert link.transport.peer is None and not link.write(b"ours")
        px4.sendto(FRAME, ("127.0.0.1", port))
        assert link.read(1.0) == FRAME
        assert link.transport.peer == px4.getsockname()
        other.sendto(OTHERS[name], ("127.0.0.1", port))
        assert link.read(1.0) == b"" and link.transport.peer == px4.getsockname()
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(100)
    link.close()


def test_mavlink_of_another_id_is_read_without_a_peer_and_never_answered(clock):
    """So that a wrong fcu.autopilot_system_id is reported."""
    port = free_port()
    link = open_link(f"udpin:127.0.0.1:{port}", clock, sender=Sender(1, 1))
    with udp() as other:
        other.sendto(heartbeat(system=3), ("127.0.0.1", port))
        assert link.read(1.0) == heartbeat(system=3)
        assert link.transport.peer is None and not link.write(b"ours")
    link.close()


def test_with_a_key_only_signed_frames_make_a_peer(clock):
    port = free_port()
    link = open_link(f"udpin:127.0.0.1:{port}", clock, sender=Sender(1, 1, KEY))
    with udp() as forger, udp() as px4:
        for frame in (FRAME, heartbeat(key=bytes(32))):
            forger.sendto(frame, ("127.0.0.1", port))
            link.read(1.0)
        assert link.transport.peer is None
        px4.sendto(heartbeat(key=KEY), ("127.0.0.1", port))
        link.read(1.0)
        assert link.transport.peer == px4.getsockname()
    link.close()


def test_udpin_keeps_its_peer_while_the_flight_controller_is_heard_from_there(clock):
    port = free_port()
    link = open_link(f"udpin:127.0.0.1:{port}", clock, sender=Sender(1, 1))
    with udp() as before, udp() as after:
        for _ in range(10):
            before.sendto(FRAME, ("127.0.0.1", port))
            assert link.read(1.0) == FRAME
            after.sendto(FRAME, ("127.0.0.1", port))
            assert link.read(1.0) == b""
            clock.now_s += 0.5 * PEER_SILENCE_S
        for _ in range(10):  # bytes from the peer's place that are not the flight controller's do not keep it
            clock.now_s += 0.5 * PEER_SILENCE_S
            before.sendto(b"\xfd", ("127.0.0.1", port))
            link.read(1.0)
        after.sendto(FRAME, ("127.0.0.1", port))
        assert link.read(1.0) == FRAME
        assert link.transport.peer == after.getsockname()
    link.close()


@pytest.mark.parametrize("with_port", [True, False])
def test_a_fixed_peer_is_the_only_one(clock, with_port):
    port = free_port()
    with udp() as px4, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.2", 0))
        peer = f"127.0.0.1:{px4.getsockname()[1]}" if with_port else "127.0.0.1"
        link = open_link(f"udpin:0.0.0.0:{port}?peer={peer}", clock, sender=Sender(1, 1))
        other.sendto(FRAME, ("127.0.0.1", port))
        assert link.read(0.2) == b""
        px4.sendto(FRAME, ("127.0.0.1", port))
        assert link.read(1.0) == FRAME
        assert link.write(b"answer") and px4.recv(100) == b"answer"
        link.close()


def test_udpin_follows_a_restarted_peer_only_after_silence(clock):
    port = free_port()
    link = open_link(f"udpin:127.0.0.1:{port}", clock, sender=ANY_SENDER)
    with udp() as before, udp() as after:
        before.sendto(FRAME, ("127.0.0.1", port))
        assert link.read(1.0) == FRAME
        clock.now_s += PEER_SILENCE_S - 0.1
        after.sendto(FRAME, ("127.0.0.1", port))
        assert link.read(1.0) == b""
        clock.now_s += 0.2
        after.sendto(FRAME, ("127.0.0.1", port))
        assert link.read(1.0) == FRAME
        assert link.transport.peer == after.getsockname()
    link.close()


def test_udpout_sends_to_its_peer_and_survives_its_absence(clock):
    port = free_port()
    link = open_link(f"udpout:127.0.0.1:{port}", clock, sender=ANY_SENDER)
    for _ in range(5):
        link.write(FRAME)
        assert link.read() == b""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", port))
        peer.settimeout(2.0)
        link.write(FRAME)
        link.write(FRAME)
        data, sender = peer.recvfrom(100)
        assert data == FRAME
        peer.sendto(b"back", sender)
        assert link.read(1.0) == b"back"
    link.close()


def test_tcp_waits_for_its_peer_and_comes_back_after_a_loss(clock):
    port = free_port(socket.SOCK_STREAM)
    link = open_link(f"tcp:127.0.0.1:{port}", clock, sender=ANY_SENDER)
    for _ in range(100):
        link.write(FRAME)
        link.read(0.01)
        if link.trouble:
            break
    assert "connection refused" in link.trouble and f"tcp:127.0.0.1:{port}" in link.trouble
    with socket.create_server(("127.0.0.1", port)) as server:
        server.settimeout(2.0)
        for attempt in range(2):
            assert link.read() == b""
            clock.now_s += RETRY_S + 0.01
            link.read()
            peer, _ = server.accept()
            select.select([], [link.fileno()], [], 1.0)
            link.write(FRAME)
            peer.settimeout(2.0)
            assert peer.recv(100) == FRAME
            peer.sendall(b"back")
            assert link.read(1.0) == b"back"
            assert link.trouble == ""
            peer.close()
            link.read(1.0)
            assert "trying again" in link.trouble, attempt
            assert link.fileno() == -1
    link.close()


def test_a_tcp_connection_that_falls_silent_is_made_again(clock):
    """The other end is gone without a word, a cable was pulled: nothing else would ever end the connection."""
    port = free_port(socket.SOCK_STREAM)
    with socket.create_server(("127.0.0.1", port)) as server:
        server.settimeout(2.0)
        link = open_link(f"tcp:127.0.0.1:{port}", clock, sender=ANY_SENDER)
        first, _ = server.accept()
        first.sendall(b"hello")
        assert link.read(1.0) == b"hello"
        clock.now_s += PEER_SILENCE_S - 0.1
        link.write(FRAME)
        assert link.trouble == "" and link.losses == 0
        clock.now_s += 0.2
        link.write(FRAME)
        assert "timed out" in link.trouble and link.losses == 1
        clock.now_s += RETRY_S + 0.01
        link.read()
        second, _ = server.accept()
        second.sendall(b"again")
        assert link.read(1.0) == b"again" and link.trouble == ""
        link.close()
        first.close()
        second.close()


@pytest.fixture
def serial_pair(tmp_path):
    """A pseudo terminal behind a name that can disappear, as a USB adapter does."""
    device = tmp_path / "ttyFCU"

    def plug():
        master, slave = pty.openpty()
        tty.setraw(slave)
        device.unlink(missing_ok=True)
        device.symlink_to(os.ttyname(slave))
        os.close(slave)
        return master

    return device, plug


def read_exactly(master, size):
    """A terminal passes bytes on with a delay, and on a busy machine in pieces."""
    data = b""
    while len(data) < size and select.select([master], [], [], 5.0)[0]:
        data += os.read(master, size - len(data))
    return data + (os.read(master, 100) if select.select([master], [], [], 0.0)[0] else b"")


def test_serial_reads_and_writes(serial_pair, clock):
    device, plug = serial_pair
    master = plug()
    link = open_link(f"serial:{device}:57600", clock, sender=ANY_SENDER)
    assert link.read() == b""
    os.write(master, FRAME)
    assert link.read(1.0) == FRAME
    link.write(b"answer")
    assert read_exactly(master, 6) == b"answer"
    link.close()
    os.close(master)


def test_a_serial_port_unplugged_in_flight_is_reported_and_reopened(serial_pair, clock):
    device, plug = serial_pair
    master = plug()
    link = open_link(f"serial:{device}:57600", clock, sender=ANY_SENDER)
    os.close(master)
    device.unlink()
    assert link.read() == b""
    assert "unplugged" in link.trouble or "input/output" in link.trouble
    assert link.fileno() == -1 and link.losses == 1
    for _ in range(3):
        clock.now_s += RETRY_S + 0.01
        assert link.read() == b""
        link.write(FRAME)
    assert link.dropped == 3 and link.losses == 1
    master = plug()
    assert link.fileno() == -1  # not before the second is over
    clock.now_s += RETRY_S + 0.01
    link.read()
    assert link.trouble == ""
    os.write(master, FRAME)
    assert link.read(1.0) == FRAME
    link.close()
    os.close(master)


@pytest.fixture
def refuse(monkeypatch):
    """Refuses all serial ports as the device policy of a unit does; again: opens them."""
    from companion.fcu.link.transports import serial

    opened, refused = serial.Serial, []

    def open_port(*words, **options):
        if refused:
            raise serial.SerialException(refused[0], f"could not open port: [Errno {refused[0]}]")
        return opened(*words, **options)

    monkeypatch.setattr(serial, "Serial", open_port)
    return lambda number=None: refused.__setitem__(slice(None), [] if number is None else [number])


def test_a_process_to_which_its_unit_closes_the_device_ends_for_a_new_start(serial_pair, clock, refuse):
    """The name led to a port whose driver was loaded after the start: it was tried every second until the landing."""
    device, plug = serial_pair
    master = plug()
    link = open_link(f"serial:{device}:57600", clock, sender=ANY_SENDER)
    process = LinkDevice(link)
    os.close(master)
    master = plug()
    refuse(errno.EPERM)
    while not link.trouble:
        assert list(process.read()) == []
    for _ in range(int(REFUSED_S / RETRY_S)):
        clock.now_s += RETRY_S + 0.01
        assert list(process.read()) == []
        assert "operation not permitted; trying again" in link.trouble
    clock.now_s += RETRY_S + 0.01
    with pytest.raises(SystemExit) as ended:
        list(process.read())
    assert f"link serial:{device}:57600: operation not permitted" in ended.value.code and "\n" not in ended.value.code
    refuse()
    clock.now_s += RETRY_S + 0.01
    assert link.read() == b"" and not link.refused and list(process.read()) == []  # another process would have it now
    link.close()
    os.close(master)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EBUSY, errno.EIO])
def test_another_failure_to_open_a_device_ends_no_process(serial_pair, clock, refuse, number):
    device, plug = serial_pair
    master = plug()
    link = open_link(f"serial:{device}:57600", clock, sender=ANY_SENDER)
    os.close(master)
    master = plug()
    link.read()
    for refusal in (errno.EPERM, errno.EPERM, *[number] * 6, errno.EPERM, errno.EPERM):
        refuse(refusal)
        clock.now_s += RETRY_S + 0.01
        assert list(LinkDevice(link).read()) == [] and link.trouble
    link.close()
    os.close(master)


def test_a_device_that_is_closed_to_the_unit_is_named_at_the_start(serial_pair, refuse):
    device, plug = serial_pair
    master = plug()
    refuse(errno.EPERM)
    with pytest.raises(ConfigError, match=r"cannot be opened: operation not permitted \(DeviceAllow= of the unit\?\)"):
        open_link(f"serial:{device}:57600", sender=ANY_SENDER)
    os.close(master)


def test_a_serial_name_that_led_elsewhere_for_a_while_leads_back(serial_pair, clock):
    """A USB device comes back after udev has pointed its name to a UART with the same rule."""
    device, plug = serial_pair
    first = plug()
    link = open_link(f"serial:{device}:57600", clock, sender=ANY_SENDER)
    os.close(first)
    other = plug()
    assert link.read() == b"" and link.losses == 1
    clock.now_s += RETRY_S + 0.01
    assert link.read() == b"" and link.trouble == "", "the other port is open, and silent"
    back = plug()
    os.write(back, FRAME)
    clock.now_s += SERIAL_SILENCE_S + 0.01
    assert link.read() == b""
    assert "no such device" in link.trouble and link.losses == 2
    clock.now_s += RETRY_S + 0.01
    link.read()
    os.write(back, FRAME)
    assert FRAME in link.read(1.0) and link.trouble == ""
    link.close()
    os.close(other)
    os.close(back)


@pytest.mark.parametrize("name", ["leads to another adapter", "is gone"])
def test_a_serial_port_that_delivers_is_not_closed_for_its_name(serial_pair, clock, name):
    """udev gave the name to an adapter that appeared in flight: the link was lost, and setpoints went to that adapter."""
    device, plug = serial_pair
    first = plug()
    link = open_link(f"serial:{device}:57600", clock, sender=ANY_SENDER)
    if name == "is gone":
        device.unlink()
    else:
        other = plug()
    for _ in range(20):
        clock.now_s += SERIAL_SILENCE_S / 4
        assert link.read() == b"" and link.trouble == ""
        clock.now_s += SERIAL_SILENCE_S / 4
        os.write(first, FRAME)
        assert link.read(1.0) == FRAME
        assert link.write(b"setpoint") and read_exactly(first, 8) == b"setpoint"
    assert link.losses == 0
    clock.now_s += SERIAL_SILENCE_S
    assert link.read() == b"" and link.losses == 1, "silent: the name counts"
    link.close()
    os.close(first)
    if name != "is gone":
        os.close(other)


def test_a_radio_that_delivers_is_no_flight_controller(serial_pair, clock):
    """The port that had the name while the flight controller restarted sends bytes for ever, and frames of another system."""
    device, plug = serial_pair
    radio = plug()
    link = open_link(f"serial:{device}:57600", clock, sender=Sender(1, 1))
    own, foreign = heartbeat(1), heartbeat(51)
    for sent in (foreign, b"$GNGGA,1*00", own[:10]):
        os.write(radio, sent)
        assert link.read(1.0) == sent, "while it has the name"
    controller = plug()
    for _ in range(3):
        clock.now_s += SERIAL_SILENCE_S / 4
        os.write(radio, foreign)
        assert link.read(1.0) == foreign and link.trouble == ""
    for part in (own[:12], own[12:]):  # in pieces
        clock.now_s += SERIAL_SILENCE_S / 10
        os.write(radio, part)
        assert link.read(1.0) == part
    for _ in range(3):
        clock.now_s += SERIAL_SILENCE_S / 4
        os.write(radio, foreign)
        assert link.read(1.0) == foreign and link.trouble == "", "the flight controller was heard there"
    clock.now_s += SERIAL_SILENCE_S / 4 + 0.01
    os.write(radio, foreign)
    assert link.read(1.0) == b"" and link.losses == 1
    clock.now_s += RETRY_S + 0.01
    link.read()
    os.write(controller, own)
    assert link.read(1.0) == own
    link.close()
    os.close(radio)
    os.close(controller)


def test_a_frame_that_the_driver_took_in_part_is_finished_before_any_other(serial_pair, clock, monkeypatch):
    """Otherwise the flight controller gets two halves of two frames; the newer frame is dropped whole instead."""
    device, plug = serial_pair
    master = plug()
    link = open_link(f"serial:{device}:57600", clock, sender=ANY_SENDER)
    write, sizes = os.write, [4, 3, 100, 100]
    monkeypatch.setattr("companion.fcu.link.transports.os.write", lambda fd, data: write(fd, data[: sizes.pop(0)]))
    link.write(b"AAAAAAAAAA")  # four bytes go
    link.write(b"BBBBBBBBBB")  # three more of the first
    link.write(b"CCCCCCCCCC")  # its rest, then this one
    assert read_exactly(master, 20) == b"AAAAAAAAAACCCCCCCCCC"
    assert link.dropped == 1
    link.close()
    os.close(master)


def test_a_stalled_serial_line_drops_whole_frames_and_never_blocks(serial_pair, clock):
    """A full driver takes a part of a frame: its rest goes first, newer frames are dropped whole."""
    device, plug = serial_pair
    master = plug()
    link = open_link(f"serial:{device}:57600", clock, sender=ANY_SENDER)
    frames = [bytes((0xFD,)) + i.to_bytes(2, "big") + bytes(97) for i in range(2000)]
    for frame in frames:
        link.write(frame)
    assert 0 < link.dropped < 2000
    received = b""
    while select.select([master], [], [], 0.5)[0]:
        received += os.read(master, 65536)
        link.write(b"")  # pushes out the rest of a frame taken in part
    assert len(received) % 100 == 0
    numbers = [int.from_bytes(received[i + 1 : i + 3], "big") for i in range(0, len(received), 100)]
    assert numbers == sorted(set(numbers))
    assert all(received[i] == 0xFD for i in range(0, len(received), 100))
    link.close()
    os.close(master)
