"""The live view that shows the past: it says so, and no command is given to what was."""

import pytest
from headless import browser, chromium
from served import served
from test_view_server import ANNA
from test_view_silence import Stack

from companion.core.enums import OperatorAction, Phase
from companion.core.messages import OperatorRequest
from companion.core.subscriber import Subscriber
from companion.view.access import Access
from companion.view.live import LiveSource
from companion.view.scene import scene_of

pytestmark = [
    pytest.mark.verify,
    pytest.mark.skipif(chromium() is None, reason="no Chromium on this computer"),
]
TEXT = "document.getElementById('{}').textContent"
KEYS = {"ArrowLeft": 37, "ArrowRight": 39, " ": 32, "End": 35}


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """(stack, page, requests) of a page that may command, in the present of a hold."""
    folder = tmp_path_factory.mktemp("live")
    stack, source = Stack(folder / "bus"), LiveSource(folder / "bus", scene_of({}))
    requests = Subscriber(folder / "bus", ("operator_request",), "mission")
    try:
        with served(source, Access([ANNA], False)) as (_, port), browser(folder, (900, 600)) as page:
            page.open(f"http://127.0.0.1:{port}/#token={ANNA.token}")
            page.wait("window.view && view.loaded && document.getElementById('phase').textContent === 'HOLD'", 60)
            page.run("view.draw = () => {}, view.charts.draw = () => {}, 1")  # not looked at here
            page.wait("view.time.t > 2", 30)
            yield stack, page, requests
            assert page.errors == []
    finally:
        requests.close()
        stack.close()
        source.close()


@pytest.fixture(autouse=True)
def present(live):
    """Every test begins in the present of a hold."""
    stack, page, requests = live
    stack.phase = Phase.HOLD
    page.run("document.activeElement.blur(), view.time.goLive(), view.commands.waits = null, view.commands.say('')")
    page.wait("document.getElementById('phase').textContent === 'HOLD'")
    asked(requests)


def press(page, key: str) -> None:
    text = {"text": key} if key == " " else {}
    page.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=KEYS[key], **text)
    page.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=KEYS[key])


def asked(requests) -> list[OperatorAction]:
    return [m.action for m in requests.receive(0.3) if isinstance(m, OperatorRequest)]


def is_marked(page) -> bool:
    return page.run("getComputedStyle(document.getElementById('past')).display !== 'none'")


def leave(stack, page) -> None:
    """Look at the hold while the mission goes on to its return."""
    press(page, " ")
    stack.phase = Phase.RETURN
    page.wait("view.data.events.last('phase', Infinity).phase === 'RETURN'")


def test_the_past_of_a_running_flight_is_marked_with_its_age_and_a_button_to_the_present(live):
    stack, page, _ = live
    assert not is_marked(page)
    leave(stack, page)
    page.wait(f"{TEXT.format('past-words')}.startsWith('not live: showing the past, ')")
    page.wait(f"/^HOLD, [0-9]+ s ago$/.test({TEXT.format('phase')})")
    assert is_marked(page) and page.run(TEXT.format("monitors")) != "safety table: no monitor active"
    page.click("#back")
    page.wait(f"{TEXT.format('phase')} === 'RETURN'")
    assert not is_marked(page)


@pytest.mark.parametrize("action", ["hold here", "return", "land", "stop streaming"])
def test_a_command_that_is_pressed_in_the_past_goes_back_to_the_present_and_asks_again(live, action):
    stack, page, requests = live
    leave(stack, page)
    page.click(f"[data-ask='{action}']")
    assert page.run("document.getElementById('confirm').open") is False
    assert "press again" in page.run(TEXT.format("answer")) and asked(requests) == []
    page.wait(f"{TEXT.format('phase')} === 'RETURN'")
    page.wait("view.time.follows && performance.now() - view.received < 300")
    page.click(f"[data-ask='{action}']")
    page.wait("document.getElementById('confirm').open")
    page.click("#confirm-yes")
    page.wait(f"{TEXT.format('answer')}.includes('sent to the mission')")
    assert asked(requests) == [action]


def test_a_request_names_the_phase_that_the_page_showed(live):
    stack, page, requests = live
    page.run("view.status.draw = () => {}, 1")  # a page that is behind: the status stays as it was
    try:
        stack.phase = Phase.RETURN
        page.wait("view.data.events.last('phase', Infinity).phase === 'RETURN'")
        page.click("[data-ask='hold here']")
        page.wait("document.getElementById('confirm').open")
        page.click("#confirm-yes")
        page.wait(f"{TEXT.format('answer')}.includes('gone on to RETURN')")
        assert asked(requests) == []
    finally:
        page.run("delete view.status.draw")


def test_silence_is_said_while_the_page_shows_the_past(live):
    stack, page, _ = live
    press(page, "ArrowLeft")
    page.wait("!view.time.follows")
    page.run(
        "view.silence_ = view.silence, view.silence = (lost) => ({ ...view.silence_(lost), mission_status: 7.2 }), 1"
    )
    try:
        page.wait(f"{TEXT.format('note')} === 'no data from the mission for 7 s'")
        assert is_marked(page)
    finally:
        page.run("delete view.silence")
    assert page.run("(view.silent = { state: 3 }, view.silence(false).state)") == 3


def test_keys_do_not_move_the_time_while_a_button_or_a_dialog_has_the_focus(live):
    _, page, _ = live
    page.run("document.querySelector(\"[data-ask='land']\").focus()")
    press(page, "ArrowLeft")
    page.run(
        "document.activeElement.blur(), document.getElementById('confirm').showModal(), document.activeElement.blur()"
    )
    press(page, "ArrowLeft")
    press(page, " ")
    page.run("document.getElementById('confirm').close()")
    assert page.run("view.time.follows")


def test_the_end_of_the_time_line_is_the_present(live):
    _, page, _ = live
    press(page, "ArrowRight")
    assert page.run("view.time.follows")
    press(page, "ArrowLeft")
    page.wait("!view.time.follows && document.body.classList.contains('past')")
    press(page, "End")
    page.wait("view.time.follows && !document.body.classList.contains('past')")


def test_the_picture_of_now_is_not_drawn_under_the_corners_of_then(live):
    _, page, _ = live
    picture = "(() => { const c = document.createElement('canvas'); c.width = c.height = 8; const x = c.getContext('2d'); x.fillStyle = '#f00'; x.fillRect(0, 0, 8, 8); return c; })()"
    red = (
        f"(() => {{ view.panel.picture = {picture}; view.panel.pictured = performance.now(); view.panel.draw(view.data, view.time.t, view.time.follows);"
        " return document.getElementById('camera').getContext('2d').getImageData(20, 20, 1, 1).data[0]; })()"
    )
    assert page.run(red) == 255
    press(page, "ArrowLeft")
    page.wait("!view.time.follows")
    assert page.run(red) < 50
