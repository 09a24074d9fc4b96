"""Calibrated numbers get into a vehicle file and nothing else of it changes, or nothing happens at all."""

import os
import re
import stat
import tomllib
from datetime import date

import click
import numpy as np
import pytest
import tomlkit
from calibration_paths import VEHICLES

from calibration import vehicle_file
from calibration.vehicle_file import Change, confirm_and_write, propose
from companion.core.config import ConfigError, load
from companion.core.vehicle import Vehicle

TODAY = date.today().isoformat()


@pytest.fixture
def f550(copy_vehicle):
    return copy_vehicle("f550")


@pytest.fixture
def rtk(f550, copy_vehicle):
    """A copy beside that of its base."""
    return copy_vehicle("f550_rtk")


def changed_lines(proposal):
    lines = proposal.diff.splitlines()[2:]
    return [line for line in lines if line.startswith("-")], [line for line in lines if line.startswith("+")]


def test_a_file_with_the_mark_of_a_windows_editor_is_written_without_it(f550):
    f550.write_bytes(b"\xef\xbb\xbf" + f550.read_bytes())
    propose(f550, [Change("thrust.coefficient_m_s2", 27.1, "raw.csv: R² 0.9991")]).apply()
    assert load(f550, Vehicle).thrust.coefficient_m_s2 == 27.1 and not f550.read_bytes().startswith(b"\xef\xbb\xbf")


def test_only_the_number_and_its_comment_change(f550):
    proposal = propose(f550, [Change("thrust.coefficient_m_s2", 27.123456789, "raw.csv: R² 0.9991")])
    removed, added = changed_lines(proposal)
    assert removed == ["-coefficient_m_s2 = 28.542     # paper 1: hover at a command of 0.344"]
    assert added == [
        f"+coefficient_m_s2 = 27.123457  # paper 1: hover at a command of 0.344 [{TODAY} raw.csv: R² 0.9991]"
    ]
    proposal.apply()
    assert load(f550, Vehicle).thrust.coefficient_m_s2 == 27.123457


def test_nothing_is_written_before_apply(f550):
    before = f550.read_bytes()
    propose(f550, [Change("mass_kg", 2.0, "scales")])
    assert f550.read_bytes() == before
    assert [path.name for path in f550.parent.iterdir()] == ["f550.toml"]


def test_the_next_calibration_replaces_its_note_and_keeps_the_owners_comment(f550):
    for value, note in ((0.2, "a.ulg: fit 84 %"), (0.3, "b.ulg: fit 91 %")):
        propose(f550, [Change("camera.q_BC", [1, 0, 0, 0], note), Change("mass_kg", value, note)]).apply()
    text = f550.read_text()
    assert f"q_BC = [1.0, 0.0, 0.0, 0.0] # looks forward [{TODAY} b.ulg: fit 91 %]\n" in text
    assert "a.ulg" not in text


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("attitude.roll.gain", 1, "gain = 1.0"),
        ("camera.width_px", np.int64(720), "width_px = 720"),
        ("camera.model", "fisheye", 'model = "fisheye"'),
        ("camera.distortion", np.array([0.1, 0.2, 0.0, 0.0]), "distortion = [0.1, 0.2, 0.0, 0.0]"),
        ("drag.linear_1_s", (0.1, np.float64(0.2), 0), "linear_1_s = [0.1, 0.2, 0.0]"),
    ],
)
def test_every_kind_of_value(f550, key, value, line):
    proposal = propose(f550, [Change(key, value, "x")])
    removed, added = changed_lines(proposal)
    assert len(removed) == len(added) == 1 and added[0].startswith(f"+{line}") and added[0].endswith(f"[{TODAY} x]")


def test_a_key_of_the_base_is_overridden_in_the_file_that_was_named(rtk, f550):
    base = f550.read_bytes()
    changes = [
        Change("mass_kg", 2.1, "scales"),
        Change("attitude.roll.gain", 0.9, "x"),
        Change("attitude.pitch.gain", 0.8, "x"),
        Change("estimator.position.window", 40, "x"),
        Change("estimator.velocity.std", 0.03, "x"),
    ]
    proposal = propose(rtk, changes)
    assert changed_lines(proposal)[0] == []
    proposal.apply()
    vehicle = load(rtk, Vehicle)
    assert (vehicle.mass_kg, vehicle.attitude.roll.gain, vehicle.attitude.pitch.gain) == (2.1, 0.9, 0.8)
    assert (vehicle.estimator.position.window, vehicle.estimator.velocity.std) == (40, 0.03)
    assert vehicle.estimator.position.std == 0.02 and vehicle.attitude.roll.time_constant_s == 0.14115
    assert f550.read_bytes() == base
    lines = rtk.read_text().split("\n")
    assert all(lines[i - 1] == "" for i, line in enumerate(lines) if line.startswith("["))
    assert not rtk.read_text().endswith("\n\n")


def test_truth_values_keep_their_comments():
    document = tomlkit.parse("a = true # x\n[t]\nb = true\nc.d = false\n[u]\nz = 1\n[t.k]\ne = false # f\n")
    for key, value in (("a", False), ("t.b", False), ("t.c.d", True), ("t.k.e", True), ("t.k.n", True)):
        vehicle_file.edit(document, key.split("."), value, "[2026-01-01 n]")
    assert tomlkit.dumps(document).splitlines() == [
        "a = false # x [2026-01-01 n]",
        "[t]",
        "b = false                     # [2026-01-01 n]",
        "c.d = true                      # [2026-01-01 n]",
        "[u]",
        "z = 1",
        "[t.k]",
        "e = true  # f [2026-01-01 n]",
        "n = true                      # [2026-01-01 n]",
    ]


def test_layouts_of_other_owners_stay(f550):
    text = f550.read_text()
    text = text.replace(
        "distortion = [-0.12, 0.05, 0.0, 0.0, 0.0]", "distortion = [\n  -0.12, # k1\n  0.05, # k2\n  0.0, 0.0, 0.0,\n]"
    )
    roll = (
        "[attitude.roll]               # paper 1: from one manual flight\ntime_constant_s = 0.14115\ngain = 0.99386\n"
    )
    pitch = "[attitude.pitch]\ntime_constant_s = 0.14199\ngain = 1.00199\n"
    assert roll in text and pitch in text
    text = text.replace(roll, "").replace(pitch, "")
    text = text.replace(
        "[thrust]", "attitude.roll = { time_constant_s = 0.1, gain=1.0 } # tight\nattitude.pitch.gain = 1.0\n[thrust]"
    ).replace("attitude.pitch.gain = 1.0\n", "attitude.pitch.gain = 1.0\nattitude.pitch.time_constant_s = 0.2\n")
    f550.write_text(text.replace("\n", "\r\n"), newline="")
    changes = [
        Change("attitude.roll.gain", 0.9, "x"),
        Change("attitude.pitch.gain", 0.8, "x"),
        Change("camera.distortion", [0.1, 0.2, 0.3, 0.4], "x"),
    ]
    proposal = propose(f550, changes)
    assert "attitude.roll = { time_constant_s = 0.1, gain=0.9 } # tight [" in proposal.after
    assert "  0.1, # k1\r\n  0.2, # k2\r\n" in proposal.after
    assert proposal.after.count("\n") == proposal.after.count("\r\n")
    proposal.apply()
    assert load(f550, Vehicle).attitude.pitch.gain == 0.8


@pytest.mark.parametrize("name", sorted(path.name for path in VEHICLES.glob("*.toml")))
def test_every_number_of_every_shipped_file_can_be_written(tmp_path, name):
    for path in VEHICLES.glob("*.toml"):
        (tmp_path / path.name).write_bytes(path.read_bytes())

    def keys(tables, prefix=""):
        for key, value in tables.items():
            if isinstance(value, dict):
                yield from keys(value, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}", value

    tables = tomllib.loads((VEHICLES / name).read_text())
    tables.pop("base", None)
    changes = [Change(key, value, "same") for key, value in keys(tables)]
    proposal = propose(tmp_path / name, changes)
    assert proposal.after.count(f"[{TODAY} same]") == len(changes)
    undone = [
        line.split(f"[{TODAY} same]")[0].rstrip().removesuffix("#").rstrip() for line in proposal.after.split("\n")
    ]
    # a file that the commands have written has notes of its own, which "same" has replaced
    before = [re.sub(r"\s*# \[\d{4}-\d\d-\d\d .*\]$", "", line) for line in proposal.before.split("\n")]
    assert undone == [line.rstrip() for line in before]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Change("thrust.coefficient_m_s2", 1000.0, "x"), ["thrust.coefficient_m_s2 = 1000.0", "5 to 100"]),
        (Change("thrust.coefficient_m_s2", float("nan"), "x"), ["f550.toml"]),
        (Change("thrust.colour", 1.0, "x"), ["thrust.colour: unknown key"]),
        (Change("mass_kg.empty", 1.0, "x"), ["mass_kg"]),
        (Change("camera.q_BC", [1.0, 0.0], "x"), ["camera.q_BC"]),
    ],
)
def test_what_is_not_a_vehicle_file_is_refused_in_one_line(f550, change, words):
    before = f550.read_bytes()
    with pytest.raises(ConfigError) as error:
        propose(f550, [Change("mass_kg", 2.0, "x"), change])
    assert "\n" not in str(error.value) and all(word in str(error.value) for word in words)
    assert f550.read_bytes() == before


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "broken.toml").write_text("mass_kg = = 2")
    (tmp_path / "mission.toml").write_text('name = "look"')
    for name in ("absent.toml", "broken.toml", "mission.toml"):
        with pytest.raises(ConfigError, match=name):
            propose(tmp_path / name, [Change("mass_kg", 2.0, "x")])


def test_keys_that_follow_a_new_table_leave_one_blank_line_between_tables_and_none_inside(f550):
    own = f550.with_name("own.toml")
    own.write_text('base = "f550.toml"\n\n[controller]\ntilt_max_rad = 0.7\n')
    keys = ("attitude.pitch.gain", "thrust.voltage_exponent", "attitude.roll.time_constant_s", "attitude.roll.gain")
    propose(own, [Change(key, 1.0, "x") for key in keys]).apply()
    lines = own.read_text().splitlines()
    for before, line in zip(lines, lines[1:], strict=False):
        assert (before == "") == line.startswith("["), own.read_text()


def test_a_number_that_other_data_gave_is_not_replaced_in_silence(f550, capsys):
    confirm_and_write(f550, [Change("latency.actuation_s", 0.08, "identification.mcap: ± 0.003 s")], yes=True)
    assert "replaces" not in capsys.readouterr().out
    again = [Change("latency.actuation_s", 0.081, "identification.mcap: ± 0.002 s")]
    assert propose(f550, again).replaced == ()
    confirm_and_write(f550, [Change("latency.actuation_s", 0.09, "hover.mcap: ± 3 ms")], yes=True)
    said = f"latency.actuation_s: 0.09 replaces 0.08, measured by {TODAY} identification.mcap: ± 0.003 s\n"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("own", ["[2025-01-01 Hans, weighed twice]", "[2025-01-01 scales]"])
def test_a_bracketed_comment_of_a_person_stays(f550, own):
    line = next(line for line in f550.read_text().splitlines() if line.startswith("mass_kg"))
    f550.write_text(f550.read_text().replace(line, f"mass_kg = 2.0 # by hand {own}"))
    for value, note in ((2.1, "a.csv: ± 0.1 kg"), (2.2, "3 hovers flown"), (2.3, "b.csv: ± 0.1 kg")):
        propose(f550, [Change("mass_kg", value, note)]).apply()
    assert f"mass_kg = 2.3 # by hand {own} [{TODAY} b.csv: ± 0.1 kg]\n" in f550.read_text()


def test_a_note_cannot_break_the_file(f550):
    propose(f550, [Change("mass_kg", 2.0, "a.csv: \nname = 'evil' [1]\x00 b")]).apply()
    assert load(f550, Vehicle).name == "F550"
    propose(f550, [Change("mass_kg", 2.5, "2026-01-02 c.csv")]).apply()
    assert "mass_kg = 2.5                 # [2026-01-02 c.csv]\n" in f550.read_text()


def test_mode_and_link_stay_and_nothing_else_is_left(f550):
    f550.chmod(0o640)
    link = f550.parent / "link.toml"
    link.symlink_to(f550.name)
    propose(link, [Change("mass_kg", 2.0, "x")]).apply()
    assert link.is_symlink() and stat.S_IMODE(f550.stat().st_mode) == 0o640
    assert load(f550, Vehicle).mass_kg == 2.0
    assert sorted(path.name for path in f550.parent.iterdir()) == ["f550.toml", "link.toml"]


def test_a_write_that_fails_leaves_the_old_file(f550, monkeypatch):
    before = f550.read_bytes()
    proposal = propose(f550, [Change("mass_kg", 2.0, "x")])

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ConfigError, match=r"f550\.toml: cannot be written: No space left on device"):
        proposal.apply()
    assert f550.read_bytes() == before and [path.name for path in f550.parent.iterdir()] == ["f550.toml"]


def test_an_edit_between_diff_and_answer_is_not_overwritten(f550):
    proposal = propose(f550, [Change("mass_kg", 2.0, "x")])
    f550.write_text(f550.read_text().replace("1.8", "1.9"))
    with pytest.raises(ConfigError, match="another program changed it"):
        proposal.apply()
    assert load(f550, Vehicle).mass_kg == 1.9


def test_the_command_shows_the_diff_and_asks(f550, capsys):
    change = [Change("mass_kg", 2.0, "scales: ± 0.1 kg")]
    assert not confirm_and_write(f550, change, yes=False, ask=lambda _: False)
    assert load(f550, Vehicle).mass_kg == 1.8
    shown = capsys.readouterr().out
    assert "-mass_kg = 1.8\n+mass_kg = 2.0 " in shown and "nothing written" in shown

    def no_terminal(_):
        raise click.Abort

    assert not confirm_and_write(f550, change, yes=False, ask=no_terminal)
    assert confirm_and_write(f550, change, yes=True, ask=no_terminal)
    assert load(f550, Vehicle).mass_kg == 2.0
    assert vehicle_file.propose(f550, change).diff == ""


def test_a_calibrated_thrust_coefficient_without_a_hover_in_the_limits_is_refused(f550):
    before = f550.read_text()
    with pytest.raises(ConfigError) as refused:
        propose(f550, [Change("thrust.coefficient_m_s2", 14.6, "raw.csv: R² 0.9991")])
    assert str(refused.value) == (
        f"{f550}: nothing written: thrust.coefficient_m_s2 = 14.6: hover takes 0.672 of full command at"
        " thrust.reference_voltage_v = 15.2 V, must be below 0.65 (controller.thrust_max)"
    )
    assert f550.read_text() == before
