"""Who has the sticks, when they are sent and when they stop; with the PX4 emulator, in simulated time."""

import itertools
import json
import math

import pytest
from pymavlink.dialects.v20 import common

from companion.core.enums import FcuMode
from companion.remote.aircraft import STREAMS
from companion.remote.station import DEAD_MAN_S
from companion.remote.sticks import RELEASED, Sticks
from sitl.autopilot.manual_selector import InMode
from tests.remote.remote_flight import TOKEN, RemoteFlight


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


@pytest.mark.parametrize("protocol", [0, 2, 99])
def test_a_page_of_another_version_is_refused(standing, protocol):
    remote = standing
    page = remote.page(protocol=protocol)
    page.send(remote.now_s, type="take")
    remote.run(0.3)
    assert "reload the page" in page.closed and not remote.sent


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN[:-1], "ключ"])
def test_a_wrong_token_is_refused(standing, token):
    remote = standing
    page = remote.page(token=token)
    page.send(remote.now_s, type="take")
    remote.run(1.2)
    assert "wrong token" in page.closed and not page.last("state") and not remote.sent


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


def test_a_flood_of_connections_is_refused_and_a_silent_one_is_closed(standing):
    remote = standing
    page = remote.pilot()
    for number in range(100, 160):
        remote.station.open(number, "10.0.0.9:1", remote.now_s)
        remote.pages[number] = type(page).__new__(type(page))
        remote.pages[number].__dict__.update(inbox=[], closed="", samples=False, step=lambda now_s: None)
    remote.run(0.1)
    assert sum("too many connections" in p.closed for p in remote.pages.values()) >= 40
    remote.run(5.2)
    assert all(p.closed for number, p in remote.pages.items() if number >= 100)
    assert page.last("state")["you"]


@pytest.mark.parametrize(
    "message", [{"type": "take"}, {"type": "arm", "arm": True}, {"type": "mode", "mode": "AUTO_LAND"}]
)
def test_nothing_is_taken_before_the_token(standing, message):
    remote = standing
    remote.station.open(7, "10.0.0.7:1", remote.now_s)
    remote.station.receive(7, json.dumps(message), remote.now_s)
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


def test_a_gamepad_that_is_unplugged_takes_the_sticks_away(standing):
    remote = standing
    position = [None]
    remote.station.gamepad = lambda: position[0]
    page = remote.page()
    page.send(remote.now_s, type="take")
    remote.run(0.1)
    assert "gamepad" in page.answers("take")[-1]
    position[0] = RELEASED
    page.send(remote.now_s, type="take")
    remote.run(0.3)
    position[0] = Sticks(0.5, 0.0, 0.0, 0.0)
    remote.run(0.2)
    assert remote.sent[-1][1].x > 400, "the page's own sticks do not count"
    position[0] = None
    remote.run(0.1)
    assert not page.last("state")["you"]


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
