"""Bench file, sweep and scale by themselves."""

import io

import msgspec
import pytest
from calibration_paths import BENCHES
from rich.console import Console

from calibration.thrust.bench.bench_file import load_bench
from calibration.thrust.bench.display import PLOT_HEIGHT, LiveDisplay, plot
from calibration.thrust.bench.raw_file import Progress
from calibration.thrust.bench.scale import Scale
from calibration.thrust.bench.stop_conditions import BenchSnapshot
from calibration.thrust.bench.sweep import Sweep, SweepState, plan
from companion.core.config import ConfigError


@pytest.fixture
def quick(hx711):
    """The bench with changes of its sweep."""
    return lambda **changes: msgspec.structs.replace(hx711, sweep=msgspec.structs.replace(hx711.sweep, **changes))


def run_through(bench, until_s=1e6, pwm=None, dt=0.02):
    """Readings of a sweep whose scale shows the commanded pulse width in newtons."""
    sweep, now, out = Sweep(bench, plan(bench.sweep)), 0.0, []
    while sweep.state is not SweepState.DONE and now < until_s:
        at = sweep.pwm_us if pwm is None else pwm(now, sweep)
        reading = sweep.advance(BenchSnapshot(now, [at], at, pwm_us=at, voltage_v=15.0, current_a=1.0))
        out += [reading] if reading else []
        now += dt
    return sweep, out, now


@pytest.mark.parametrize("path", sorted(BENCHES.glob("*.toml")), ids=lambda p: p.stem)
def test_shipped_bench_files_load(path):
    assert load_bench(path).name


def test_the_sweep_of_paper_2(hx711):
    steps = plan(hx711.sweep)
    assert [step.pwm_us for step in steps[:3]] == [1000, 1020, 1040] and steps[48].pwm_us == 1950
    assert len(steps) == 97 and {step.direction for step in steps[49:]} == {"down"} and steps[-1].pwm_us == 1000


def test_five_readings_over_five_seconds_after_settling(quick):
    _, readings, now = run_through(quick(highest_us=1200.0, step_us=100.0, down=False))
    assert [(r.step.pwm_us, r.number) for r in readings] == [(p, n) for p in (1000, 1100, 1200) for n in range(1, 6)]
    times = [r.time_s for r in readings]
    assert times[0] == pytest.approx(2.5, abs=0.1) and times[4] - times[0] == pytest.approx(4.0, abs=0.1)
    assert times[5] - times[4] == pytest.approx(0.5 + 2.5, abs=0.15), "100 µs at 200 µs/s, settling, one second"


def test_the_pulse_width_never_jumps(quick):
    bench, seen = quick(step_us=200.0, readings=1), []
    run_through(bench, pwm=lambda _, sweep: seen.append(sweep.pwm_us) or sweep.pwm_us)
    assert max(abs(b - a) for a, b in zip(seen, seen[1:], strict=False)) <= 200 * 0.02 + 1e-9


def test_a_throttle_that_moves_away_starts_the_step_again(hx711):
    manual = msgspec.structs.replace(hx711, motor=msgspec.structs.replace(hx711.motor, drive="manual"))
    slipped = lambda now, sweep: sweep.step.pwm_us + (50 if 4.0 < now < 4.1 else 0)  # noqa: E731
    _, readings, _ = run_through(manual, until_s=12.0, pwm=slipped)
    assert [r.number for r in readings][:7] == [1, 2, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("lowest_us = 1000", "lowest_us = 900", "sweep.lowest_us, sweep.highest_us = 900"),
        ("highest_us = 1950", "highest_us = 2050", "2050"),
        ('unit = "gf"', 'unit = "stone"', "scale.unit"),
        ("silence_s = 0.5", "silence_s = 50", "0.1 to 5 s"),
        (r"pattern = '\s*(", r"pattern = '\s*((", "scale.pattern: not a regular expression"),
        (r"([-+]?\d+(?:\.\d+)?)", r"[-+]?\d+", "scale.pattern: has no group"),
        ("collapse_share = 0.5", "colapse_share = 0.5", "unknown key"),
        ("voltage_min_v = 13.2 ", "#", "limits.voltage_min_v: missing key"),
        (
            "tolerance_us = 5",
            "tolerance_us = 40",
            "tolerance_us = 40: the test of the output before a sweep drives the"
            " motor at 1081 µs, above motor.pwm_min_us by twice the tolerance: at most 24",
        ),
    ],
)
def test_bench_files_are_strict(tmp_path, old, new, words):
    text = (BENCHES / "hx711.toml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "b.toml").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        load_bench(tmp_path / "b.toml")
    assert words in str(error.value) and "\n" not in str(error.value)


class Lines:
    """A port that gives what it is fed."""

    trouble = ""

    def __init__(self):
        self.data = b""

    def read(self):
        data, self.data = self.data, b""
        return data


@pytest.mark.parametrize(
    ("name", "line", "newtons"),
    [
        ("hx711", b"512.3\n", 512.3),
        ("hx711", b" -12 g\r\n", -12.0),
        ("kitchen_scale", b"ST,GS,+  512.3 g\r\n", -512.3),
        ("kitchen_scale", b"  101 g\n", -101.0),
    ],
)
def test_lines_of_scales(name, line, newtons):
    port = Lines()
    scale = Scale(port, load_bench(BENCHES / f"{name}.toml").scale)
    port.data = line[:3]
    assert scale.poll(0.0) == []
    port.data = line[3:]
    assert scale.poll(1.0) == pytest.approx([newtons * 9.80665e-3]) and scale.value_s == 1.0


@pytest.mark.parametrize("line", [b"ERR 5\n", b"12.3.4\n", b"1e400\n", b"\xff\xfe\x00\n", b"12 34\n", b"x" * 300])
def test_text_is_not_a_reading(hx711, line):
    port = Lines()
    scale = Scale(port, hx711.scale)
    port.data = line
    assert scale.poll(0.0) == [] and scale.text
    port.data = b"\n7\n"
    assert scale.poll(0.0) == pytest.approx([7 * 9.80665e-3]) and not scale.text


def test_the_live_plot_rises_from_corner_to_corner():
    picture = plot([(1000 + i, i * 0.01) for i in range(1000)], (1000, 2000)).splitlines()
    assert len(picture) == PLOT_HEIGHT + 1 and picture[0].startswith("  9.99 N")
    first = [next((i for i, c in enumerate(row[9:]) if c != "\u2800"), None) for row in picture[:-1]]
    assert first == sorted(first, reverse=True) and first[-1] == 0
    assert plot([], (1000, 2000)).count("\u2800") == PLOT_HEIGHT * 60


def test_the_live_picture_follows_a_run(quick):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, height=40)
    bench = quick(step_us=100.0, readings=2, down=False)
    shown, sweep = LiveDisplay(console), Sweep(bench, plan(bench.sweep))
    shown.begin(bench, 1, sweep, Progress())
    _, readings, _ = run_through(bench)
    for reading in readings:
        shown.update(sweep, BenchSnapshot(reading.time_s, thrust_n=3.21, pwm_us=1500.0, voltage_v=15.5, current_a=9.0))
        shown.reading(reading)
    shown.end()
    text = screen.getvalue()
    assert "battery 1" in text and "22/22" in text and "3.210 N" in text and "15.50 V" in text and "\u28ff" not in text
    assert "1950.00 N" in text and any("\u2801" <= c <= "\u28ff" for c in text)
    shown.end()
