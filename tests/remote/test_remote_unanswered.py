"""A request that the flight controller does not answer: when it is sent again, and what the page says."""

import pytest
from pymavlink.dialects.v20 import common

from companion.core.enums import FcuMode
from tests.remote.remote_flight import FakePage, RemoteFlight

SET_MODE, ARM = common.MAV_CMD_DO_SET_MODE, common.MAV_CMD_COMPONENT_ARM_DISARM


@pytest.fixture
def remote() -> RemoteFlight:
    return RemoteFlight()


def sent(remote: RemoteFlight, command: int) -> int:
    return [number for number, _ in remote.commands].count(command)


def confirm(remote: RemoteFlight, page: FakePage, arm: bool) -> None:
    """Ask and say yes; the request has just left, and was not answered."""
    page.send(remote.now_s, type="arm", arm=arm)
    remote.run(0.06)
    page.send(remote.now_s, type="confirm", question=page.last("question")["question"])
    lose(remote)


def lose(remote: RemoteFlight) -> None:
    """What was just requested does not arrive, nor any answer."""
    remote.lost = {"COMMAND_ACK"}
    remote.linked = False
    remote.run(0.04)
    remote.linked = True


def request(remote: RemoteFlight, page: FakePage, mode: FcuMode) -> None:
    page.send(remote.now_s, type="mode", mode=mode)
    lose(remote)


def test_to_arm_is_sent_once_and_the_page_says_that_nothing_answered(remote):
    page = remote.pilot()
    remote.choose(page, FcuMode.POSCTL)
    confirm(remote, page, arm=True)
    remote.run(3.0)
    assert sent(remote, ARM) == 1 and not remote.autopilot.armed
    (text,) = page.answers("arm")
    assert text.startswith("arm: no answer from the flight controller, and not sent again")
    assert page.last("state")["you"]


def test_motors_that_a_pilot_has_stopped_do_not_start_again(remote):
    """They started again half a second later."""
    page = remote.pilot()
    remote.choose(page, FcuMode.POSCTL)
    remote.lost = {"COMMAND_ACK", "HEARTBEAT"}  # the one after "armed" is lost, too
    page.send(remote.now_s, type="arm", arm=True)
    remote.run(0.06)
    page.send(remote.now_s, type="confirm", question=page.last("question")["question"])
    remote.run(0.3)
    assert remote.autopilot.armed
    assert remote.autopilot.commander.disarm(remote.now_s, "the pilot's transmitter")
    remote.run(2.0)
    assert not remote.autopilot.armed and sent(remote, ARM) == 1


def test_arming_that_is_reported_needs_no_answer(remote):
    page = remote.pilot()
    remote.choose(page, FcuMode.POSCTL)
    remote.lost = {"COMMAND_ACK"}
    page.send(remote.now_s, type="arm", arm=True)
    remote.run(0.06)
    page.send(remote.now_s, type="confirm", question=page.last("question")["question"])
    assert remote.run(1.5, lambda: bool(page.answers("arm")))
    assert remote.autopilot.armed


def test_disarming_is_sent_again_while_it_is_wanted(remote):
    page = remote.pilot()
    remote.choose(page, FcuMode.POSCTL)
    assert remote.autopilot.commander.arm(remote.now_s, "a pilot")
    remote.run(1.2)
    confirm(remote, page, arm=False)
    remote.run(1.5)
    assert sent(remote, ARM) >= 2 and not remote.autopilot.armed


def armed_pilot(remote: RemoteFlight) -> FakePage:
    page = remote.pilot()
    remote.choose(page, FcuMode.POSCTL)
    assert remote.autopilot.commander.arm(remote.now_s, "a pilot")
    remote.run(1.2)
    return page


def test_disarming_is_sent_again_by_a_page_that_went_to_sleep(remote):
    """Its rotors turned on."""
    page = armed_pilot(remote)
    confirm(remote, page, arm=False)
    page.send(remote.now_s, type="release", reason="given back")
    remote.run(1.5)
    assert sent(remote, ARM) >= 2 and not remote.autopilot.armed


def test_disarming_is_not_sent_again_once_another_page_has_the_sticks(remote):
    page = armed_pilot(remote)
    other = remote.page()
    remote.run(0.2)
    confirm(remote, page, arm=False)
    page.send(remote.now_s, type="release", reason="given back")
    other.send(remote.now_s, type="take")
    remote.run(1.5)
    assert sent(remote, ARM) == 1 and remote.autopilot.armed
    assert page.answers("arm")[-1].endswith("another page has the sticks")


def test_a_late_answer_to_arm_is_its_own(remote):
    """On a slow link a refusal came after 0.5 s, and the page said that nothing answered."""
    page = remote.pilot()
    remote.choose(page, FcuMode.POSCTL)
    confirm(remote, page, arm=True)
    remote.run(0.9)
    assert not page.answers("arm")
    remote.aircraft._commands.acknowledge(ARM, common.MAV_RESULT_DENIED, remote.now_s)
    remote.run(0.1)
    assert "denied" in page.answers("arm")[-1] and sent(remote, ARM) == 1


def test_a_mode_that_was_requested_before_is_no_other_choice(remote):
    """Position, then Land, whose frame is lost: that PX4 reports Position is no reason to forget Land."""
    page = remote.flying(height_m=4.0)
    remote.choose(page, FcuMode.ALTCTL)
    remote.run(2.5)
    page.send(remote.now_s, type="mode", mode=FcuMode.POSCTL)
    remote.linked = True
    count = sent(remote, SET_MODE)
    page.send(remote.now_s, type="mode", mode=FcuMode.AUTO_LAND)
    lose(remote)
    remote.autopilot.commander.request_mode(FcuMode.POSCTL, remote.now_s, reason="the page's first request")
    remote.run(1.5)
    assert sent(remote, SET_MODE) - count >= 2 and remote.autopilot.mode == FcuMode.AUTO_LAND


def test_a_mode_is_requested_again_while_it_is_wanted(remote):
    page = remote.flying(height_m=4.0)
    count = sent(remote, SET_MODE)
    request(remote, page, FcuMode.AUTO_LAND)
    remote.run(1.2)
    assert sent(remote, SET_MODE) - count >= 2 and remote.autopilot.mode == FcuMode.AUTO_LAND
    assert page.answers("mode")[-1] == "AUTO_LAND: the mode is reported"


def other_mode(remote: RemoteFlight, page: FakePage) -> None:
    assert remote.autopilot.commander.request_mode(FcuMode.ALTCTL, remote.now_s, reason="the pilot's transmitter")


def other_mode_and_back(remote: RemoteFlight, page: FakePage) -> None:
    other_mode(remote, page)
    remote.run(0.2)
    assert remote.autopilot.commander.request_mode(FcuMode.POSCTL, remote.now_s, reason="the pilot's transmitter")


def give_back(remote: RemoteFlight, page: FakePage) -> None:
    page.send(remote.now_s, type="release", reason="the page lost the focus")


def give_back_and_take(remote: RemoteFlight, page: FakePage) -> None:
    give_back(remote, page)
    page.send(remote.now_s, type="take")


def dead_man(remote: RemoteFlight, page: FakePage) -> None:
    page.samples = False


def close(remote: RemoteFlight, page: FakePage) -> None:
    remote.close(page)


@pytest.mark.parametrize(
    ("meanwhile", "why"),
    [
        (other_mode, "the mode was changed to ALTCTL meanwhile"),
        (other_mode_and_back, "the mode was changed to ALTCTL meanwhile"),
        (give_back, "the sticks have stopped (the page lost the focus)"),
        (give_back_and_take, "the sticks have changed hands"),
        (dead_man, "the sticks have stopped (no sample of the sticks for 0.3 s)"),
        (close, "the page was closed"),
    ],
)
def test_a_mode_is_not_requested_again_once_it_is_unwanted(remote, meanwhile, why):
    """Half a second later it undid what a pilot had chosen, for a page that had closed."""
    page = remote.flying(height_m=4.0)
    count = sent(remote, SET_MODE)
    request(remote, page, FcuMode.AUTO_LAND)
    meanwhile(remote, page)
    remote.run(2.5)
    assert sent(remote, SET_MODE) - count == 1
    assert FcuMode.AUTO_LAND not in remote.autopilot.mode
    text = f"AUTO_LAND: no answer from the flight controller, and not sent again: {why}"
    assert text in remote.log
    if meanwhile is not close:
        assert page.answers("mode")[-1] == text


def test_a_page_without_the_sticks_does_not_repeat_its_request_once_they_are_taken(remote):
    page = remote.flying(height_m=4.0)
    other = remote.page()
    other.samples = page.samples = False
    remote.run(0.5)
    count = sent(remote, SET_MODE)
    request(remote, other, FcuMode.AUTO_LAND)
    page.samples = True
    page.send(remote.now_s, type="take")
    remote.run(2.0)
    assert sent(remote, SET_MODE) - count == 1
    assert other.answers("mode")[-1].endswith("the sticks have changed hands")


def test_a_mode_is_not_requested_again_without_a_recent_report(remote):
    """Whether a pilot has taken over meanwhile is then not known."""
    page = remote.flying(height_m=4.0)
    count = sent(remote, SET_MODE)
    page.send(remote.now_s, type="mode", mode=FcuMode.AUTO_LAND)
    lose(remote)
    remote.lost = {"COMMAND_ACK", "HEARTBEAT", "CURRENT_MODE"}
    remote.run(2.5)
    assert sent(remote, SET_MODE) - count == 1
    assert "no answer from the flight controller" in page.answers("mode")[-1]
