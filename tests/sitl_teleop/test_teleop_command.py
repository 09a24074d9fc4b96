"""`companion teleop`: sources of sticks, tasks, scores, faults, collisions, and inputs that cannot be used."""

import contextlib
import csv
import json
import math
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from companion.cli import main
from companion.core.config_files import ConfigKind, find_config
from companion.core.errors import UserError
from companion.core.site import load_site
from companion.remote.flight_modes import FlightMode
from sitl.teleop import results
from sitl.teleop.command import RESULTS
from sitl.teleop.faults import Faults, parse_fault
from sitl.teleop.flight import COLUMNS, TrainingFlight
from sitl.teleop.results import append_row
from sitl.teleop.session_log import write_session_log
from sitl.teleop.sources import SimulatedPilot, StickFile, from_manual_control
from sitl.teleop.sticks import Pose, Sticks
from sitl.teleop.tasks import Hold, Land
from sitl.teleop.tello import Tello
from sitl.wind import CALM, Wind

HEAD = "t_s,ahead,right,climb,yaw\n"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["teleop", *map(str, arguments)])


def score(*arguments: object) -> dict[str, float]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def sticks(tmp_path: Path):
    def write(rows: str, head: str = HEAD) -> Path:
        file = tmp_path / "sticks.csv"
        file.write_text(head + rows, encoding="utf-8")
        return file

    return write


@pytest.mark.parametrize("vehicle", ["tello", "paper4"])
@pytest.mark.parametrize("task", ["hold", "square", "land"])
def test_a_simulated_pilot_completes_every_task_with_every_vehicle(vehicle: str, task: str) -> None:
    got = score("--vehicle", vehicle, "--task", task)
    assert got["completed"] and got["collisions"] == 0
    assert got["error_rms_m"] < {"hold": 0.2, "square": 0.6, "land": 0.3}[task]
    assert got["time_s"] > 5.0 and got["jerk_rms_m_s3"] > 0.0 and got["stick_travel_1_s"] > 0.0


def test_a_stick_file_is_flown_and_its_path_and_score_are_written(sticks, tmp_path: Path) -> None:
    file = sticks("0,0,0,0.5,0\n1,0,0,0,0\n2,0.5,0,0,0.2\n4,0,0,0,0\n")
    path, table = tmp_path / "out" / "path.csv", tmp_path / "results.csv"
    for _ in range(2):
        got = run("--sticks", file, "--duration", 5, "--csv", path, "--results", table, "--name", "A, B")
        assert got.exit_code == 0, got.output
    with path.open() as opened:
        rows = list(csv.DictReader(opened))
    assert tuple(rows[0]) == COLUMNS and len(rows) == 501
    assert float(rows[300]["ahead"]) == 0.5 and float(rows[-1]["x_m"]) > 0.2 and float(rows[-1]["yaw_rad"]) < -0.5
    with table.open() as opened:
        rows = list(csv.DictReader(opened))
    assert len(rows) == 2 and tuple(rows[0]) == RESULTS
    assert rows[0]["pilot"] == "A, B" and rows[0]["completed"] == "0" and rows[0]["end"] == "time over"


def test_a_stick_file_of_a_spreadsheet_is_read(sticks) -> None:
    """With the byte order mark that Excel writes the first column had another name."""
    file = sticks("0,0,0,0.5,0\n", "\ufeff" + HEAD)
    assert StickFile(file).sticks(1.0) == Sticks(climb=0.5)


def test_the_same_seed_gives_the_same_flight_and_gusts_make_it_worse() -> None:
    calm, again, gusty = (score(*given) for given in ((), (), ("--gusts", 0.4)))
    assert calm == again
    assert gusty["error_rms_m"] > 2 * calm["error_rms_m"]
    windy = score("--vehicle", "paper4", "--wind", "3,0,0", "--gusts", 1.0)  # its pilot leans against the wind
    assert windy["completed"] and windy["error_rms_m"] < 0.6


def test_faults_act_in_their_time() -> None:
    faults = Faults([parse_fault(text) for text in ("thrust_loss@1-2=0.25", "torque_yaw@1=0.1", "sticks_held@3-4")])
    assert faults.air(0.5, (0.0, 0.0, 0.0)).thrust_factor == 1.0
    assert faults.air(1.5, (0.0, 0.0, 0.0)) == ((0.0, 0.0, 0.0), 0.75, (0.0, 0.0, 0.1))
    assert faults.sticks(2.9, Sticks(0.5)) == Sticks(0.5)
    assert faults.sticks(3.5, Sticks(-0.5)) == Sticks(0.5)
    assert faults.sticks(4.0, Sticks(-0.5)) == Sticks(-0.5)
    assert Faults([parse_fault("sticks_lost@0")]).sticks(1.0, Sticks(0.5)) is None


def test_a_fall_is_a_collision_and_a_wall_too(tmp_path: Path) -> None:
    assert score("--fault", "thrust_loss@8-9.5=1", "--duration", 15)["collisions"] == 1
    world = tmp_path / "wall.toml"
    world.write_text(
        'name = "wall"\ndescription = "one wall"\n[[solid]]\nkind = "box"\nname = "wall"\np_W = [3.0, 0.0, 2.0]\n'
        'size_m = [0.2, 8.0, 4.0]\nmaterial = "cement"\ntexture = "wallpaper"\ntexture_width_m = 4.0\nseed = 1\n'
    )
    sticks_file = tmp_path / "into.csv"
    sticks_file.write_text(HEAD + "0,0,0,1,0\n1,0.5,0,0,0\n")
    path = tmp_path / "path.csv"
    got = score("--sticks", sticks_file, "--world", world, "--duration", 12, "--csv", path)
    assert got["collisions"] == 1
    with path.open() as opened:
        assert max(float(row["x_m"]) for row in csv.DictReader(opened)) < 2.9 - Tello.radius_m + 0.01


def test_manual_control_is_read_as_px4_reads_it() -> None:
    assert from_manual_control(1000, -500, 500, 250) == Sticks(1.0, -0.5, 0.0, 0.25)
    assert from_manual_control(0, 0, 0, 0) == Sticks(0.0, 0.0, -1.0, 0.0)
    for bad in ((1001, 0, 500, 0), (0, 0, -1, 0), (0, 0, 1001, 0), (0, 32767, 500, 0)):
        assert from_manual_control(*bad) is None


def test_lost_sticks_are_centred_and_counted() -> None:
    class Silent:
        def sticks(self, now_s: float) -> Sticks | None:
            return Sticks(climb=1.0) if now_s < 1.0 else None

    flight = TrainingFlight(Tello(), Silent(), Hold(np.array([0.0, 0.0, 9.0]), 5.0), Wind(CALM, 1), Faults([]))
    flown = flight.run(3.0)
    assert flown.sticks_lost_s == pytest.approx(2.0)
    assert float(flown.rows[-1][8]) == pytest.approx(2.8, abs=0.05)
    assert not flown.score.completed and math.isnan(flown.score.error_rms_m)


@pytest.mark.parametrize(
    ("rows", "head", "words"),
    [
        ("0,0,0,0,nan\n", HEAD, "row 2: yaw = 'nan' is not a number"),
        ("0,0,0,0\n", HEAD, "row 2: yaw = None is not a number"),
        ("0,0,1.2,0,0\n", HEAD, "row 2: right = 1.2 (allowed: -1 to 1)"),
        ("0,0,0,0,0\n0,0,0,0,0\n", HEAD, "row 3: t_s = 0 is not after the row before"),
        ("0,0,0,0\n", "t_s,ahead,right,climb\n", "no column yaw"),
        ("0,0,0,0,0,upside\n", HEAD.strip() + ",mode\n", "mode = 'upside' (allowed: body, headless)"),
        ("0,0,0,0,0,headless\n", HEAD.strip() + ",mode\n", "no headless mode: choose --vehicle paper4"),
        ("", HEAD, "no rows"),
    ],
)
def test_a_stick_file_that_cannot_be_flown_is_one_line(rows: str, head: str, words: str, sticks) -> None:
    result = run("--sticks", sticks(rows, head))
    assert result.exit_code == 2
    assert words in result.stderr and len(result.stderr.strip().splitlines()) == 1


def test_other_files_and_options_that_cannot_be_used_are_one_line(tmp_path: Path) -> None:
    binary, other, parameters = tmp_path / "binary.csv", tmp_path / "other.csv", tmp_path / "p.toml"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    other.write_text("a,b\n1,2\n")
    cases = {
        ("--sticks", tmp_path / "none.csv"): "none.csv: no such file",
        ("--sticks", binary): "not a text file",
        ("--sticks", "udp:80"): "allowed ports: 1024 to 65535",
        ("--results", other): "has other columns",
        ("--mode", "headless"): "choose --vehicle paper4",
        ("--world", "corridr"): "corridr",
        ("--fault", "thrust_los@1=0.2"): "did you mean 'thrust_loss'?",
        ("--fault", "thrust_loss@1=2"): "allowed: 0 to 1 of the thrust",
        ("--fault", "sticks_lost@5-4"): "ends before it starts",
        ("--fault", "sticks_lost"): "KIND@START",
        ("--vehicle", "paper4", "--parameters", parameters): "for --vehicle tello",
    }
    for given, words in cases.items():
        result = run(*given)
        assert result.exit_code == 2, given
        assert words in result.stderr and len(result.stderr.strip().splitlines()) == 1, result.stderr
    for text, words in {
        "a = 1": "no table [parameters]",
        "[parameters]\nkp_zz = 1.0": "did you mean 'kp_z'?",
        "[parameters]\nkp_z = nan": "allowed: 0 to 1000",
        "[parameters]\nm = 0.0": "must be above 0",
        "[": "not a TOML file",
    }.items():
        parameters.write_text(text)
        result = run("--parameters", parameters)
        assert result.exit_code == 2 and words in result.stderr, result.stderr
    result = run("--wind", "1,2")
    assert result.exit_code == 2 and "3 numbers between commas" in result.stderr


def test_a_table_of_another_kind_is_never_appended_to(tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="other columns"):
        append_row(other, ("x", "y"), (1, 2.0))
    assert other.read_text() == "a,b\n1,2\n"


@pytest.mark.parametrize("end", ["", "\r\n"])
def test_a_row_begins_on_a_line_of_its_own(tmp_path: Path, end: str) -> None:
    """The row was glued to the last one of a table without a newline at its end."""
    table = tmp_path / "t.csv"
    table.write_bytes(b"\xef\xbb\xbfa,b\r\n1,2" + end.encode())  # as Excel saves it
    append_row(table, ("a", "b"), (3, 4))
    append_row(table, ("a", "b"), (5, 6))
    with table.open(encoding="utf-8-sig", newline="") as file:
        assert list(csv.reader(file)) == [["a", "b"], ["1", "2"], ["3", "4"], ["5", "6"]]


def test_two_flights_that_end_at_a_time_write_one_head(tmp_path: Path, monkeypatch) -> None:
    both, real = threading.Barrier(2), results._quoted

    def meet(cell: object) -> str:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2)  # both have found an empty file, unless a lock keeps the second one out
        return real(cell)

    monkeypatch.setattr(results, "_quoted", meet)
    table = tmp_path / "t.csv"
    flights = [threading.Thread(target=append_row, args=(table, ("a", "b"), (i, 1))) for i in range(2)]
    for flight in flights:
        flight.start()
    for flight in flights:
        flight.join()
    assert sorted(table.read_text().splitlines()) == ["0,1", "1,1", "a,b"]


BUNDLE = np.array([2.0, 1.0, 0.0])


def observed(task: Land, start_s: float, duration_s: float, p_W: tuple[float, float, float]) -> float:
    """Let a task see an aircraft at a place for some time; when that ends."""
    pose = Pose(np.array(p_W), np.zeros(3), np.eye(3), 0.0, p_W[2] == 0.0, 0.0, False)
    for tick in range(round(duration_s / 0.01)):
        task.observe(start_s + 0.01 * tick, pose, 0.2)
    return start_s + duration_s


def test_a_pilot_who_rests_beside_the_bundle_may_try_again() -> None:
    """After 1 s of rest beside the bundle the task could never be completed, and the flight went on."""
    task = Land(BUNDLE, load_site(find_config("floor", ConfigKind.MARKERS)).bundle[0])
    t_s = observed(task, 0.0, 2.0, (0.0, 0.0, 1.0))
    t_s = observed(task, t_s, 1.5, (0.0, 0.0, 0.0))
    assert not task.running() and not task.done()
    errors, time_s, _ = task.result()
    assert errors == [pytest.approx(math.hypot(2, 1))] and time_s == pytest.approx(2.0)
    t_s = observed(task, t_s, 3.0, (0.0, 0.0, 1.0))
    assert task.running()
    t_s = observed(task, t_s, 0.9, (2.0, 1.0, 0.0))
    assert task.running() and not task.done()
    t_s = observed(task, t_s, 0.2, (2.0, 1.0, 0.0))
    assert task.done() and task.result() == ([0.0], pytest.approx(6.5), 0.2)
    observed(task, t_s, 1.0, (0.0, 0.0, 1.0))
    assert task.done()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_training_keeps_what_was_flown(number, tmp_path: Path, monkeypatch) -> None:
    """Ctrl-C lost row, path and log."""
    from companion.recording.log import read_log

    real, log, path, table = SimulatedPilot.sticks, tmp_path / "s.mcap", tmp_path / "s.csv", tmp_path / "t.csv"

    def pressed(pilot: SimulatedPilot, now_s: float) -> Sticks | None:
        if now_s >= 8.0:
            os.kill(os.getpid(), number)
        return real(pilot, now_s)

    def again(*given: object) -> None:
        os.kill(os.getpid(), number)  # a terminal that closes sends SIGHUP more than once
        write_session_log(*given)

    monkeypatch.setattr(SimulatedPilot, "sticks", pressed)
    monkeypatch.setattr("sitl.teleop.command.write_session_log", again)
    former = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    for each in former:
        signal.signal(each, signal.SIG_DFL)
    try:
        result = run("--task", "hold", "--csv", path, "--log", log, "--results", table, "--json")
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)
    assert result.exit_code == 130 and json.loads(result.stdout)["end"] == "interrupted", result.output
    with table.open() as file:
        (row,) = csv.DictReader(file)
    assert row["end"] == "interrupted" and row["completed"] == "0" and 1.0 < float(row["time_s"]) < 8.0
    with path.open() as file:
        times = [float(row["t_s"]) for row in csv.DictReader(file)]
    assert times[-1] == pytest.approx(8.0, abs=0.02) and (np.diff(times) > 0.0).all()
    assert len(read_log(log)["state"]) > 300


def test_paper4_is_flown_headless_from_a_file(sticks, tmp_path: Path) -> None:
    file = sticks("0,0,0,1,0,headless\n1,0,0,0,1,headless\n2,0.5,0,0,0,headless\n", HEAD.strip() + ",mode\n")
    assert StickFile(file).modes == {FlightMode.HEADLESS}
    path = tmp_path / "path.csv"
    score("--vehicle", "paper4", "--sticks", file, "--duration", 5, "--csv", path)
    with path.open() as opened:
        last = list(csv.DictReader(opened))[-1]
    assert float(last["yaw_rad"]) == pytest.approx(-1.5, abs=0.1)
    assert float(last["x_m"]) > 2.0 and abs(float(last["y_m"])) < 0.1 * float(last["x_m"])


def test_a_log_of_a_session_is_read_by_tune_and_by_the_view(tmp_path: Path) -> None:
    from companion.view.digest import TRACKS
    from companion.view.log_window import LogIndex
    from companion.view.scene import scene_of, tables_of_log
    from sitl.teleop.pilot_log import read_pilot_log, window

    log, path = tmp_path / "session.mcap", tmp_path / "session.csv"
    arguments = ("--vehicle", "paper4", "--task", "square", "--duration", 9, "--log", log)
    assert run(*arguments, "--csv", path).exit_code == 0
    by_log, by_path = (window(read_pilot_log(file), 4.0, 4.0) for file in (log, path))
    assert np.abs(by_log.sticks - by_path.sticks).mean() < 0.02  # 50 of the 100 samples a second
    assert by_log.flown == pytest.approx(by_path.flown, abs=0.002)
    index = LogIndex(log)
    digest = index.read(*index.window_s(0))
    states = np.array(digest.rows["state"]).reshape(-1, len(TRACKS["state"]))
    assert len(states) > 150 and states[:, 3].max() > 1.0
    assert scene_of(tables_of_log(index.metadata))["title"] == "paper4, square"
    assert "logs are never overwritten" in run(*arguments).stderr
