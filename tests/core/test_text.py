"""Texts from outside are one printable line wherever they are printed or stored."""

import pytest
from rich.console import Console

from companion.core.command_line import end_with
from companion.core.messages import FcuText, Health, MissionStatus
from companion.core.text import plain, plain_lines
from companion.fcu.link.statustext import TextJoiner
from companion.runtime.process import HealthMonitor
from companion.view.watch import StackView

EVIL = [
    "\x1b[2J\x1b]0;title\x07",  # escape sequences
    "\x9b31m",  # C1: one character that begins a sequence
    "a\rb",  # overwrites the line
    "a\nb",
    "\u202egnp.exe",  # right to left
    "\u2066x\u2069",
    "\u200b\u200f\ufeff",
    "\x00\x08\x7f",
    "\udcff",  # a byte that was no UTF-8
]


@pytest.mark.parametrize("text", EVIL, ids=ascii)
def test_what_a_terminal_obeys_is_replaced(text):
    assert plain(text).isprintable() and len(plain(text)) == len(text)
    assert plain(f"before {text} after").startswith("before ") and plain(text).encode("utf-8")


def test_a_printable_text_stays_as_it_is():
    text = "Höhe 3 m → 4 m, [/bold] 中文"
    assert plain(text) is text
    assert plain("a\tb\u00a0c") == "a b c"
    assert plain("abc", 2) == "ab"
    assert plain_lines("a\x1b\nb\r\nc") == "a?\nb\nc"


@pytest.mark.parametrize("text", EVIL, ids=ascii)
def test_a_text_of_the_flight_controller_is_printable_when_it_enters(text):
    raw = text.encode("utf-8", "surrogateescape")[:50]
    for texts in (TextJoiner().put(6, raw, 0, 0, 0.0), TextJoiner().put(6, raw, 7, 0, 0.0)):
        assert all(found.isprintable() for _, found in texts)


@pytest.mark.parametrize("text", EVIL, ids=ascii)
def test_a_line_of_an_error_is_printable(text, capsys):
    with pytest.raises(SystemExit):
        end_with(f"{text}: no such file", 2)
    line = capsys.readouterr().err
    assert line.endswith("\n") and line[:-1].isprintable()


def test_an_exception_that_quotes_bytes_from_outside_is_stored_as_one_printable_line():
    monitor = HealthMonitor("fcu", 50.0)
    monitor.note_error(ValueError("\x1b[31m\n\u202e" * 100))
    assert monitor.last_error.isprintable() and len(monitor.last_error) == 200


@pytest.mark.parametrize("text", EVIL, ids=ascii)
def test_the_live_view_shows_no_control_character(text):
    view = StackView()
    view.take(FcuText(stamp_s=1.0, severity=6, text=text), 1.0)
    view.take(
        MissionStatus(stamp_s=1.0, phase="HOLD", reason=text, phase_time_s=1, finished=False, success=False, photographs=0),
        1.0,
    )  # fmt: skip
    view.take(
        Health(stamp_s=1.0, process="fcu", pid=1, steps_per_s=1, nominal_steps_per_s=1, late_steps=0, errors=1,
               last_error=text, step_time_max_s=0, cpu_s=0, memory_mb=1), 1.0,
    )  # fmt: skip
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(view.render(1.0, 1.0))
    assert all(line.isprintable() for line in capture.get().split("\n"))
