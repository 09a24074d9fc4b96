"""A thrust stand's table is read with any separators, header and units; another file is refused in one line."""

import numpy as np
import pytest
from thrust_stand import GRAM, Battery, Motor, sweep, write_csv

from calibration.results import DataError
from calibration.thrust import table
from calibration.thrust.columns import find_columns, split_title
from calibration.thrust.table import read_thrust_csv

RCBENCHMARK_1580 = [
    "Time (s)", "ESC signal (µs)", "Servo 1 (µs)", "Servo 2 (µs)", "Servo 3 (µs)", "AccX (g)", "AccY (g)", "AccZ (g)",
    "Torque (N·m)", "Thrust (kgf)", "Voltage (V)", "Current (A)", "Motor Electrical Speed (RPM)",
    "Motor Optical Speed (RPM)", "Electrical Power (W)", "Mechanical Power (W)", "Motor Efficiency (%)",
    "Propeller Mech. Efficiency (kgf/W)", "Overall Efficiency (kgf/W)", "Vibration (g)", "Left Load Cell (mV)",
    "Thrust Load Cell (mV)", "Burst Current Cutoff (A)", "App message",
]  # fmt: skip


@pytest.fixture(scope="module")
def readings():
    """Rows of a sweep, one reading at each command."""
    return sweep(Motor(), Battery(), np.arange(0.05, 1.0, 0.1), readings=1)


def same(run, readings):
    assert np.allclose(run.command, readings[:, 0], atol=1e-4)
    assert np.allclose(run.voltage_v, readings[:, 2], rtol=1e-3)
    assert np.allclose(run.thrust_n, readings[:, 1], atol=2e-3)


@pytest.mark.parametrize(
    ("header", "unit", "decimal"),
    [
        ("pwm_us,thrust_gf,voltage_v,current_a", GRAM, "."),
        ("ESC signal (µs),Thrust (gf),Voltage (V),Current (A)", GRAM, "."),
        ("ESC signal (\u03bcs);Thrust (kgf);Voltage (V);Current (A)", 1e3 * GRAM, ","),
        ("PWM\tForce [N]\tVBat\tAmps", 1.0, ","),
        ("Throttle - %;Thrust - gf;Vol - V;Cur - A", GRAM, "."),
        ("throttle_0..1,thrust_n,voltage,current", 1.0, "."),
        ("Throttle (%),Thrust (lbf),Battery Voltage (V),Current (A)", 4.4482216, "."),
        ("# Command (0..1), Weight (g), U Battery Voltage (V), I (A)", GRAM, "."),
        ("Pulse width (us);Thrust (ozf);Voltage", 0.27801385, ","),
    ],
)
def test_headers_units_and_separators(tmp_path, header, unit, decimal, readings):
    runs = read_thrust_csv(write_csv(tmp_path / "a.csv", readings, header, decimal, unit=unit))
    assert len(runs) == 1
    same(runs[0], readings)
    assert np.isnan(runs[0].current_a).all() == header.endswith("Voltage")


def test_the_columns_of_rcbenchmark_are_not_confused():
    columns = find_columns(RCBENCHMARK_1580)
    titles = {kind: column.title for kind, column in columns.items()}
    assert titles == {
        "command": "ESC signal (µs)", "thrust": "Thrust (kgf)", "voltage": "Voltage (V)", "current": "Current (A)",
        "time": "Time (s)",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("title", "split"),
    [
        ("Thrust (gf)", ("thrust", "gf")),
        ("ESC signal (Âµs)", ("esc signal", "us")),
        ("thrust_n", ("thrust", "n")),
        ("throttle_0_1", ("throttle", "0 1")),
        ("Throttle %", ("throttle", "%")),
        ("PWM", ("pwm", "")),
        ('"Torque (N·m)"', ("torque", "nm")),
    ],
)
def test_titles_are_split(title, split):
    assert split_title(title) == split


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_encodings_and_line_ends(tmp_path, encoding, end, readings):
    path = write_csv(tmp_path / "a.csv", readings, "ESC signal (µs);Thrust (gf);Voltage (V);Current (A)")
    path.write_bytes(path.read_text(encoding="utf-8").replace("\n", end).encode(encoding))
    same(read_thrust_csv(path)[0], readings)


def test_preamble_units_row_text_cells_and_repeated_header(tmp_path, readings):
    plain = write_csv(tmp_path / "a.csv", readings, "Throttle;Thrust;Voltage;Current").read_text().splitlines()
    preamble = ["sep=;", "Motor: T-Motor 2216; propeller 10x4.5", "Date;2025-03-01", ""]
    rows = plain[1:5] + [plain[0], "1500;overload;15.1;3", ";;;", "# a remark"] + plain[5:]
    (tmp_path / "b.csv").write_text("\n".join([*preamble, plain[0], "us;gf;V;A", *rows]))
    run = read_thrust_csv(tmp_path / "b.csv")[0]
    same(run, readings)
    assert "2 lines without a number left out, the first is line 11" in run.notes[0]
    assert run.line[0] == 7


def test_rows_may_have_more_cells_than_the_header(tmp_path, readings):
    """RCbenchmark's scripts append columns of their own."""
    lines = write_csv(tmp_path / "a.csv", readings).read_text().splitlines()
    (tmp_path / "b.csv").write_text("\n".join([lines[0], *(f"{line},,7,8.5" for line in lines[1:])]))
    same(read_thrust_csv(tmp_path / "b.csv")[0], readings)


def test_the_clock_of_a_recording_is_read(tmp_path):
    lines = ["time_ms,pwm_us,thrust_n,voltage_v"] + [f"{50 * i},{1000 + 50 * i},{i * i / 10},15" for i in range(10)]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    assert np.allclose(read_thrust_csv(tmp_path / "a.csv")[0].time_s, np.arange(10) * 0.05)


def test_thousands_are_not_decimals(tmp_path):
    lines = ["PWM (us);Thrust (gf);Voltage (V)"] + [
        f"1,{u:03d};{100 + u * 2.5:,.1f};15.{u // 100}" for u in range(0, 900, 100)
    ]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    run = read_thrust_csv(tmp_path / "a.csv")[0]
    assert np.allclose(run.command, np.arange(0, 0.9, 0.1))
    assert np.isclose(run.thrust_n[-1], 2100 * GRAM)


def test_runs_on_several_batteries_are_separated(tmp_path):
    lines = ["battery,pwm_us,thrust_n,voltage_v"]
    lines += [f"{b},{1000 + 100 * i},{i * i + 5 * (b == 2)},{16 - b}" for b in (1, 2) for i in range(8)]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    runs = read_thrust_csv(tmp_path / "a.csv")
    assert [run.name for run in runs] == ["a.csv, battery 1", "a.csv, battery 2"]
    assert [run.voltage_v[0] for run in runs] == [15, 14] and [len(run.command) for run in runs] == [8, 8]


def test_a_table_without_voltage_is_refused_unless_one_is_given(tmp_path, readings):
    path = write_csv(tmp_path / "a.csv", readings, "pwm_us,thrust_gf")
    with pytest.raises(DataError, match=r"a\.csv: no column for the voltage .* 'pwm_us', 'thrust_gf'; .*--voltage"):
        read_thrust_csv(path)
    assert set(read_thrust_csv(path, voltage_v=14.8)[0].voltage_v) == {14.8}
    path = write_csv(tmp_path / "b.csv", readings)
    with pytest.raises(DataError, match=r"b\.csv: --voltage 14\.8: the table has voltages of its own, 'voltage_v'"):
        read_thrust_csv(path, voltage_v=14.8)


def test_thrust_without_unit(tmp_path, readings):
    path = write_csv(tmp_path / "a.csv", readings, "pwm,thrust,voltage,current")
    run = read_thrust_csv(path)[0]
    same(run, readings)
    assert "gf assumed" in run.notes[0]
    path = write_csv(tmp_path / "b.csv", readings, "pwm,thrust,voltage,current", unit=1.0)
    with pytest.raises(DataError, match=r"b\.csv: 'thrust' has no unit .*--thrust-unit"):
        read_thrust_csv(path)
    same(read_thrust_csv(path, thrust_unit="N")[0], readings)
    path = write_csv(tmp_path / "c.csv", readings)
    same(read_thrust_csv(path, thrust_unit="gf")[0], readings)  # the header's
    with pytest.raises(DataError, match=r"c\.csv: --thrust-unit N: the table says that 'thrust_gf' is in gf"):
        read_thrust_csv(path, thrust_unit="N")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no header"),
        ("1000,0,16\n1100,1,16\n", "no header"),
        ("time,voltage\n0,16\n", "no column for the command"),
        ("pwm_us,voltage_v\n1000,16\n", "no column for the thrust"),
        ("pwm_us,thrust_n,voltage_v\n", "0 readings"),
        ("pwm_us,thrust_n,voltage_v\n" + "1000,overload,16\n" * 9, "line 2: thrust is 'overload', not a number"),
        ("pwm_us,thrust_n,voltage_v\n" + "1000,1,5,16\n" * 9, "line 2: 4 cells, the header has 3: decimal commas"),
        ("pwm_us,thrust_n,voltage_v\n" + "0.5,1,16\n" * 9, "not pulse widths"),
        ("pwm_us,thrust_n,voltage_v\n" + "1500,1,0\n" * 9, "not a battery voltage"),
        ("throttle_pct,thrust_n,voltage_v\n" + "1500,1,16\n" * 9, "not a throttle of 0 to 100 %"),
        ("pwm_us,thrust_parsec,voltage_v\n" + "1500,1,16\n" * 9, "'thrust_parsec' has no unit"),
        ("pwm_us,thrust (mV),voltage_v\n" + "1500,1,16\n" * 9, "no column for the thrust"),
    ],
)
def test_a_file_that_is_not_a_thrust_table_is_refused_in_one_line(tmp_path, content, words):
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(DataError) as error:
        read_thrust_csv(tmp_path / "a.csv")
    assert words in str(error.value) and "a.csv" in str(error.value) and "\n" not in str(error.value)


GERMAN = [
    ("Pulslänge [µs];Schub [g];Spannung [V];Strom [A];Drehzahl [1/min]", GRAM),
    ("Gas (%);Schubkraft (N);Akkuspannung (V);Stromaufnahme (A);Drehzahl", 1.0),
    ("ESC-Signal in µs (us);Zugkraft / kp;U_Akku [V];I [A];Drehzahl", 1e3 * GRAM),
    ("Stellgröße [%];Schub [kg];U [V];Strom [A];Temperatur [°C]", 1e3 * GRAM),
    ("Pulsbreite (Mikrosekunden);Schub - Gramm;Spannung - V;Strom - A;Wirkungsgrad (g/W)", GRAM),
]


@pytest.mark.parametrize(("header", "unit"), GERMAN)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "cp1252"])
def test_german_tables(tmp_path, header, unit, encoding, readings):
    path = write_csv(tmp_path / "a.csv", readings, header, ",", unit=unit)
    lines = path.read_text(encoding="utf-8").splitlines()
    text = "\r\n".join([lines[0], *(line + ";1.234,5" for line in lines[1:])]) + "\r\n"
    path.write_bytes(text.encode(encoding))
    same(read_thrust_csv(path)[0], readings)


def test_umlauts_may_be_composed_of_two_characters(tmp_path, readings):
    header = "Pulsla\u0308nge (µs);Schub (g);Spannung (V);Strom (A)"
    same(read_thrust_csv(write_csv(tmp_path / "a.csv", readings, header, ","))[0], readings)


def test_german_thousands_are_not_decimals(tmp_path):
    rows = ["Pulsbreite [µs];Schub [g];Spannung [V]"]
    for u in range(0, 900, 100):
        thrust = f"{100 + u * 2.5:,.1f}".replace(",", "#").replace(".", ",").replace("#", ".")
        rows.append(f"1.{u:03d};{thrust};15,{u // 100}")
    (tmp_path / "a.csv").write_text("\n".join(rows), encoding="latin-1")
    run = read_thrust_csv(tmp_path / "a.csv")[0]
    assert np.allclose(run.command, np.arange(0, 0.9, 0.1)) and np.isclose(run.thrust_n[-1], 2100 * GRAM)
    assert np.isclose(run.voltage_v[-1], 15.8)


def test_times_of_day_are_read(tmp_path):
    rows = [
        f"14:59:{50 + i if i < 10 else i:02d},{500 * (i % 2):03d};{1000 + 50 * i};{i * i / 10:g};15" for i in range(8)
    ]
    (tmp_path / "a.csv").write_text("\n".join(["Uhrzeit;PWM (us);Schub (N);Spannung", *rows]))
    time_s = read_thrust_csv(tmp_path / "a.csv")[0].time_s
    assert np.allclose(np.diff(time_s), [1.5, 0.5] * 3 + [1.5])


@pytest.mark.parametrize(
    ("title", "low", "span", "note"),
    [
        ("DShot", 48, 1999, "read as DShot commands 48 to 2047"),
        ("dshot value", 48, 1999, "read as DShot commands 48 to 2047"),
        ("Throttle (DShot)", 48, 1999, ""),
        ("Command (48-2047)", 48, 1999, ""),
        ("DShot (0-2000)", 0, 2000, ""),
        ("Throttle (0..2000)", 0, 2000, ""),
        ("DShot", 0, 2000, "read as steps from 0 to 2000"),
    ],
)
def test_dshot_commands(tmp_path, title, low, span, note):
    u = np.array([0.01, *np.arange(0.1, 1.01, 0.1)])
    rows = [f"{round(low + span * c)},{12 * c * c:.4f},15" for c in u]
    (tmp_path / "a.csv").write_text("\n".join([f"{title},thrust_n,voltage", "0,0,15", *rows]))
    run = read_thrust_csv(tmp_path / "a.csv")[0]
    assert np.allclose(run.command, [0, *u], atol=0.0006) and not run.is_pwm
    assert note in " ".join(run.notes) and bool(note) == bool(run.notes)


@pytest.mark.parametrize(
    ("title", "values", "words"),
    [
        ("DShot", [100, 3000], "not DShot commands"),
        ("DShot", [-5, 1000], "not DShot commands"),
        ("DShot (48-2047)", [10, 2000], "has 10: no throttle of 48 to 2047; --command-unit 0..2000"),
        ("DShot (0-2000)", [10, 2047], "neither 0 to 2000 nor 48 to 2047"),
        ("DShot", [10, 2047], "neither 0 to 2000 nor 48 to 2047"),
        ("PWM", [48, 2047], "DShot commands? --command-unit dshot or 0..2000"),
    ],
)
def test_what_is_no_dshot_is_refused(tmp_path, title, values, words):
    rows = [f"{u:.0f},{i},15" for i, u in enumerate(np.linspace(*values, 8))]
    (tmp_path / "a.csv").write_text("\n".join([f"{title},thrust_n,voltage", *rows]))
    with pytest.raises(DataError) as error:
        read_thrust_csv(tmp_path / "a.csv")
    assert words in str(error.value) and "\n" not in str(error.value)


def test_the_unit_of_the_command_may_be_given(tmp_path):
    rows = [f"{round(48 + 1999 * c)},{12 * c * c:.4f},15" for c in np.arange(0.1, 1.01, 0.1)]
    (tmp_path / "a.csv").write_text("\n".join(["PWM,thrust_n,voltage", *rows]))
    assert np.allclose(
        read_thrust_csv(tmp_path / "a.csv", command_unit="dshot")[0].command, np.arange(0.1, 1.01, 0.1), atol=3e-4
    )


def test_monstrous_files_are_refused(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="larger than 50 MB"):
        read_thrust_csv("/dev/zero")
    rows = ["pwm_us,thrust_n,voltage_v,run"] + [f"{1000 + i},{i / 10},15,{i}" for i in range(500)]
    (tmp_path / "a.csv").write_text("\n".join(rows))
    with pytest.raises(DataError, match=r"a\.csv: 'run' has 500 values: not the number of a run"):
        read_thrust_csv(tmp_path / "a.csv")
    monkeypatch.setattr(table, "ROWS_MAX", 100)
    with pytest.raises(DataError, match="500 lines, more than 100"):
        read_thrust_csv(tmp_path / "a.csv")


def test_files_that_are_not_text(tmp_path):
    (tmp_path / "log.ulg").write_bytes(b"ULog\x01\x12\x35\x00" + bytes(range(256)))
    for name in ("log.ulg", "absent.csv", "."):
        with pytest.raises(DataError):
            read_thrust_csv(tmp_path / name)


@pytest.mark.parametrize("wrong_v", [0.0, -0.02, 1.9])
def test_readings_without_a_voltage_are_left_out_and_named(tmp_path, wrong_v):
    rows = sweep(Motor(), Battery(), np.arange(0.0, 1.0, 0.05), readings=1)
    rows[3, 2] = wrong_v
    (run,) = read_thrust_csv(write_csv(tmp_path / "stand.csv", rows))
    assert len(run.voltage_v) == len(rows) - 1 and run.voltage_v.min() > 15
    assert run.notes == (f"{tmp_path}/stand.csv: 1 readings below 2 V left out, the first is line 5",)


def test_a_table_with_too_few_readings_of_a_battery_is_refused(tmp_path):
    rows = sweep(Motor(), Battery(), np.arange(0.0, 0.8, 0.1), readings=1)
    rows[:3, 2] = 0.0
    with pytest.raises(DataError, match=r"5 readings above 2 V; a thrust curve needs at least 6"):
        read_thrust_csv(write_csv(tmp_path / "stand.csv", rows))
