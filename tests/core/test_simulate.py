"""What ``companion sim`` shows: progress on a terminal and without one, and the words of its table."""

import io
from types import SimpleNamespace

import msgspec
import pytest

from sitl.simulate import FlightProgress, events_text, wind_text
from sitl.wind import CALM, Jet


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def at(now_s: float) -> SimpleNamespace:
    """As much of a lockstep run as progress shows."""
    return SimpleNamespace(now_s=now_s, pilot=SimpleNamespace(phase="HOLD"))


def test_a_terminal_has_one_line_that_is_rewritten():
    stream = Terminal()
    progress = FlightProgress(stream)
    progress(at(1.0))
    progress(at(2.0))
    progress.end()
    assert stream.getvalue().count("\r") == 3 and "\n" not in stream.getvalue()
    assert "     2 s  HOLD" in stream.getvalue()


@pytest.mark.parametrize(("period_s", "lines"), [(0.0, ["     1 s  HOLD", "     2 s  HOLD"]), (60.0, [])])
def test_without_a_terminal_there_is_a_plain_line_every_few_seconds(period_s, lines):
    stream = io.StringIO()
    progress = FlightProgress(stream, period_s)
    progress(at(1.0))
    progress(at(2.0))
    progress.end()
    assert stream.getvalue().splitlines() == lines


def test_the_wind_is_described_in_a_few_words():
    assert wind_text(CALM) == "0.0 m/s"
    gusty = msgspec.structs.replace(CALM, mean_m_s=(3.0, 4.0, 0.0), gust_std_m_s=(1.5, 1.0, 0.5))
    assert wind_text(gusty) == "5.0 m/s, gusts 1.5 m/s (σ)"
    jet = Jet(
        start_s=0, end_s=1, nozzle_m=(0, 0, 0), direction=(1, 0, 0), speed_at_1m_m_s=5, decay_exponent=1, core_m=1,
        width_at_1m_m=1, turbulence=0, turbulence_time_s=1,
    )  # fmt: skip
    assert wind_text(msgspec.structs.replace(CALM, jets=[jet, jet])) == "0.0 m/s, 2 jets"


def test_safety_events_are_counted_with_their_actions():
    def event(row: str, action: str, active: bool = True) -> dict:
        return {"monitor": row, "action": action, "active": active}

    assert events_text([]) == "none"
    events = [event("marker_lost", "hold"), event("marker_lost", "", active=False), event("marker_lost", "return")]
    assert events_text([*events, event("battery_low", "return")]) == (
        "marker_lost ×2 → hold, return; battery_low → return"
    )
