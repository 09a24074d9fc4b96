"""`companion tune`: what it finds in a simulated pilot's log, in real logs, and logs that it cannot use."""

import json
import os
import tomllib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from pilot_logs import Resets, flight_log, ulog

from companion.cli import main
from companion.core.errors import UserError
from sitl.teleop import response, tello, tune_command
from sitl.teleop.pilot_log import PilotLog, Signal, Upsampling, Window, read_pilot_log, window
from sitl.teleop.tune import PUBLISHED_START, ParameterSet, Part, SetName, divide, parameter_set, tune
from sitl.teleop.tune_command import tune_

SHARED = Path(os.environ.get("COMPANION_SHARED_DATA", Path(__file__).parents[2].parent / "shared/data")) / "ulog"
needs_logs = pytest.mark.skipif(not SHARED.is_dir(), reason=f"needs {SHARED} (another place: COMPANION_SHARED_DATA)")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(tune_, [str(argument) for argument in arguments])


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    return result.stderr


def test_the_set_of_the_paper_has_its_sixteen_parameters_bounds_and_start() -> None:
    gains = parameter_set(SetName.GAINS)
    assert gains.free == tello.GAINS and len(gains.free) == 16
    assert (gains.low == 0.0).all() and (gains.high == 30.0).all() and (gains.start == PUBLISHED_START).all()
    full = gains.full(np.array([[tello.TABLE_2[name] for name in gains.free]]))
    assert full[0] == pytest.approx(tello.vector(tello.PUBLISHED))


def test_a_simulated_pilots_log_is_fitted_and_the_held_out_part_too(pilots, tmp_path: Path) -> None:
    """The pilot flew another aircraft with other laws; fewer generations than published."""
    log = pilots("paper4").write(tmp_path / "pilot.csv")
    out, result, plots = tmp_path / "fitted.toml", tmp_path / "result.json", tmp_path / "plots"
    files = ("--out", out, "--json", result, "--plots", plots)
    done = run(log, "--fit", 8, "--held-out", 10, "--generations", 190, *files)
    assert done.exit_code == 0, done.output
    found = json.loads(result.read_text())
    assert found["start_diverged"] and found["gain"] > 20.0
    assert found["ise_fitted"]["sum"] < found["ise_published"]["sum"] / 5.0
    assert found["held_out_ratio"] < 1.5
    assert set(tomllib.loads(out.read_text())["parameters"]) == set(tello.PARAMETERS) - {"floor"}
    assert (plots / "gains_pilot.png").stat().st_size > 10_000
    from sitl.teleop.parameter_file import read_parameters

    assert read_parameters(out)["k_theta"] == pytest.approx(found["parameters"]["k_theta"], rel=1e-5)


@pytest.mark.verify
@pytest.mark.parametrize("vehicle", ["tello", "paper4"])
def test_20_s_of_a_simulated_pilot_are_fitted_as_the_page_says(vehicle: str, pilots, tmp_path: Path) -> None:
    log = pilots(vehicle, 42.0).write(tmp_path / "pilot.csv")
    found = tune([divide(read_pilot_log(log), 20.0, 20.0)], parameter_set(SetName.GAINS), generations=1000)
    assert found.gain > 20.0
    assert found.held_out_ratio < 1.5


def test_a_candidate_that_is_left_at_its_limit_changes_nothing(pilots, tmp_path: Path, monkeypatch) -> None:
    part = divide(read_pilot_log(pilots("tello").write(tmp_path / "pilot.csv")), 4.0, 5.0)
    gains = parameter_set(SetName.GAINS)
    quick = tune([part], gains, generations=25)
    whole = ParameterSet.errors
    monkeypatch.setattr(ParameterSet, "errors", lambda self, values, part, limits=None: whole(self, values, part))
    assert (tune([part], gains, generations=25).values == quick.values).all()
    assert (tune([part], gains, generations=25, seed=2).values != quick.values).any()


def test_the_drag_is_found_when_the_gains_are_known(pilots, tmp_path: Path) -> None:
    part = divide(read_pilot_log(pilots("tello").write(tmp_path / "pilot.csv")), 10.0, 5.0)
    found = tune([part], parameter_set(SetName.DRAG, {"b_phi": 2.0, "b_theta": 2.0}), generations=60).parameters()
    assert found["b_theta"] == pytest.approx(0.5, rel=0.1)
    assert found["b_phi"] == pytest.approx(0.5, rel=0.1)


def test_a_delay_of_the_sticks_is_found() -> None:
    rng = np.random.default_rng(3)
    sticks = np.repeat(rng.uniform(-0.4, 0.4, (30, 4)), 200, axis=0)
    true = {**tello.PUBLISHED, "delay_s": 0.12}
    start = tello.start_state(np.array([1.5, 0.0, 0.0, 0.0]), np.zeros(4))
    flown = tello.follow(tello.vector(true), start, sticks).path
    delays = np.array([tello.vector({**true, "delay_s": d}) for d in (0.0, 0.11, 0.12, 0.13)])
    assert int(np.argmin(tello.errors(delays, start, sticks, flown).sum(axis=1))) == 2


def test_the_response_of_a_flight_controller_is_found_again() -> None:
    what = parameter_set(SetName.EMULATOR)
    rng = np.random.default_rng(1)
    sticks = np.repeat(rng.uniform(-0.8, 0.8, (40, 4)), 250, axis=0)
    sticks[-2000:] = sticks[-1]
    true = dict(what.base) | {"scale_phi": 0.6, "p_phi": 6.0, "lag_phi": 0.05, "trim_phi": 0.02, "delay_s": 0.04}
    row = np.array([true[name] for name in response.PARAMETERS])
    flown = response.follow(row, np.zeros(8), sticks)
    guesses = np.array([row, row * 1.05])
    errors = response.errors(guesses, np.zeros(8), sticks, flown)
    assert errors[0].max() < 1e-20 < errors[1].min()
    assert flown[-1, 3] == pytest.approx(0.6 * sticks[-1, 3] + 0.02, abs=0.001)


@pytest.mark.parametrize("names", ["old", "new"])
def test_a_ulog_is_read_as_the_flight_it_was(names: str, pilots, tmp_path: Path) -> None:
    pilot = pilots("paper4")
    log = read_pilot_log(ulog(tmp_path / "flight.ulg", pilot, names))
    assert any("number 1, is used" in note for note in log.notes)  # the other instance is idle
    start_s, end_s = log.longest
    assert end_s - start_s > 25.0
    got = window(log, start_s, 10.0)
    same = read_pilot_log(pilot.write(tmp_path / "flight.csv"))
    at = start_s + 0.0  # both begin with the first attitude
    expected = window(same, at, 10.0)
    assert np.abs(got.sticks - expected.sticks).mean() < 0.02
    assert np.sqrt(((got.flown - expected.flown) ** 2).mean(axis=0)) == pytest.approx([0.0] * 4, abs=0.02)


@pytest.mark.parametrize("by_attitude", [True, False])
def test_resets_of_px4s_heading_and_height_are_undone(by_attitude: bool, pilots, tmp_path: Path) -> None:
    pilot = pilots("paper4")
    resets = Resets(15.0, 0.4, -1.5, by_attitude)
    log = read_pilot_log(ulog(tmp_path / "reset.ulg", pilot, resets=resets))
    plain = read_pilot_log(ulog(tmp_path / "plain.ulg", pilot))
    assert log.height.value == pytest.approx(plain.height.value, abs=1e-5)
    assert log.attitude.value == pytest.approx(plain.attitude.value, abs=1e-5)
    assert [note for note in log.notes if "set its" in note] == [
        "PX4 set its heading again while it flew: undone (0.40 rad)",
        "PX4 set its height again while it flew: undone (1.50 m)",
    ]


def test_the_held_out_part_runs_on_from_the_end_of_the_fitted_one(tmp_path: Path) -> None:
    """A flight of the model itself, with integrals that are not zero at the end of the fitted part, is predicted exactly."""
    sticks = np.repeat(np.random.default_rng(5).uniform(-0.3, 0.5, (20, 4)), 500, axis=0)
    start = tello.start_state(np.array([1.5, 0.0, 0.0, 0.0]), np.zeros(4))
    flown = tello.follow(tello.vector(tello.PUBLISHED), start, sticks).path
    log = PilotLog(tmp_path, *(Signal(np.zeros(0), np.zeros((0, 1))),) * 3, [], [])
    part = Part(log, Window(0.0, sticks[:5000], flown[:5000], np.zeros(4)), Window(0.0, sticks, flown, np.zeros(4)))
    what = parameter_set(SetName.DELAY)  # starts at the true value, 0
    found = tune([part], what, generations=1)
    assert part.held_out_s == 5.0
    assert found.start_held_out_errors.max() < 1e-15
    restarted = Window(5.0, sticks[5000:], flown[5000:], np.zeros(4))
    assert what.errors(what.start[None], restarted)[0].max() > 1e-4  # what a start without its past costs


def test_a_flight_log_of_this_stack_gives_the_manual_control_that_it_sent(pilots, tmp_path: Path) -> None:
    log = read_pilot_log(flight_log(tmp_path / "flight.mcap", pilots("paper4")))
    got = window(log, log.longest[0] + 5.0, 5.0)
    same = read_pilot_log(pilots("paper4").write(tmp_path / "flight.csv"))
    expected = window(same, log.longest[0] + 5.0 - 500.0, 5.0)
    assert np.abs(got.sticks - expected.sticks).mean() < 0.02
    assert np.abs(got.flown - expected.flown).mean() < 0.02


def test_held_samples_lag_by_half_a_sample_as_in_the_paper(pilots, tmp_path: Path) -> None:
    log = read_pilot_log(ulog(tmp_path / "flight.ulg", pilots("paper4")))
    held, linear = (window(log, log.longest[0], 8.0, way).flown[:, 0] for way in (Upsampling.HELD, Upsampling.LINEAR))
    assert len(np.unique(held)) <= 82
    assert len(np.unique(linear)) > 4000


@needs_logs
@pytest.mark.parametrize(("name", "instances"), [("hexa_stabilised_3s", 2), ("hexa_altitude_4s", 1)])
def test_real_logs_of_a_pilot_are_read_and_their_tilt_follows_the_sticks(name: str, instances: int) -> None:
    log = read_pilot_log(SHARED / f"{name}.ulg")
    assert any("instances" in note for note in log.notes) == (instances > 1)
    part = divide(log, 18.0, 9.0, 1.0)
    for axis in (2, 3):
        assert np.corrcoef(part.fitted.sticks[:, axis], part.fitted.flown[:, axis])[0, 1] > 0.9
    found = tune([part], parameter_set(SetName.EMULATOR), generations=150)
    for axis in (2, 3):  # attitude within 3° of what was flown, also where it was not fitted
        assert np.sqrt(found.errors[axis] / found.fitted_s) < 0.05
        assert np.sqrt(found.held_out_errors[axis] / found.held_out_s) < 0.05


@needs_logs
def test_real_logs_without_a_pilot_are_one_line() -> None:
    assert "no manual_control_setpoint in the log" in refused(SHARED / "px4_v117_hexa_excitation.ulg")
    assert "the sticks do not move" in refused(SHARED / "quad_mission_esc_status.ulg")


def test_logs_that_cannot_be_used_are_one_line(pilots, tmp_path: Path) -> None:
    pilot = pilots("paper4")
    text, binary, path = tmp_path / "notes.txt", tmp_path / "noise.bin", tmp_path / "flight.csv"
    text.write_text("hello\n")
    binary.write_bytes(bytes(range(256)))
    assert "nowhere.ulg: no such file" in refused(tmp_path / "nowhere.ulg")
    assert "has no column t_s" in refused(text)
    assert "neither a ULog nor a log of this stack nor a CSV file" in refused(binary)
    cut = tmp_path / "cut.ulg"
    cut.write_bytes(b"ULog\x01\x12\x35\x01")
    assert "cut.ulg: damaged beyond reading" in refused(cut)
    for topic in ("manual_control_setpoint", "vehicle_attitude", "vehicle_local_position"):
        assert f"no {topic} in the log" in refused(ulog(tmp_path / f"{topic}.ulg", pilot, skip=topic))
    nothing = np.full(len(pilot["t_s"]), np.nan)
    numbers = dict.fromkeys(("ahead", "right", "yaw", "climb"), nothing)
    assert "the sticks do not move" in refused(ulog(tmp_path / "nan.ulg", pilot, **numbers))
    assert "no MANUAL_CONTROL in the log" in refused(flight_log(tmp_path / "alone.mcap", pilot, with_sticks=False))
    pilot.write(path)
    assert "s in the air without gaps; 60 s to fit and 5 s to check are needed" in refused(path, "--fit", 60)
    rows = path.read_text().splitlines()
    for cell, words in (("nan", "row 5: a value is not a finite number"), ("", "row 5: a value is missing")):
        broken = rows.copy()
        broken[4] = ",".join([*rows[4].split(",")[:1], cell, *rows[4].split(",")[2:]])
        path.write_text("\n".join(broken))
        assert words in refused(path)
    path.write_text("\n".join([rows[0], *reversed(rows[1:])]))
    assert "t_s does not rise" in refused(path)


def test_a_path_of_a_spreadsheet_is_read(pilots, tmp_path: Path) -> None:
    path = pilots("paper4").write(tmp_path / "flight.csv")
    path.write_text(path.read_text(), encoding="utf-8-sig")  # the byte order mark that Excel writes
    assert read_pilot_log(path).spans


def test_bounds_and_parameters_that_cannot_be_used_are_one_line(pilots, tmp_path: Path) -> None:
    log = pilots("paper4").write(tmp_path / "flight.csv")
    assert "not in the set 'delay'" in refused(log, "--set", "delay", "--bound", "k_z=0:1")
    for bound in ("k_z", "k_z=1:1", "k_z=a:b", "k_z=0:nan", "k_z=-1:1"):
        assert f"--bound {bound}: " in refused(log, "--bound", bound)
    file = tmp_path / "p.toml"
    file.write_text("[parameters]\ndelay_s = 0.9\n")
    assert "delay_s = 0.9: outside of its bounds 0 to 0.5" in refused(log, "--set", "delay", "--parameters", file)
    assert "'emulator' has none of them" in refused(log, "--set", "emulator", "--parameters", file)
    with pytest.raises(UserError, match="unknown parameter"):
        file.write_text("[parameters]\nspeed = 1.0\n")
        from sitl.teleop.parameter_file import read_parameters

        read_parameters(file)


def test_a_fit_of_the_set_emulator_names_the_set_where_it_is_refused(pilots, tmp_path: Path) -> None:
    """The refusal said only "scale_z: unknown parameter"."""
    log, out = pilots("paper4").write(tmp_path / "flight.csv"), tmp_path / "em.toml"
    arguments = ("--set", "emulator", "--fit", 10, "--held-out", 5, "--generations", 2, "--out", out)
    assert run(log, *arguments).exit_code == 0
    assert "# No command reads this set" in out.read_text()
    for command in (["teleop", "--parameters", str(out)], ["tune", str(log), "--parameters", str(out)]):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 2 and len(result.stderr.strip().splitlines()) == 1, result.output
        assert "em.toml: parameters.scale_z: of the set 'emulator'" in result.stderr


@pytest.mark.parametrize(
    "status, words",
    [
        ({"nav_state": 14}, "other modes"),
        ({"nav_state": 4}, "other modes"),
        ({"nav_state": 2, "vehicle_type": 2}, "multirotor"),
    ],
)
def test_what_no_person_flew_by_hand_on_a_multirotor_does_not_count(status, words, pilots, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words) as found:
        read_pilot_log(ulog(tmp_path / "flight.ulg", pilots("paper4"), status=status))
    assert "no part in the air by hand" in str(found.value) and "\n" not in str(found.value)
    assert read_pilot_log(
        ulog(tmp_path / "hand.ulg", pilots("paper4"), status={"nav_state": 15, "vehicle_type": 1})
    ).spans


def test_a_mission_in_a_log_of_this_stack_does_not_count(pilots, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="by hand"):
        read_pilot_log(flight_log(tmp_path / "offboard.mcap", pilots("paper4"), mode="OFFBOARD"))


def test_sticks_that_are_not_valid_and_impossible_heights_are_left_out(pilots, tmp_path: Path) -> None:
    pilot = pilots("paper4")
    t_s = pilot["t_s"]
    valid = t_s > 15.0
    log = read_pilot_log(ulog(tmp_path / "valid.ulg", pilot, valid=valid))
    assert log.sticks.t_s[0] > 15.0 and log.longest[0] > 15.0
    high = np.where((t_s > 5.0) & (t_s < 6.0), 1e30, pilot["z_m"])
    log = read_pilot_log(ulog(tmp_path / "high.ulg", pilot, z_m=high))
    assert np.abs(log.height.value).max() < 100.0 and any("heights beyond 10 km" in note for note in log.notes)


def test_time_that_runs_back_is_one_line(pilots, tmp_path: Path) -> None:
    pilot = pilots("paper4")
    t_s = pilot["t_s"].copy()
    t_s[len(t_s) // 2 :] -= 5.0
    path = flight_log(tmp_path / "back.mcap", pilot._replace(columns=pilot.columns | {"t_s": t_s}))
    with pytest.raises(UserError, match=r"back\.mcap: time runs back by 5\.\d s within the log"):
        read_pilot_log(path)


def test_files_that_are_no_logs_are_refused_before_they_are_read(tmp_path: Path) -> None:
    sparse, zeros = tmp_path / "sparse.ulg", tmp_path / "zeros.csv"
    with sparse.open("wb") as file:
        file.truncate(4_000_000_000)
    zeros.write_bytes(bytes(10_000))
    for path, words in ((sparse, "4.0 GB; at most 2 GB"), (zeros, "neither a ULog"), (Path("/dev/zero"), "not a file")):
        with pytest.raises(UserError, match=words):
            read_pilot_log(path)
    with pytest.raises(UserError, match="not a file"):
        read_pilot_log(tmp_path)


def test_ctrl_c_keeps_the_best_candidate(pilots, tmp_path: Path, monkeypatch) -> None:
    path = ulog(tmp_path / "flight.ulg", pilots("tello"))
    real, calls = tune_command.tune, []

    def interrupted(parts, what, seed, generations, progress):
        def stop(generation, cost):
            calls.append(generation)
            if generation == 3:
                raise KeyboardInterrupt

        return real(parts, what, seed, generations, stop)

    monkeypatch.setattr(tune_command, "tune", interrupted)
    out = tmp_path / "best.toml"
    done = CliRunner().invoke(tune_command.tune_, [str(path), "--fit", "5", "--held-out", "5", "--out", str(out)])
    assert done.exit_code == 130, done.output
    assert "interrupted: the best candidate after 3 generations" in done.output
    assert "Interrupted after 3 generations" in out.read_text() and calls == [1, 2, 3]
