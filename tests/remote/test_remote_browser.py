"""The page in headless Chromium with the simulated aircraft in real time."""

import json
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import pytest

from tests.remote.browser import CHROMIUM, Browser
from tests.remote.latency import TOKEN, Client, served

pytestmark = [
    pytest.mark.realtime,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH: the page is not opened"),
]


@contextmanager
def remote(instance: int, *options: str):
    """``companion remote --fcu sim``: its process and the address of its page."""
    command = [
        sys.executable,
        "-m",
        "companion.cli",
        "remote",
        "--fcu",
        "sim",
        "--port",
        "0",
        "--instance",
        str(instance),
    ]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process, process.stdout.readline().split()[1]
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture
def browser(tmp_path):
    opened = Browser(tmp_path / "profile")
    yield opened
    opened.close()


def number(page, element: str) -> float:
    return float(page.text(element).replace("−", "-").replace("–", "nan"))


def take_off(page, height_m: float = 3.0) -> None:
    """Take the sticks, arm, climb by the mouse, release."""
    page.wait("state && state.connected", 30)
    page.wait("(held || document.getElementById('take').click(), held)")
    page.click("[data-mode=POSCTL]")
    page.wait("state.mode === 'POSCTL'")
    for _ in range(20):  # the estimator may need some seconds for a position
        page.click("#arm")
        page.wait("document.getElementById('question').open")
        page.click("#yes")
        time.sleep(0.7)
        if page.run("state.armed"):
            break
    page.mouse("mousePressed", *page.point("left", 0.0, 0.0))
    page.mouse("mouseMoved", *page.point("left", 0.0, 0.95))
    page.wait(f"state.height_m > {height_m}", 25)
    page.mouse("mouseReleased", *page.point("left", 0.0, 0.0))
    page.wait("Math.abs(state.climb_m_s) < 0.3", 10)


def test_the_mouse_flies_the_aircraft_and_closing_the_page_stops_the_sticks(browser):
    with remote(71) as (_, url):
        page = browser.page(url)
        take_off(page)
        page.mouse("mousePressed", *page.point("right", 0.0, 0.0))
        page.mouse("mouseMoved", *page.point("right", 0.0, 0.7))
        page.wait("state.speed_m_s > 1.0", 10)
        page.mouse("mouseReleased", *page.point("right", 0.0, 0.7))
        page.click("[data-frame=headless]")
        page.wait("state.frame === 'headless'")
        port, token = url.removeprefix("http://127.0.0.1:").split("/#")
        other = Client(int(port), token)
        other.until(lambda m: m["type"] == "state" and m["owner"])
        other.send(type="take")
        assert "another page has the sticks" in other.until(lambda m: m["type"] == "answer")["text"]
        assert page.run("state.you") and not page.errors
        page.close()
        stopped = other.until(lambda m: m["type"] == "state" and not m["owner"], 3)
        assert stopped["stopped"] in ("the page was closed", "the page lost the focus", "the page is hidden")
        # PX4's rules: Hold, then what NAV_RCL_ACT says
        other.until(lambda m: m["type"] == "state" and m["mode"] == "AUTO_LOITER", 5)
        other.until(lambda m: m["type"] == "state" and m["mode"] in ("AUTO_LAND", "AUTO_RTL"), 15)


@pytest.mark.parametrize("event", ["blur", "hidden"])
def test_a_page_that_loses_the_focus_gives_the_sticks_back(browser, event):
    with served() as (station, autopilot, port, _):
        page = browser.page(f"http://127.0.0.1:{port}/#{TOKEN}")
        page.wait("state && state.connected")
        page.wait("(held || document.getElementById('take').click(), held)")
        autopilot.arrival(lambda m: True)
        if event == "blur":
            page.run("window.dispatchEvent(new Event('blur'))")
        else:
            page.run("Object.defineProperty(document, 'hidden', {value: true}),"
                     " document.dispatchEvent(new Event('visibilitychange'))")  # fmt: skip
        page.wait("!held && state.stopped")
        time.sleep(0.2)
        count = len(autopilot.received)
        time.sleep(0.5)
        assert len(autopilot.received) == count


TAKE = "(held || document.getElementById('take').click(), held && state.you && state.control)"


def push_up(page, autopilot, finger: int, along: float) -> int:
    """Take the sticks and push the left one by a finger, whose number is returned; a busy computer may stop the sticks before."""
    for number in range(finger, finger + 10):
        page.wait(TAKE)
        autopilot.received.clear()
        page.touch("touchStart", *page.point("left", 0.0, 0.0), finger=number)
        page.touch("touchMove", *page.point("left", 0.0, along), finger=number)
        with suppress(AssertionError):
            autopilot.arrival(lambda m: m.z > 900)
            return number
        page.touch("touchEnd")
    raise AssertionError("the finger does not move the stick")


STOPS = ["given back", "focus lost", "link lost", "no samples", "not said"]


@pytest.mark.parametrize("how", STOPS)
def test_a_finger_that_stays_down_does_not_count_when_the_sticks_are_taken_again(browser, how, monkeypatch):
    """The finger's next movement went on from where it was: the stick jumped from the centre to full."""
    with served() as (station, autopilot, port, _):
        page = browser.page(f"http://127.0.0.1:{port}/#{TOKEN}")
        page.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=5)
        page.wait("state && state.connected")
        finger = push_up(page, autopilot, 1, 0.98)
        x, y = page.point("left", 0.0, 0.98)
        if how == "given back":
            page.click("#take")
        elif how == "focus lost":
            page.run("window.dispatchEvent(new Event('blur'))")
        elif how == "link lost":
            autopilot.reports = False
            page.wait("!state.connected")
            autopilot.reports = True
        elif how == "no samples":
            page.run("for (const until = performance.now() + 800; performance.now() < until;);")
        else:  # the answer was lost: the state says it
            monkeypatch.setattr(station, "_answer", lambda *_: None)
            page.run("for (const until = performance.now() + 800; performance.now() < until;);")
            page.wait("!state.owner")
            monkeypatch.undo()
        page.wait("!held && state.connected && !state.owner")
        page.touch("touchMove", x, y + 1, finger)
        assert page.run("sticks.up") == 0
        autopilot.received.clear()
        page.wait(TAKE)
        for step in range(2, 6):
            page.touch("touchMove", x, y + step, finger)
            time.sleep(0.05)
        assert {m.z for _, m in autopilot.received} == {500}
        page.touch("touchEnd")
        push_up(page, autopilot, 20, 0.95)
        assert not page.errors


def test_an_answer_that_comes_after_a_release_gives_the_page_no_sticks(browser):
    with served() as (_, _, port, _):
        page = browser.page(f"http://127.0.0.1:{port}/#{TOKEN}")
        page.wait("state && state.connected")
        assert not page.run(
            "release('given back'), receive({type: 'answer', to: 'take', ok: true, text: ''}), wanted || held"
        )


def test_an_address_that_is_pasted_into_an_open_tab_is_opened(browser):
    with served() as (_, _, port, _):
        page = browser.page(f"http://127.0.0.1:{port}/#the-token-of-the-start-before")
        page.wait("document.getElementById('cover-text').textContent.includes('wrong token')")
        page.call("Page.navigate", url=f"http://127.0.0.1:{port}/#{TOKEN}")
        page.wait("typeof state !== 'undefined' && state && state.connected")  # while the page loads it has no names


def test_a_wrong_token_and_an_address_without_one_are_refused_on_the_page(browser):
    with served() as (_, autopilot, port, _):
        page = browser.page(f"http://127.0.0.1:{port}/#wrong")
        page.wait("document.getElementById('cover-text').textContent.includes('wrong token')")
        page = browser.page(f"http://127.0.0.1:{port}/")
        page.wait("document.getElementById('cover-text').textContent.includes('No token')")
        assert not autopilot.received and not autopilot.commands.count(400)


def test_an_older_page_is_refused_on_the_page(browser):
    with served() as (_, _, port, _):
        page = browser.page(f"http://127.0.0.1:{port}/")
        page.run(f"new Promise(done => {{ const s = new WebSocket('ws://127.0.0.1:{port}/sticks');"
                 f" s.onopen = () => s.send(JSON.stringify({{type: 'hello', protocol: 0, token: '{TOKEN}'}}));"
                 " s.onmessage = event => { window.answer = event.data; done(); } })")  # fmt: skip
        assert "reload the page" in page.run("window.answer")


def gamepad(index: int = 0, **changes) -> dict:
    return {
        "index": index,
        "id": f"Pad {index} (Vendor: 1)",
        "connected": True,
        "mapping": "standard",
        "axes": [0.0] * 4,
    } | changes


def plug(page, *pads: dict | None, event: str = "gamepadconnected") -> None:
    """The gamepads that the browser shows, and its event about the first of its list."""
    page.run(f"window.pads = {json.dumps(pads)}; navigator.getGamepads = () => window.pads;"
             f" window.dispatchEvent(Object.assign(new Event('{event}'), {{gamepad: {{index: 0}}}}))")  # fmt: skip


@contextmanager
def taken_by_a_gamepad(browser, *pads: dict):
    """A page whose sticks are those of the first of these gamepads."""
    with served() as (_, autopilot, port, _):
        page = browser.page(f"http://127.0.0.1:{port}/#{TOKEN}")
        page.wait("state && state.connected")
        plug(page, *pads)
        page.click("[data-source=gamepad]")
        page.wait("(held || document.getElementById('take').click(), held)")
        autopilot.arrival(lambda m: True)
        yield page, autopilot


def test_a_gamepad_of_the_browser_moves_the_sticks_and_unplugging_it_stops_them(browser):
    with taken_by_a_gamepad(browser, gamepad()) as (page, autopilot):
        assert page.run("document.querySelector('[data-source=gamepad]').textContent") == "Gamepad: Pad 0"
        page.run("window.pads[0].axes = [0.5, -1, NaN, -0.5]")
        autopilot.arrival(lambda m: m.r > 450 and m.z == 1000 and m.y == 0 and m.x > 450)
        page.run("window.pads = [null]")
        page.wait("!held && state.stopped === 'the gamepad is gone'")


def test_a_deflected_gamepad_of_the_browser_that_falls_silent_stops_the_sticks(browser):
    """Its radio has failed: the browser shows it as connected, with its last axes."""
    with taken_by_a_gamepad(browser, gamepad(timestamp=1.0)) as (page, autopilot):
        time.sleep(1.3)
        assert page.run("held"), "at rest it has nothing to say"
        page.run(
            "window.pads[0].axes = [0, 0, 0, -0.5]; window.alive = setInterval(() => window.pads[0].timestamp += 1, 50)"
        )
        autopilot.arrival(lambda m: m.x > 450)
        time.sleep(1.3)
        assert page.run("held"), "a stick that is held still, of a gamepad that reports"
        page.run("clearInterval(window.alive)")
        page.wait("!held && state.stopped === 'a stick is deflected, and the gamepad is silent'")


OTHERS = {
    "unplugged beside another": [None, gamepad(1, axes=[0.8, 1.0, -0.9, -1.0])],
    "another in its place": [gamepad(0, id="Other", axes=[0.8, 1.0, -0.9, -1.0])],
    "another number of axes": [gamepad(0, axes=[0.8, 1.0, -0.9, -1.0, 0.0, 0.0])],
    "another layout": [gamepad(0, mapping="", axes=[0.8, 1.0, -0.9, -1.0])],
    "not connected": [gamepad(0, connected=False, axes=[0.8, 1.0, -0.9, -1.0]), gamepad(1)],
}


@pytest.mark.parametrize("how", OTHERS)
@pytest.mark.parametrize("event", ["gamepaddisconnected", "none"])
def test_no_other_gamepad_comes_in_the_place_of_the_one_that_was_taken(browser, how, event):
    with taken_by_a_gamepad(browser, gamepad(0), gamepad(1)) as (page, autopilot):
        plug(page, *OTHERS[how], event=event)
        page.wait("!held && state.stopped.startsWith('the gamepad is')")
        time.sleep(0.2)
        assert all((m.x, m.y, m.z, m.r) == (0, 0, 500, 0) for _, m in autopilot.received)
        assert not page.errors


@pytest.mark.parametrize("event", ["gamepaddisconnected", "gamepadconnected"])
def test_a_gamepad_that_was_away_for_a_moment_is_taken_again_by_a_person(browser, event):
    with taken_by_a_gamepad(browser, gamepad()) as (page, _):
        plug(page, gamepad(), event=event)
        page.wait("!held && state.stopped.startsWith('the gamepad is')")


@pytest.mark.parametrize("pad", [{"mapping": ""}, {"mapping": "xr-standard"}, {"axes": [0.0, 0.0]}])
def test_a_gamepad_of_an_unknown_layout_is_refused_in_words(browser, pad):
    with served() as (_, autopilot, port, _):
        page = browser.page(f"http://127.0.0.1:{port}/#{TOKEN}")
        page.wait("state && state.connected")
        plug(page, gamepad(**pad))
        page.click("[data-source=gamepad]")
        assert "does not know its layout" in page.text("message")
        assert page.run("source") == "page"
        # likewise when it comes after the source was chosen
        plug(page, gamepad())
        page.click("[data-source=gamepad]")
        plug(page, gamepad(**pad))
        page.click("#take")
        assert "does not know its layout" in page.text("message") and not page.run("wanted")
        assert not autopilot.received


COMMANDS = [
    "#take",
    "#arm",
    "#set-ahead",
    "#yes",
    "[data-mode=POSCTL]",
    "[data-mode=AUTO_LAND]",
    "[data-frame=headless]",
]


def shown_as_unknown(page, link: str) -> None:
    """Nothing of the aircraft is shown as known, and no request can be made."""
    page.wait(f"document.getElementById('link').textContent.startsWith('{link}')")
    facts = [page.text(name) for name in ("link", "armed", "flight-mode", "heading", "height", "battery")]
    assert facts[1].startswith("arming unknown") and facts[2].startswith("mode unknown"), facts
    assert facts[3:] == ["–"] * 3 and not page.run("document.querySelector('[data-mode].chosen')"), facts
    assert all(page.run(f"document.querySelector('{selector}').disabled") for selector in COMMANDS)


def test_a_silent_flight_controller_is_shown_as_unknown_with_its_age(browser):
    """The page showed "armed, flying" without an end after the link was lost."""
    with served() as (_, autopilot, port, _):
        page = browser.page(f"http://127.0.0.1:{port}/#{TOKEN}")
        page.wait("state && state.connected")
        page.wait("(held || document.getElementById('take').click(), held)")
        assert page.text("armed").startswith("armed") and page.text("heading") == "0"
        page.click("#arm")
        page.wait("document.getElementById('question').open")
        autopilot.reports = False
        shown_as_unknown(page, "no link for ")
        assert not page.run("document.getElementById('question').open")
        age = float(page.text("armed").split()[-2])
        page.wait(f"parseFloat(document.getElementById('armed').textContent.split(' ').at(-2)) > {age + 0.5}")
        autopilot.reports = True
        page.wait("document.getElementById('armed').textContent.startsWith('armed')")
        assert not page.errors


@pytest.mark.parametrize("how", ["closed", "stalled"])
def test_a_silent_remote_is_shown_as_unknown_and_the_sticks_can_be_given_back(browser, how):
    with served() as (station, _, port, _):
        page = browser.page(f"http://127.0.0.1:{port}/#{TOKEN}")
        page.wait("state && state.connected")
        page.wait("(held || document.getElementById('take').click(), held)")
        if how == "stalled":
            station.step = lambda now_s: None  # the connection stays open; no state comes
            page.wait("document.getElementById('link').textContent.startsWith('no remote for')")
            assert page.run("!document.getElementById('take').disabled")
            page.click("#take")
            assert not page.run("wanted")
            shown_as_unknown(page, "no remote for ")
            page.run("request({type: 'mode', mode: 'AUTO_LAND'})")
            assert page.text("message").startswith("Not sent: no remote")
    shown_as_unknown(page, "no remote")
    assert page.run("state === null && !held && !wanted && !send({type: 'take'})") and not page.errors


def test_a_page_that_was_refused_for_now_tries_again_by_itself(browser, monkeypatch):
    monkeypatch.setattr("companion.remote.station.KNOWN_MAX", 1)
    with served() as (_, _, port, _):
        other = Client(port)
        other.until(lambda m: m["type"] == "welcome")
        page = browser.page(f"http://127.0.0.1:{port}/#{TOKEN}")
        page.wait("document.getElementById('cover-text').textContent.includes('pages are open')")
        other.socket.close()
        page.wait("state && state.connected && document.getElementById('cover').hidden")


def test_centred_sticks_and_other_senders_are_named_in_red(browser):
    with served() as (station, _, port, _):
        page = browser.page(f"http://127.0.0.1:{port}/#{TOKEN}")
        page.wait("state && state.connected")
        page.wait("(held || document.getElementById('take').click(), held)")
        red = "getComputedStyle(document.getElementById('{}')).color"
        station.step = lambda now_s: None  # so that the next state does not hide them
        page.wait("stateAge() > 0.2")
        page.run("state = {...state, you: true, centred: true, foreign: '3 datagrams of 10.0.0.9:1 are ignored'};"
                 " stateAt = performance.now(); show()")  # fmt: skip
        assert page.text("owner").endswith("headless: no attitude, sticks centred")
        assert page.text("foreign") == "3 datagrams of 10.0.0.9:1 are ignored"
        assert page.run(red.format("owner")) == page.run(red.format("foreign")) != page.run(red.format("rate"))
