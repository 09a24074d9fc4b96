"""The whole bench command on a simulated bench: from the first question to the vehicle file."""

import json

import numpy as np
import pytest
from bench_user import User
from calibration_paths import BENCHES
from click.testing import CliRunner
from thrust_stand import Battery, Motor, record, script, sweep, up_and_down, write_csv

from calibration.thrust.curve import fit_thrust
from calibration.thrust.steps import steps_of
from calibration.thrust.table import read_thrust_csv
from companion.cli import main
from companion.core.config import load
from companion.core.frames import GRAVITY_M_S2
from companion.core.vehicle import Vehicle
from sitl import bench


def curve_error(user, factor_range=(1000, 1951), voltages=(14.0, 15.2, 16.4)):
    """Largest difference between fitted and simulated motor, as a share of full thrust."""
    curve = fit_thrust([steps_of(run) for run in read_thrust_csv(user.raw)]).curve
    pwm = np.arange(*factor_range, 25.0)
    return max(
        abs(float(curve.thrust_n((p - 1000) / 1000, v)) - user.world.truth_n(p, v)) / user.world.truth_n(1950, v)
        for p in pwm
        for v in voltages
    )


@pytest.mark.parametrize(("factor", "step_us", "steps"), [(0.0, 100, 21), (0.6, 50, 39)])
def test_two_batteries_to_a_vehicle_file(tmp_path, monkeypatch, vehicle, factor, step_us, steps):
    user = User(monkeypatch, tmp_path, charges=(0.95, 0.1), factor=factor, step_us=step_us)
    files = "--json", tmp_path / "r.json", "--plot", tmp_path / "p.png", "--vehicle", vehicle, "--yes"
    done = user.call(*files, "--thr-mdl-fac", factor)
    assert done.exit_code == 0, done.output
    assert [q.split()[0] for q in user.questions] == ["Type", "Battery", "Type"]
    assert user.motor_is_off()
    assert len(user.rows()) == 2 * steps * 5
    assert curve_error(user) < 0.01
    written, truth = load(vehicle, Vehicle).thrust, user.world.airframe
    k_T = 6 * truth.rotor.thrust_max_n / truth.mass_kg  # at full command; the line through the hover is 6 % lower
    assert written.coefficient_m_s2 == pytest.approx(k_T * 0.937, rel=0.01)
    assert written.reference_voltage_v == 15.2 and written.voltage_exponent == pytest.approx(1.6, abs=0.03)
    assert written.model_factor == factor, "the thrust coefficient belongs to it"
    assert "[" in vehicle.read_text().split("coefficient_m_s2")[1].split("\n")[0]
    content = json.loads((tmp_path / "r.json").read_text())
    assert content["command"] == "calibrate thrust" and content["merit"]["r2"] > 0.9999
    assert content["details"]["hover"]["command"] == pytest.approx(0.344, abs=0.004)
    assert (tmp_path / "p.png").stat().st_size > 20_000


def test_the_fit_of_the_saved_data_alone_is_the_same(tmp_path, monkeypatch):
    user = User(monkeypatch, tmp_path, charges=(0.95, 0.1), step_us=100)
    assert user.call("--mass", 1.8, "--json", tmp_path / "bench.json").exit_code == 0
    line = ["calibrate", "thrust", "--fit", str(user.raw), "--mass", "1.8", "--motors", "6"]
    line += ["--json", str(tmp_path / "fit.json")]
    assert CliRunner().invoke(main, line, catch_exceptions=False).exit_code == 0
    bench, fit = (json.loads((tmp_path / name).read_text()) for name in ("bench.json", "fit.json"))
    assert bench == fit


@pytest.mark.parametrize("options", [["--mass", 1.8], ["--vehicle", "vehicle.toml"]])
def test_without_the_number_of_motors_nothing_turns(tmp_path, monkeypatch, vehicle, options):
    """A wrong number gives a wrong thrust coefficient without a word: a quadrotor with the numbers of a hexrotor."""
    user = User(monkeypatch, tmp_path)
    monkeypatch.chdir(vehicle.parent)
    line = ["calibrate", "thrust", "--bench", str(user.bench_file), "--save", str(user.raw), *map(str, options)]
    refused = CliRunner().invoke(main, line, catch_exceptions=False)
    assert refused.exit_code == 2 and "--motors N is missing" in refused.stderr
    assert not user.questions and not user.raw.exists()


def test_a_curve_without_an_aircraft_needs_no_number_of_motors(tmp_path):
    path = write_csv(tmp_path / "stand.csv", stand_rows(), "pwm_us,thrust_n,voltage_v,current_a", unit=1.0)
    line = ["calibrate", "thrust", "--fit", str(path), "--json", str(tmp_path / "r.json")]
    assert CliRunner().invoke(main, line, catch_exceptions=False).exit_code == 0
    values = json.loads((tmp_path / "r.json").read_text())["values"]
    assert "thrust.voltage_exponent" in values and "thrust.coefficient_m_s2" not in values


def test_hovers_that_were_flown_are_enough_for_k_T(tmp_path, vehicle):
    """The F550 of the CTU's table with three loads; at 2.848 kg it hovered at 0.572."""
    hovers = ["--hover", "2.36", "0.5", "--hover", "3.338", "0.64", "--voltage", "15.4", "--mass", "2.848"]
    hovers += ["--thr-mdl-fac", "0.3"]
    line = ["calibrate", "thrust", *hovers, "--vehicle", str(vehicle), "--yes", "--json", str(tmp_path / "r.json")]
    before = vehicle.read_text()
    refused = CliRunner().invoke(main, line, catch_exceptions=False)  # its flights would end by `throttle`
    assert refused.exit_code == 2 and vehicle.read_text() == before
    assert "coefficient_m_s2 = 17.164: hover takes 0.571 of full command" in refused.stderr
    vehicle.write_text(before.replace("thrust_max = 0.65", "thrust_max = 0.9 "))
    done = CliRunner().invoke(main, line, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    content, written = json.loads((tmp_path / "r.json").read_text()), load(vehicle, Vehicle).thrust
    assert content["details"]["hover"]["command"] == pytest.approx(0.572, abs=0.005)
    assert content["merit"]["hover_command_std"] < 0.02
    assert written.coefficient_m_s2 == pytest.approx(9.80665 / 0.572, rel=0.01)
    assert (written.reference_voltage_v, written.voltage_exponent) == (15.4, 1.5)
    assert written.model_factor == 0.3, "the thrust coefficient belongs to it"
    assert "2 hovers flown: ± " in vehicle.read_text()


@pytest.mark.parametrize(("factor", "command"), [(None, 0.344), (0.0, 0.344), (0.7, 0.3)])
def test_hovers_without_the_factor_of_px4_warn_in_one_line(tmp_path, factor, command):
    """With the factor of the motors the command is the share of full thrust, whatever the load is."""
    line = ["calibrate", "thrust", "--hover", "2.3", str(command), "--voltage", "15.2", "--mass", "1.8"]
    line += ["--json", str(tmp_path / "r.json")] + ([] if factor is None else ["--thr-mdl-fac", str(factor)])
    done = CliRunner().invoke(main, line, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert ("warning: --thr-mdl-fac is not given" in done.stderr) == (factor is None)
    content = json.loads((tmp_path / "r.json").read_text())
    assert content["details"]["curve"]["model_factor"] == (factor or 0.0)
    if factor == 0.7:
        assert content["values"]["thrust.coefficient_m_s2"] == pytest.approx(9.80665 / (0.3 * 1.8 / 2.3), rel=0.01)


def test_hovers_with_another_battery_need_the_reference_voltage(vehicle):
    line = ["calibrate", "thrust", "--hover", "1.8", "0.35", "--voltage", "22.8", "--thr-mdl-fac", "0"]
    line += ["--vehicle", str(vehicle), "--yes"]
    refused = CliRunner().invoke(main, line, catch_exceptions=False)
    assert refused.exit_code == 2 and "give --reference-voltage" in refused.stderr
    given = CliRunner().invoke(main, [*line, "--reference-voltage", "22.8"], catch_exceptions=False)
    assert given.exit_code == 0, given.output
    assert load(vehicle, Vehicle).thrust.reference_voltage_v == 22.8


@pytest.mark.parametrize(
    "hovers, why",
    [
        ([(1.8, 0.344), (1.8, 0.62)], "beside the curve"),
        ([(1.8, 0.344), (2.3, 0.30)], "a heavier aircraft hovered at a smaller or the same command"),
    ],
)
def test_hovers_that_contradict_each_other_are_not_written(tmp_path, vehicle, hovers, why):
    words = [str(word) for mass_kg, command in hovers for word in ("--hover", mass_kg, command)]
    line = ["calibrate", "thrust", *words, "--voltage", "15.2", "--thr-mdl-fac", "0"]
    line += ["--vehicle", str(vehicle), "--yes"]
    before = vehicle.read_text()
    refused = CliRunner().invoke(main, line, catch_exceptions=False)
    assert refused.exit_code == 2 and vehicle.read_text() == before
    assert "nothing written: " in refused.stderr and why in refused.stderr
    assert CliRunner().invoke(main, [*line, "--poor-fit"], catch_exceptions=False).exit_code == 0


def test_a_throttle_moved_by_hand(tmp_path, monkeypatch):
    def hand(now_s):
        """Waits for the sweep to begin, then moves up by 50 µs every 3 s, never quite exactly."""
        step = max(now_s - 1006.0, 0.0) // 3.0
        wobble = 1.0 + np.sin(3 * now_s)
        return min(1000.0 + 50.0 * step + wobble, 1951.0)

    user = User(monkeypatch, tmp_path, by_hand=hand)
    user.write_bench("kitchen_scale", sign=1, pattern=r"\s*([-\d.]+)\s*", tolerance_us=8, batteries=1)
    text = user.bench_file.read_text()
    user.bench_file.write_text(text.replace("pattern = '\\\\s*", "pattern = '\\s*").replace("\\\\", "\\"))
    done = user.call("--mass", 1.8)
    assert done.exit_code == 0, done.output
    assert user.world.tests == 0 and user.world.stops == 0, "nothing is sent to a motor that is moved by hand"
    rows = user.rows()
    assert len(rows) == 20 * 5 and all(abs(float(r["pwm_us"]) - float(r["target_us"])) <= 8 for r in rows)
    assert "THROTTLE DOWN" in done.output
    assert curve_error(user, voltages=(16.3,)) < 0.015


def test_the_motor_does_not_turn_without_confirmation(tmp_path, monkeypatch):
    user = User(monkeypatch, tmp_path, answers=["yes"])
    done = user.call()
    assert done.exit_code == 2 and "not confirmed; the motor was not started" in done.output
    assert user.world.tests == 0 and not user.raw.exists()


def test_a_file_with_data_is_never_overwritten(tmp_path, monkeypatch):
    user = User(monkeypatch, tmp_path)
    user.raw.write_text("precious")
    done = user.call()
    assert done.exit_code == 2 and "raw.csv: exists; continue it with --resume" in done.output
    done = user.call("--resume")
    assert done.exit_code == 2 and "raw.csv: not raw data of a thrust bench" in done.output
    assert user.raw.read_text() == "precious" and user.world.tests == 0


def test_a_run_that_was_cut_off_goes_on(tmp_path, monkeypatch):
    user = User(monkeypatch, tmp_path, charges=(0.9, 0.1), step_us=100, answers=["spin", "spin", "plug", "spin"])
    user.world.faults.ctrl_c_s = 1016.0
    stopped = user.call()
    assert stopped.exit_code == 1 and "Ctrl-C; motor off" in stopped.output
    with open(user.raw, "a") as file:
        file.write("1,1,9,up,2,1016.1,19")  # the power went while a line was written
    begun = user.raw.read_text()
    done = user.call("--resume", "--mass", 1.8)
    assert done.exit_code == 0, done.output
    assert user.raw.read_text().startswith(begun.rpartition("\n")[0] + "\n"), "what was measured stays"
    rows = user.rows()
    complete = [(r["battery"], r["step"]) for r in rows if r["reading"] == "5"]
    assert len(complete) == len(set(complete)) == 2 * 21, "no step is left out, none measured twice"
    assert [r["run"] for r in rows if r["battery"] == "2"][0] == "3"
    assert curve_error(user) < 0.015
    again = user.call("--resume", "--mass", 1.8)
    assert again.exit_code == 0 and "no step is left to measure" in again.output
    user.raw.write_text(user.raw.read_text(), encoding="utf-8-sig")  # as a spreadsheet saves it
    assert "no step is left to measure" in user.call("--resume", "--mass", 1.8).output


@pytest.mark.parametrize("change", [{"number": 2}, {"unit": "kgf"}, {"name": "other propeller"}, {"output": 3}])
def test_another_motor_cannot_go_on_in_the_same_file(tmp_path, monkeypatch, change):
    user = User(monkeypatch, tmp_path, step_us=200)
    assert user.call().exit_code == 0
    user.write_bench(step_us=200, **change)
    done = user.call("--resume")
    assert done.exit_code == 2 and "on another bench or with another motor" in done.output, done.output


def test_another_sweep_cannot_go_on_in_the_same_file(tmp_path, monkeypatch):
    user = User(monkeypatch, tmp_path, step_us=200)
    assert user.call().exit_code == 0
    user.write_bench(step_us=100, batteries=1)
    done = user.call("--resume")
    assert done.exit_code == 2 and "was begun with another sweep" in done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give one of --bench FILE, --fit"),
        (["--fit"], "give one of --bench FILE, --fit"),
        (["table.csv"], "give one of --bench FILE, --fit"),
        (["--fit", "absent.csv"], "absent.csv: no such file"),
        (["--hover", "1.8", "0.34"], "--hover needs --voltage"),
        (["--hover", "1.8", "1.34", "--voltage", "15", "--thr-mdl-fac", "0"], "a command between 0 and 1"),
        (
            ["--hover", "1.8", "0.9", "--voltage", "15", "--mass", "5", "--thr-mdl-fac", "0"],
            "5 kg would hover at a command of",
        ),
        (["--hover", "1.8", "0.34", "--voltage", "15"], "--hover with --vehicle needs --thr-mdl-fac"),
        (["--hover", "1.8", "0.34", "--voltage", "3.8", "--thr-mdl-fac", "0"], "volts per cell? multiply them by 4"),
        (
            ["--hover", "1.8", "0.34", "--voltage", "15", "--thr-mdl-fac", "0", "--reference-voltage", "15.2"],
            "--reference-voltage 15.2: with --hover it is that of the hovers, --voltage 15",
        ),
        (
            ["--hover", "1.8", "0.34", "--voltage", "15", "--motors", "6", "--min-us", "1100"],
            "--hover does not use --motors, --min-us",
        ),
        (["--hover", "1.8", "0.34", "--voltage", "15", "--fit"], "give one of --bench FILE, --fit"),
        (["--bench", "absent.toml"], "absent.toml: no such file"),
        (["--fit", "down.csv", "--voltage", "15"], "down.csv: --voltage 15: the table has voltages of its own"),
        (["--fit", "table.csv", "--voltage", "15", "--thrust-unit", "gf"], "'thrust_n' is in n: leave the option out"),
        (
            ["--bench", str(BENCHES / "hx711.toml"), "--voltage", "15", "--thrust-unit", "N", "--command-unit", "us"],
            "--bench does not use --voltage, --thrust-unit, --command-unit: leave out what belongs to --fit",
        ),
        (["--fit", "table.csv"], "table.csv: no column for the voltage"),
        (["--fit", "table.csv", "--voltage", "15", "--pwm-min", "1900"], "less than 300 µs apart"),
        (["--fit", "table.csv", "--voltage", "15", "--mass", "50"], "50 kg on 6 motors cannot hover"),
        (["--fit", "down.csv"], "down.csv: not monotone"),
        (["--fit", "table.csv", "--voltage", "15", "--vehicle", "absent.toml"], "absent.toml: no such file"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(tmp_path, monkeypatch, vehicle, arguments, words):
    monkeypatch.chdir(tmp_path)
    rise = [f"{1000 + 50 * i},{i * i * 0.03:.3f}" for i in range(20)]
    (tmp_path / "table.csv").write_text("\n".join(["pwm_us,thrust_n", *rise]))
    fall = [f"{1000 + 50 * i},{i * i * 0.03 * (0.3 if 8 < i < 13 else 1):.3f},15" for i in range(20)]
    (tmp_path / "down.csv").write_text("\n".join(["pwm_us,thrust_n,voltage_v", *fall]))
    before, files = vehicle.read_bytes(), set(tmp_path.iterdir())
    if "--vehicle" not in arguments:
        arguments = [*arguments, "--vehicle", "vehicle.toml", "--yes", "--json", "r.json"]
    if "--hover" not in arguments:
        arguments = [*arguments, "--motors", "6", "--plot", "p.png"]
    done = CliRunner().invoke(main, ["calibrate", "thrust", *arguments], catch_exceptions=False)
    assert done.exit_code == 2 and words in done.output
    assert len(done.output.strip().splitlines()) == 1
    assert vehicle.read_bytes() == before and set(tmp_path.iterdir()) == files


# ---- tables: what is selected, and what is too poor to be written

STAND = Motor()


def fit_tables(tmp_path, vehicle, rows, *arguments, header="pwm_us,thrust_n,voltage_v,current_a", unit=1.0):
    path = write_csv(tmp_path / "stand.csv", rows, header, unit=unit)
    files = ["--vehicle", str(vehicle), "--yes", "--json", str(tmp_path / "r.json"), "--motors", "6"]
    files += map(str, arguments)
    return CliRunner().invoke(main, ["calibrate", "thrust", "--fit", str(path), *files])


def stand_rows(levels=None, **options):
    levels = np.arange(0.1, 0.96, 0.05) if levels is None else levels
    batteries = [
        record(STAND, Battery(open_v), script(levels, hz=20.0), hz=20.0, **options)[0] for open_v in (16.4, 14.4)
    ]
    return np.concatenate(batteries)


def test_a_step_script_with_ramps_says_how_many_plateaus_it_found(tmp_path, vehicle):
    done = fit_tables(tmp_path, vehicle, stand_rows())
    assert done.exit_code == 0, done.output
    assert "plateaus" in done.output and "readings dropped" in done.output
    runs = json.loads((tmp_path / "r.json").read_text())["details"]["runs"]
    assert [run["plateaus"] for run in runs] == [20, 20] and all(run["readings_dropped"] > 300 for run in runs)
    assert load(vehicle, Vehicle).thrust.voltage_exponent == pytest.approx(1.64, abs=0.05)


def with_exponent(vehicle, exponent):
    text = vehicle.read_text()
    assert "voltage_exponent = 1.5\n" in text
    vehicle.write_text(text.replace("voltage_exponent = 1.5\n", f"voltage_exponent = {exponent:.1f}\n"))


@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.5])
def test_thrust_at_one_voltage_is_carried_to_the_reference_with_the_exponent_of_the_file(tmp_path, vehicle, exponent):
    """The file, which keeps its exponent, predicts the thrust that was measured at the voltage that was measured."""
    with_exponent(vehicle, exponent)
    battery = Battery(14.4)
    rows = record(STAND, battery, script(np.arange(0.05, 1.0, 0.05), hz=20.0), hz=20.0)[0]
    done = fit_tables(tmp_path, vehicle, rows)
    assert done.exit_code == 0, done.output
    written, signal = load(vehicle, Vehicle), np.linspace(0.2, 0.6, 401)
    thrust = written.thrust
    assert (thrust.voltage_exponent, thrust.reference_voltage_v) == (exponent, 15.2)
    volts = battery.voltage_v(STAND.current_a(signal, 14.2))
    measured = 6 * STAND.thrust_n(signal, volts) / written.mass_kg
    hover = int(np.argmin(np.abs(measured - GRAVITY_M_S2)))
    command = thrust.model_factor * signal**2 + (1 - thrust.model_factor) * signal
    predicted = thrust.coefficient_m_s2 * command * (volts / thrust.reference_voltage_v) ** exponent
    assert predicted[hover] == pytest.approx(measured[hover], rel=0.015)
    assert f"exponent {exponent:.2f} ± 0.3 assumed" in " ".join(done.output.split())


def test_an_exponent_of_0_in_the_file_stays_and_a_line_names_what_the_bench_measured(tmp_path, vehicle):
    with_exponent(vehicle, 0.0)
    done = fit_tables(tmp_path, vehicle, stand_rows())
    assert done.exit_code == 0, done.output
    assert load(vehicle, Vehicle).thrust.voltage_exponent == 0.0
    (line,) = [line for line in done.output.splitlines() if "thrust.voltage_exponent stays 0" in line]
    assert "MC_BAT_SCALE_EN" in line and "the bench measured 1.6" in line


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda rows, rng: rows[:, 1].__iadd__(0.35 * np.sin(25 * rows[:, 0])), "R² is 0.99"),
        (
            lambda rows, rng: rows[:, 2].__imul__(np.where(np.arange(len(rows)) * 2 < len(rows), 1.2, 1.0)),
            "exponent is 0.",
        ),
    ],
)
def test_a_poor_fit_warns_and_is_written_only_when_it_is_asked_for(tmp_path, vehicle, spoil, words):
    rows, before = stand_rows(), vehicle.read_bytes()
    spoil(rows, np.random.default_rng(1))
    done = fit_tables(tmp_path, vehicle, rows)
    assert done.exit_code == 2 and vehicle.read_bytes() == before
    last = done.output.strip().splitlines()[-1]
    assert "nothing written" in last and words in last and last.endswith("--poor-fit writes it nevertheless")
    assert f"warning: {last.split('nothing written: ')[1].split(';')[0]}" in done.output
    assert json.loads((tmp_path / "r.json").read_text())["details"]["poor"]
    done = fit_tables(tmp_path, vehicle, rows, "--poor-fit")
    assert done.exit_code == 0 and vehicle.read_bytes() != before


def test_readings_are_selected_by_pulse_width_and_voltage(tmp_path, vehicle):
    limits = ["--min-us", 1100, "--max-us", 1700, "--min-voltage", 14.0]
    done = fit_tables(tmp_path, vehicle, stand_rows(), *limits, "--poor-fit")
    assert done.exit_code == 0, done.output
    curve = json.loads((tmp_path / "r.json").read_text())["details"]["curve"]
    assert curve["command_range"][0] >= 0.1 - 1e-6 and curve["command_range"][1] <= 0.7 + 1e-6
    assert curve["voltage_range_v"][0] >= 14.0 and "left out by --min-us, --max-us, --min-voltage" in done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--min-us", 1990], "leave fewer than 6 of"),
        (["--min-voltage", 30], "leave fewer than 6 of"),
        (["--max-us", 100], "100.0 is not in the range"),
        (["--command-unit", "furlong"], "'furlong' is not one of"),
    ],
)
def test_a_selection_that_leaves_nothing_is_refused(tmp_path, vehicle, arguments, words):
    before = vehicle.read_bytes()
    done = fit_tables(tmp_path, vehicle, stand_rows(), *arguments)
    assert done.exit_code == 2 and words in done.output and vehicle.read_bytes() == before


def test_the_motor_keeps_to_the_selection(tmp_path, monkeypatch):
    user = User(monkeypatch, tmp_path, step_us=100, answers=["spin", "spin"])
    user.world.faults.ctrl_c_s = 1009.0
    stopped = user.call("--max-us", 1600, "--min-voltage", 14.5, "--mass", 1.8)
    again = stopped.output.strip().splitlines()[-1].split("; ")[-1]
    assert f"--max-us 1600.0 --min-voltage 14.5 --save {user.raw} --resume continues" in again and "--mass 1.8" in again
    assert user.call("--max-us", 1600, "--min-voltage", 14.5, "--mass", 1.8, "--resume").exit_code == 0
    assert max(float(row["target_us"]) for row in user.rows()) == 1600
    refused = user.call("--min-us", 1960, "--resume")
    assert refused.exit_code == 2 and "no step between 1960 and 1950 µs" in refused.output


def test_the_default_name_of_the_raw_data_is_in_the_message(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    user = User(monkeypatch, tmp_path)
    user.world.faults.ctrl_c_s = 1009.0
    line = ["calibrate", "thrust", "--bench", str(user.bench_file)]
    done = CliRunner().invoke(main, line, catch_exceptions=False)
    raw = next(tmp_path.glob("thrust_*.csv"))
    assert f"--save {raw.name} --resume continues" in done.output


def test_the_simulated_bench_explains_itself(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        bench.main(["-h"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0 and "companion calibrate thrust" in shown and "--record" in shown
    for wrong in (["--charge", "7"], ["no_such_airframe"], ["--record", "/no/such/folder/x.csv"], ["--nonsense"]):
        with pytest.raises(SystemExit) as ended:
            bench.main(wrong)
        assert ended.value.code == 2


@pytest.mark.parametrize("wrong_v", [15.2, 0.0, -0.02])
def test_one_wrong_voltage_does_not_let_another_battery_pass(tmp_path, vehicle, wrong_v):
    """A sweep at 24 V; the one reading at idle fits every curve, because there is no thrust."""
    rows = sweep(Motor(full_v=24.0), Battery(24.6), up_and_down(step=0.05), readings=1)
    rows[0, 2] = wrong_v
    before = vehicle.read_text()
    done = fit_tables(tmp_path, vehicle, rows)
    assert done.exit_code == 2 and vehicle.read_text() == before
    assert "measured with another battery? give --reference-voltage" in done.stderr
