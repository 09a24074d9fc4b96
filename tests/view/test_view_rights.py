"""What the page says of a person's rights, and what it keeps when another view stands behind its address."""

from contextlib import contextmanager
from pathlib import Path

import pytest
from headless import browser, chromium
from served import served
from test_view_server import ANNA, opened
from test_view_silence import Stack

from companion.core.clock import monotonic_s
from companion.core.enums import CommandAction
from companion.core.messages import FcuCommand
from companion.view import server as server_module
from companion.view.access import Access
from companion.view.live import LiveSource
from companion.view.log_window import LogIndex
from companion.view.logged import LogSource
from companion.view.scene import scene_of, tables_of_log

pytestmark = [
    pytest.mark.verify,
    pytest.mark.skipif(chromium() is None, reason="no Chromium on this computer"),
]
LOG = Path(__file__).parents[1] / "recording/golden/2026-11-22_by_command.mcap"
TEXT = "document.getElementById('{}').textContent"
WRONG = "w" * 24


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("browser"), (900, 600)) as opened_:
        yield opened_
        assert opened_.errors == []


@pytest.fixture
def source(tmp_path):
    stack = Stack(tmp_path / "bus")
    made = LiveSource(tmp_path / "bus", scene_of({}))
    try:
        yield made
    finally:
        stack.close()
        made.close()


def show(page, url: str) -> None:
    page.open("about:blank")
    page.open(url)
    page.wait("window.view && view.loaded && view.hello", 60)
    page.run("view.draw = () => {}, view.charts.draw = () => {}, 1")  # not looked at here


def may_command(page) -> bool:
    return bool(page.run("!document.getElementById('commands').hidden && !document.getElementById('buttons').hidden"))


def test_a_wrong_token_is_said_and_a_right_address_in_the_open_page_enters(source, page):
    with served(source, Access([ANNA], True)) as (_, port):
        show(page, f"http://127.0.0.1:{port}/#token={WRONG}")
        assert page.run(TEXT.format("rights-words")) == "wrong token: this page may watch only"
        assert not may_command(page) and not page.run("document.getElementById('rights').hidden")
        page.run(f"location.hash = 'token={ANNA.token}'; 1")
        page.wait("view.hello.right === 'command' && document.getElementById('rights').hidden", 30)
        assert may_command(page) and "token" not in page.run("location.href")
        page.run(f"location.hash = 'token={WRONG}'; 1")  # a person who is known stays so
        page.wait(f"{TEXT.format('rights-words')} === 'wrong token'")
        assert may_command(page)


def test_a_page_whose_right_has_ended_says_so_and_lets_the_person_log_in(source, page):
    with served(source, Access([ANNA], True)) as (_, port):
        show(page, f"http://127.0.0.1:{port}/#token={ANNA.token}")
        assert may_command(page)
    with served(source, Access([ANNA], True), port):  # knows no sessions
        page.wait(f"{TEXT.format('rights-words')} === 'the right to command has ended: this page may watch only'", 40)
        assert not may_command(page)
        page.call("Page.reload")
        page.wait(f"window.view && {TEXT.format('rights-words')}.startsWith('the right to command has ended')", 40)
        page.click("#log-in")
        page.run(f"document.getElementById('token').value = {ANNA.token!r}")
        page.click("#login-form button")
        page.wait("view.hello.right === 'command' && !document.getElementById('buttons').hidden", 30)


def test_a_page_that_finds_no_place_says_why(source, page, monkeypatch):
    monkeypatch.setattr(server_module, "PAGES_MAX", 1)
    with served(source, Access([ANNA], True)) as (_, port), opened(port) as first:
        first.recv(10.0)
        page.open("about:blank")
        page.open(f"http://127.0.0.1:{port}/")
        page.wait(f"window.view && {TEXT.format('note')}.includes('no place for another')", 60)


def test_a_wrong_token_for_a_log_is_said(page):
    with logged() as log, served(log, Access([ANNA], True)) as (_, port):
        show(page, f"http://127.0.0.1:{port}/#token={WRONG}")
        assert page.run(TEXT.format("rights-words")) == "wrong token: this page may watch only"


@contextmanager
def logged():
    index = LogIndex(LOG)
    made = LogSource(index, scene_of(tables_of_log(index.metadata)))
    try:
        yield made
    finally:
        made.close()


def test_a_live_view_at_the_address_of_a_log_begins_a_new_page(source, page):
    with logged() as log, served(log, Access([ANNA], True)) as (_, port):
        show(page, f"http://127.0.0.1:{port}/")
        page.run("window.kept = view.time.playing = 1")
        assert page.run("view.time.live") is False
    with served(source, Access([ANNA], True), port):
        page.wait("window.view && !window.kept && view.loaded && view.hello.live", 60)
        assert page.run("view.time.live && view.time.follows && !document.getElementById('now').hidden")
        page.run("window.kept = 1")
    with served(source, Access([ANNA], True), port):  # the same flight
        page.wait("view.open && !document.body.classList.contains('lost')", 40)
        assert page.run("window.kept") == 1


def test_the_answer_to_another_person_is_none_to_this_page(source, page):
    with served(source, Access([ANNA], True)) as (_, port):
        show(page, f"http://127.0.0.1:{port}/#token={ANNA.token}")
        page.run("view.commands.waits = { action: 'hold here', since: performance.now() + 1e5 }, view.commands.say('')")

        def say(text: str) -> None:
            source.digest.take(
                FcuCommand(stamp_s=monotonic_s(), id=1, action=CommandAction.TEXT, text=text, severity=5)
            )
            page.wait(f"view.data.events.of('text').some((event) => event.text === {text!r})")
            page.run("view.commands.draw(view.data)")

        say("hold here (by ben at the view): granted")
        assert page.run("view.commands.waits !== null") and page.run(TEXT.format("answer")) == ""
        say("return (by anna at the view): granted")  # of another page of hers
        assert page.run("view.commands.waits !== null")
        for answer in ("hold here (by anna at the view): granted", "PAUSE: hold here, by anna at the view"):
            page.run("view.commands.waits = { action: 'hold here', since: performance.now() + 1e5 }, 1")
            say(answer)
            assert page.run("view.commands.waits === null") and page.run(TEXT.format("answer")) == answer
