"""Who has the sticks, when they are sent and when they stop; with the PX4 emulator, in simulated time."""

import itertools
import json
import math

import pytest
from pymavlink.dialects.v20 import common

from companion.core.enums import FcuMode
from companion.remote.aircraft import STREAMS
from companion.remote.flight_modes import RANGE, SWITCH_S
from companion.remote.gamepad import GONE
from companion.remote.protocol import PROTOCOL
from companion.remote.station import COMMAND_AGE_S, DEAD_MAN_S, KNOWN_MAX, UNKNOWN_MAX
from companion.remote.sticks import RELEASED, Sticks
from sitl.autopilot.manual_selector import InMode
from sitl.autopilot.sticks import stick
from tests.remote.remote_flight import TOKEN, FakePage, RemoteFlight


@pytest.fixture
def remote() -> RemoteFlight:
    return RemoteFlight()


@pytest.fixture
def standing() -> RemoteFlight:
    """On the ground, not long enough for a position."""
    return RemoteFlight(start_s=0.8)


def test_a_pilot_arms_takes_off_and_flies_by_the_page(remote):
    page = remote.flying(height_m=3.0)
    assert remote.autopilot.mode == FcuMode.POSCTL
    page.move(ahead=0.5)
    remote.run(2.0)
    assert math.hypot(*remote.plant.v_W[:2]) > 1.0
    state = page.last("state")
    assert state["you"] and state["armed"] and not state["landed"] and state["mode"] == "POSCTL"
    assert state["height_m"] == pytest.approx(float(remote.plant.p_W[2]), abs=0.6)
    assert 25 <= state["rate_hz"] <= 50


def test_arming_needs_the_sticks_and_a_yes_in_time(remote):
    page = remote.page()
    page.send(remote.now_s, type="arm", arm=True)
    remote.run(0.1)
    assert page.answers("arm") == ["take the sticks first"]
    page.send(remote.now_s, type="take")
    remote.run(0.3)
    page.send(remote.now_s, type="arm", arm=True)
    remote.run(0.1)
    number = page.last("question")["question"]
    assert not remote.autopilot.armed
    remote.run(5.1)
    page.send(remote.now_s, type="confirm", question=number)
    remote.run(0.5)
    assert not remote.autopilot.armed and "no longer open" in page.answers("arm")[-1]


@pytest.mark.parametrize("number", [0, 2, -1])
def test_a_yes_to_another_question_does_not_arm(standing, number):
    remote = standing
    page = remote.pilot()
    page.send(remote.now_s, type="arm", arm=True)
    page.send(remote.now_s, type="confirm", question=number)
    remote.run(0.5)
    assert not remote.autopilot.armed


def ask(remote: RemoteFlight, page, arm: bool) -> int:
    page.send(remote.now_s, type="arm", arm=arm)
    remote.run(0.06)
    return page.last("question")["question"]


def test_a_yes_after_another_page_took_the_sticks_does_not_disarm(remote):
    first = remote.flying(height_m=2.0)
    other, first.samples = remote.page(), False
    other.samples = False
    remote.run(0.5)
    number = ask(remote, other, arm=False)
    first.samples = True
    first.send(remote.now_s, type="take")
    remote.run(0.2)
    assert "changed hands" in other.answers("question")[-1]
    other.send(remote.now_s, type="confirm", question=number)
    remote.run(0.5)
    assert remote.autopilot.armed and (common.MAV_CMD_COMPONENT_ARM_DISARM, 0.0) not in remote.commands
    assert "no longer open" in other.answers("arm")[-1]


def test_a_yes_needs_the_right_and_the_state_of_its_question(remote):
    page = remote.pilot()
    remote.choose(page, FcuMode.POSCTL)
    number = ask(remote, page, arm=True)
    assert remote.autopilot.commander.arm(remote.now_s, "by someone else, meanwhile")
    remote.run(1.5)
    assert page.last("state")["armed"]
    count = len(remote.commands)
    page.send(remote.now_s, type="confirm", question=number)
    remote.run(0.1)
    assert "state has changed" in page.answers("arm")[-1]
    assert common.MAV_CMD_COMPONENT_ARM_DISARM not in dict(remote.commands[count:])


def test_no_other_page_closes_the_pilots_question(remote):
    page, other = remote.pilot(), remote.page()
    remote.choose(page, FcuMode.POSCTL)
    number = ask(remote, page, arm=True)
    for guess in (number, number + 1, 999):
        other.send(remote.now_s, type="confirm", question=guess)
    other.send(remote.now_s, type="arm", arm=False)
    remote.close(other)
    page.send(remote.now_s, type="confirm", question=number)
    remote.run(0.5)
    assert remote.autopilot.armed


def test_questions_of_two_pages_stand_side_by_side(remote):
    page, other = remote.flying(height_m=2.0), remote.page()
    other.samples = page.samples = False
    remote.run(0.5)
    number = ask(remote, page, arm=False)
    ask(remote, other, arm=False)
    page.send(remote.now_s, type="confirm", question=number)
    remote.run(0.1)
    assert (common.MAV_CMD_COMPONENT_ARM_DISARM, 0.0) in remote.commands


def test_a_second_pilot_is_refused_and_the_first_flies_on(remote):
    first = remote.flying(height_m=2.0)
    second = remote.page()
    second.move(ahead=1.0)
    for message in ({"type": "take"}, {"type": "mode", "mode": "AUTO_LAND"}, {"type": "arm", "arm": False}):
        second.send(remote.now_s, **message)
    remote.run(1.0)
    assert "another page has the sticks (10.0.0.1:4000" in second.answers("take")[-1]
    assert "another page has the sticks" in second.answers("mode")[-1]
    assert "another page has the sticks" in second.answers("arm")[-1]
    assert remote.autopilot.mode == FcuMode.POSCTL and remote.autopilot.armed
    assert first.last("state")["you"] and not second.last("state")["you"]
    assert all(m.x == 0 for _, m in remote.sent[-20:])
    first.send(remote.now_s, type="release")
    second.move()
    second.send(remote.now_s, type="take")
    remote.run(0.3)
    assert second.last("state")["you"]


@pytest.mark.parametrize("how", ["samples end", "page is closed", "page gives them back", "samples are late"])
def test_the_dead_man_stops_the_sticks_and_px4s_rules_act(remote, how):
    page = remote.flying(height_m=2.0)
    page.move(ahead=0.3)
    remote.run(0.5)
    at_s = remote.now_s
    if how == "page is closed":
        remote.close(page)
    elif how == "page gives them back":
        page.send(at_s, type="release", reason="the page lost the focus")
    elif how == "samples are late":
        old = page.last("state")["s"]
        page.step = lambda now_s: page.send(now_s, type="sticks", **page.sticks, seen_s=old)
    else:
        page.samples = False
    remote.run(1.2)
    last_s = remote.sent[-1][0]
    late = how in ("samples end", "samples are late")
    assert last_s - at_s <= (2 * DEAD_MAN_S + 0.05 if how == "samples are late" else DEAD_MAN_S if late else 0.001)
    assert remote.autopilot.mode == FcuMode.AUTO_LOITER, "Hold for COM_FAIL_ACT_T"
    assert any("stopped" in line for line in remote.log)
    remote.run(5.0)
    assert remote.autopilot.mode == FcuMode.AUTO_RTL


def test_the_sticks_do_not_come_back_by_themselves(remote):
    page = remote.flying(height_m=2.0)
    page.samples = False
    remote.run(0.5)
    count = len(remote.sent)
    page.samples = True
    remote.run(1.0)
    assert len(remote.sent) == count and not page.last("state")["you"]
    assert "no sample of the sticks" in page.last("state")["stopped"]
    page.send(remote.now_s, type="take")
    remote.run(0.3)
    assert len(remote.sent) > count


def test_sticks_are_taken_centred(standing):
    remote = standing
    page = remote.page()
    page.move(ahead=0.4)
    page.send(remote.now_s, type="take")
    remote.run(0.3)
    assert not remote.sent and "centre the sticks" in page.answers("stopped")[-1]


@pytest.mark.parametrize("every", [1, 2, 4, 8])
def test_sticks_leave_at_25_to_50_hz_whatever_the_page_does(standing, every):
    remote = standing
    page = remote.pilot()
    plain, ticks = page.step, itertools.count()

    def step(now_s: float) -> None:
        for _ in range(3 if every == 1 else 1):  # a page that is too fast, or slow
            if next(ticks) % every == 0:
                plain(now_s)

    page.step = step
    remote.run(0.5)
    first_s = remote.now_s
    remote.run(2.0)
    rate_hz = sum(t > first_s for t, _ in remote.sent) / 2.0
    assert 24.5 <= rate_hz <= 50.5


BAD = {
    "NaN": '{"type":"sticks","ahead":NaN,"right":0,"up":0,"turn":0,"seen_s":SEEN}',
    "null": '{"type":"sticks","ahead":null,"right":0,"up":0,"turn":0,"seen_s":SEEN}',
    "infinite": '{"type":"sticks","ahead":1e999,"right":0,"up":0,"turn":0,"seen_s":SEEN}',
    "beyond 1": '{"type":"sticks","ahead":1.01,"right":0,"up":0,"turn":0,"seen_s":SEEN}',
    "far below -1": '{"type":"sticks","ahead":0,"right":0,"up":-32768,"turn":0,"seen_s":SEEN}',
    "text": '{"type":"sticks","ahead":"1","right":0,"up":0,"turn":0,"seen_s":SEEN}',
    "missing": '{"type":"sticks","ahead":1,"right":0,"up":0,"seen_s":SEEN}',
    "another field": '{"type":"sticks","ahead":1,"right":0,"up":0,"turn":0,"seen_s":SEEN,"z":1}',
    "no json": "ahead!",
    "binary": b"\x00\xff\xfe",
    "long": '{"type":"take"' + " " * 5000 + "}",
    "unknown": '{"type":"takeoff"}',
    "offboard": '{"type":"mode","mode":"OFFBOARD"}',
}


def test_a_message_that_is_not_valid_is_answered_and_moves_nothing(standing):
    page = standing.pilot()
    for name, text in BAD.items():
        page.inbox = [page.last("state")]
        for _ in range(20):
            bad = text if isinstance(text, bytes) else text.replace("SEEN", str(page.last("state")["s"]))
            standing.station.receive(page.number, bad, standing.now_s)
            standing.run(0.06)
        assert "not used" in page.answers("message")[-1], name
        assert len(page.answers("message")) <= 2, "answers are not a flood"
        assert page.last("state")["you"], "its good samples go on"
    assert all((m.x, m.y, m.z, m.r) == (0, 0, 500, 0) for _, m in standing.sent)


def test_a_sample_from_the_future_or_without_a_state_does_not_count(standing):
    remote = standing
    page = remote.pilot()
    page.step = lambda now_s: page.send(now_s, type="sticks", **page.sticks, seen_s=now_s + 10.0)
    remote.run(0.5)
    assert not page.last("state")["you"]


@pytest.mark.parametrize("protocol", [0, 1, 99])
def test_a_page_of_another_version_is_refused(standing, protocol):
    remote = standing
    page = remote.page(protocol=protocol)
    page.send(remote.now_s, type="take")
    remote.run(0.3)
    assert "reload the page" in page.closed and not remote.sent
    assert page.last("refused")["final"]


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN[:-1], "ключ"])
def test_a_wrong_token_is_refused(standing, token):
    remote = standing
    page = remote.page(token=token)
    page.send(remote.now_s, type="take")
    remote.run(1.2)
    assert "wrong token" in page.closed and not page.last("state") and not remote.sent
    assert page.last("refused")["final"]


@pytest.mark.parametrize("hello", [{"token": "wrong"}, {"protocol": PROTOCOL - 1}, {}])
def test_a_second_hello_is_not_used_and_the_sticks_go_on(remote, hello):
    """The page lost its place and kept the sticks: no page got a state any more."""
    page = remote.flying(height_m=2.0)
    other = remote.page()
    count = len(remote.sent)
    page.send(remote.now_s, **{"type": "hello", "protocol": PROTOCOL, "token": TOKEN, **hello})
    remote.run(1.5)
    assert "hello is the first message only" in page.answers("message")[-1]
    assert page.last("state")["you"] and not page.closed and len(remote.sent) - count >= 1.5 * 25
    assert other.last("state")["s"] == pytest.approx(remote.now_s, abs=0.1)
    remote.close(page)
    remote.run(0.2)
    assert other.last("state")["stopped"] == "the page was closed" and not other.last("state")["owner"]


def test_ten_wrong_tokens_a_second_do_not_disturb_the_pilot(remote):
    page = remote.flying(height_m=2.0)
    page.move(ahead=0.2)
    begin_s = remote.now_s
    for _ in range(50):
        remote.page(token="guess")
    times = [t for t, _ in remote.sent if t > begin_s]
    assert max(b - a for a, b in itertools.pairwise(times)) <= 0.045
    assert page.last("state")["you"]
    remote.run(1.2)
    assert all(p.closed for number, p in remote.pages.items() if number > 1)
    assert len(remote.log) < 20
    again = remote.page()
    assert again.last("state"), "the right token still opens"


def connect(remote: RemoteFlight, number: int, host: str = "10.0.0.9") -> FakePage:
    """A connection that shows no token."""
    page = remote.pages[number] = FakePage.__new__(FakePage)
    page.__dict__.update(station=remote.station, number=number, inbox=[], closed="", samples=False)
    remote.station.open(number, f"{host}:{number}", remote.now_s)
    return page


def test_connections_without_a_token_give_way_to_newer_ones_and_are_closed(standing):
    remote = standing
    page = remote.pilot()
    silent = [connect(remote, number) for number in range(100, 160)]
    remote.run(0.1)
    assert [bool(p.closed) for p in silent] == [True] * (60 - UNKNOWN_MAX) + [False] * UNKNOWN_MAX, "the oldest end"
    assert "too many connections" in silent[0].closed and not silent[0].last("refused")["final"]
    remote.run(5.2)
    assert all(p.closed for p in silent)
    assert page.last("state")["you"]


def test_a_pilot_always_comes_in_beside_connections_that_are_held_open(standing):
    """Held-open connections without a token let 1 of 20 reconnecting pilots in."""
    remote = standing
    numbers = itertools.count(100)
    for _ in range(20):
        for _ in range(UNKNOWN_MAX + 5):
            connect(remote, next(numbers))
        page = remote.page()
        assert page.last("state") and not page.closed
        remote.close(page)


def test_a_computer_that_opens_many_connections_ends_its_own(standing):
    remote = standing
    pilot = connect(remote, 50, "10.0.0.1")  # the token is still on its way
    for number in range(100, 400):
        connect(remote, number)
    pilot.send(remote.now_s, type="hello", protocol=PROTOCOL, token=TOKEN)
    remote.run(0.1)
    assert pilot.last("state") and not pilot.closed


def test_a_computer_with_many_ipv6_addresses_ends_its_own(standing):
    remote = standing
    pilot = connect(remote, 50, "10.0.0.1")  # the token is still on its way
    for number in range(100, 400):
        connect(remote, number, f"2001:db8::{number}")
    pilot.send(remote.now_s, type="hello", protocol=PROTOCOL, token=TOKEN)
    remote.run(0.1)
    assert pilot.last("state") and not pilot.closed


def test_the_number_of_pages_is_limited_and_one_more_may_try_later(standing):
    remote = standing
    pages = [remote.page() for _ in range(KNOWN_MAX)]
    late = remote.page()
    assert "pages are open" in late.closed and not late.last("refused")["final"]
    remote.close(pages[0])
    assert remote.page().last("state")


COMMANDS = {
    "take": {"type": "take"},
    "mode": {"type": "mode", "mode": "AUTO_LAND"},
    "frame": {"type": "frame", "frame": "headless"},
    "ahead": {"type": "ahead"},
    "arm": {"type": "arm", "arm": False},
    "confirm": {"type": "confirm", "question": 1},
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("age_s", [8.0, COMMAND_AGE_S + 0.02, -0.02])
def test_a_request_that_was_late_is_answered_and_not_done(standing, name, age_s):
    """A change of the mode that waited 8 s in the network was done."""
    remote = standing
    page = remote.page() if name == "take" else remote.pilot()
    if name == "confirm":
        page.send(remote.now_s, type="arm", arm=True)
    remote.run(0.2)
    commands, page.inbox = len(remote.commands), page.inbox[-1:]
    page.send(remote.now_s, **COMMANDS[name], seen_s=remote.now_s - age_s)
    remote.run(0.3)
    request = "arm" if name == "confirm" else name
    (text,) = page.answers(request)
    assert "not done" in text and not page.last("question")
    state = page.last("state")
    assert state["you"] == (name != "take") and state["frame"] == "body" and state["ahead_deg"] is None
    assert (
        not {common.MAV_CMD_DO_SET_MODE, common.MAV_CMD_COMPONENT_ARM_DISARM} & dict(remote.commands[commands:]).keys()
    )


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("stamp", ["", ',"seen_s":null', ',"seen_s":NaN', ',"seen_s":1e999', ',"seen_s":"1"'])
def test_a_request_without_the_stamp_of_a_state_is_not_used(standing, name, stamp):
    page = standing.pilot()
    standing.station.receive(page.number, json.dumps(COMMANDS[name])[:-1] + stamp + "}", standing.now_s)
    standing.run(0.1)
    assert "not used" in page.answers("message")[-1]


def test_the_sticks_are_given_back_however_late(remote):
    page = remote.flying(height_m=2.0)
    page.send(remote.now_s, type="release", reason="after all")
    remote.run(0.1)
    assert page.last("state")["stopped"] == "after all"


def test_nothing_of_a_silent_flight_controller_is_shown_as_known(remote):
    """The page showed "armed, flying" without an end after the link was lost."""
    page = remote.flying(height_m=2.0)
    before = page.last("state")
    assert before["armed"] and before["landed"] is False and before["mode"] == "POSCTL"
    assert max(before["ages_s"].values()) < 1.5
    remote.linked = False
    remote.run(1.2)
    state = page.last("state")
    shown = (
        "mode",
        "armed",
        "landed",
        "battery",
        "voltage_v",
        "rc",
        "height_m",
        "speed_m_s",
        "climb_m_s",
        "heading_deg",
    )
    assert {name: state[name] for name in shown} == dict.fromkeys(shown)
    assert state["ages_s"]["link"] == pytest.approx(1.2, abs=0.1)


@pytest.mark.parametrize(
    "lost, unknown, age",
    [
        ("HEARTBEAT", ("mode", "armed"), "mode"),
        ("EXTENDED_SYS_STATE", ("landed",), "landed"),
        ("LOCAL_POSITION_NED", ("height_m", "speed_m_s", "climb_m_s"), "position"),
        ("ATTITUDE_QUATERNION", ("heading_deg",), "attitude"),
    ],
)
def test_a_fact_whose_message_no_longer_comes_is_unknown_and_has_its_age(remote, lost, unknown, age):
    page = remote.pilot()
    remote.lost = {lost}
    remote.run(4.0)
    state = page.last("state")
    assert state["connected"] and state["you"], "the sticks go on"
    facts = ("mode", "armed", "landed", "height_m", "speed_m_s", "climb_m_s", "heading_deg")
    assert {name for name in facts if state[name] is None} == set(unknown)
    assert 3.0 < state["ages_s"][age] < 5.1
    remote.lost = set()
    remote.run(1.5)
    assert all(page.last("state")[name] is not None for name in facts)


def test_headless_without_an_attitude_centres_the_stick_smoothly_and_says_so(remote):
    page = remote.flying(height_m=5.0)
    page.send(remote.now_s, type="frame", frame="headless")
    page.move(ahead=0.8, right=0.3)
    remote.run(1.0)
    begin = len(remote.sent)
    remote.lost = {"ATTITUDE_QUATERNION"}
    remote.run(1.2)
    assert page.last("state")["centred"] and remote.sent[-1][1].x == remote.sent[-1][1].y == 0
    remote.lost = set()
    remote.run(1.0)
    assert not page.last("state")["centred"] and remote.sent[-1][1].x > 700
    # behind PX4's dead zone; each message follows the one before within 0.04 s
    sent = [(stick(m.x / 1000, 0.1), stick(m.y / 1000, 0.1)) for _, m in remote.sent[begin:]]
    assert max(itertools.starmap(math.dist, itertools.pairwise(sent))) <= RANGE * 0.042 / SWITCH_S


def test_other_senders_on_the_link_are_named(standing):
    remote = standing
    page = remote.page()
    assert page.last("state")["foreign"] == ""
    remote.station.foreign, remote.station.foreign_senders = 3, ("10.0.0.9:14550",)
    other = common.MAVLink(None, 7, 1)
    remote.aircraft.receive(common.MAVLink_heartbeat_message(13, 12, 0, 0, 3, 3).pack(other), remote.now_s)
    remote.run(0.1)
    assert page.last("state")["foreign"] == (
        "3 datagrams of 10.0.0.9:14550 are ignored; flight controllers of other system ids are ignored: 7"
    )


@pytest.mark.parametrize(
    "message", [{"type": "take"}, {"type": "arm", "arm": True}, {"type": "mode", "mode": "AUTO_LAND"}]
)
def test_nothing_is_taken_before_the_token(standing, message):
    remote = standing
    remote.station.open(7, "10.0.0.7:1", remote.now_s)
    remote.station.receive(7, json.dumps({"seen_s": remote.now_s, **message}), remote.now_s)
    remote.station.step(remote.now_s)
    assert [reason for _, reason in remote.station.take().closed] == ["the first message must be hello, with the token"]


@pytest.mark.parametrize("in_mode", [InMode.RC_ONLY, InMode.NONE])
def test_the_sticks_are_refused_where_the_flight_controller_takes_none(in_mode):
    remote = RemoteFlight(start_s=0.8, in_mode=in_mode)
    page = remote.page()
    page.send(remote.now_s, type="take")
    remote.run(0.2)
    assert f"COM_RC_IN_MODE is {in_mode:d}" in page.answers("take")[-1] and not remote.sent


def test_a_mode_of_the_sticks_needs_the_sticks_and_hold_does_not(remote):
    page = remote.flying(height_m=2.0)
    page.samples = False
    remote.run(0.5)
    page.send(remote.now_s, type="mode", mode="STABILIZED")
    page.send(remote.now_s, type="mode", mode="AUTO_LAND")
    remote.run(0.5)
    assert "take the sticks first" in page.answers("mode")[-2]
    assert remote.autopilot.mode == FcuMode.AUTO_LAND


def test_a_lost_link_takes_the_sticks_away(remote):
    page = remote.flying(height_m=2.0)
    remote.linked = False
    remote.run(1.5)
    assert not page.last("state")["you"] and not page.last("state")["connected"]
    assert "link" in page.last("state")["stopped"]
    page.send(remote.now_s, type="take")
    remote.run(0.1)
    assert page.answers("take")[-1] == "no flight controller on the link"


@pytest.mark.parametrize("reason", [GONE, "the gamepad is silent"])
def test_a_gamepad_without_sticks_takes_them_away(standing, reason):
    remote = standing
    position = [reason]
    remote.station.gamepad = lambda now_s: position[0]
    page = remote.page()
    page.send(remote.now_s, type="take")
    remote.run(0.1)
    assert page.answers("take")[-1] == reason
    position[0] = RELEASED
    page.send(remote.now_s, type="take")
    remote.run(0.3)
    position[0] = Sticks(0.5, 0.0, 0.0, 0.0)
    remote.run(0.2)
    assert remote.sent[-1][1].x > 400, "the page's own sticks do not count"
    position[0] = reason
    remote.run(0.1)
    assert not page.last("state")["you"] and page.last("state")["stopped"] == reason


def test_streams_that_are_fast_enough_are_left_alone_and_missing_ones_requested():
    interval = common.MAV_CMD_SET_MESSAGE_INTERVAL
    fast = RemoteFlight(start_s=5.0)
    assert not [c for c in fast.commands if c[0] == interval]
    slow = RemoteFlight(start_s=18.0, rates_hz={"HEARTBEAT": 1, "ATTITUDE_QUATERNION": 10})
    assert {number for command, number in slow.commands if command == interval} == set(STREAMS)
    assert slow.page().last("state") and slow.aircraft.attitude(slow.now_s) is not None


def test_mode_and_arming_are_requested_of_the_aircraft_and_nothing_else_is(remote):
    remote.flying(height_m=2.0)
    changing = {command for command, _ in remote.commands} - {common.MAV_CMD_REQUEST_MESSAGE}
    assert changing == {common.MAV_CMD_DO_SET_MODE, common.MAV_CMD_COMPONENT_ARM_DISARM}


@pytest.mark.parametrize(
    "in_mode, text",
    [
        (InMode.KEEP_FIRST, "the transmitter is on and may be the source (COM_RC_IN_MODE 3)"),
        (InMode.RC_THEN_LINKS_UP, "the transmitter is on and has priority (COM_RC_IN_MODE 5)"),
        (InMode.MAVLINK_ONLY, ""),
        (InMode.LINKS_UP_THEN_RC, ""),
    ],
)
def test_the_page_says_when_a_transmitter_may_be_obeyed_in_its_place(in_mode, text):
    remote = RemoteFlight(start_s=1.2, in_mode=in_mode)
    assert remote.pilot().last("state")["ignored"] == text
    remote.autopilot.set_rc(None)
    remote.run(3.0)
    assert remote.pages[1].last("state")["ignored"] == ""
