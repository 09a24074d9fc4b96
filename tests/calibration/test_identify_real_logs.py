"""Identification of published logs, and of one flown in PX4's own simulator, whose truth is known."""

import pytest
import tomlkit
from calibration_paths import F550, SHARED, needs_shared_data
from click.testing import CliRunner

from calibration.identification.command import identify as identify_command
from calibration.identification.identify import identify
from calibration.identification.values import changes, warnings
from companion.core.config import load, read_layered
from companion.core.vehicle import Vehicle

LOGS = SHARED / "ulog"

pytestmark = needs_shared_data("ulog")


def test_a_flight_in_px4_gives_its_thrust_damping_and_a_response_that_fits():
    found = identify([LOGS / "px4_v117_hexa_excitation.ulg"])
    assert found.flight.rotors == 6
    assert found.forces.thrust_coefficient_m_s2 == pytest.approx(30.0, rel=0.03)
    assert found.forces.drag_horizontal_1_s == pytest.approx(1.0, rel=0.1)
    lower = found.forces.drag_vertical_1_s - found.forces.intervals["drag_vertical"]
    assert (
        abs(found.forces.curvature) < found.forces.intervals["curvature"] < 0.25
    )  # its thrust is linear in the command
    assert lower < 1.0 < found.forces.drag_vertical_1_s + found.forces.intervals["drag_vertical"]
    for axis in (found.roll, found.pitch):
        assert axis.trusted and axis.held_out_percent > 90
        assert 0.11 < axis.response.delay_s < 0.13  # measured on that build by a first order plus delay
    with_file = identify_with_f550("px4_v117_hexa_excitation")
    values = {change.key: change.value for change in changes(with_file, "x")}
    assert "thrust.voltage_exponent" not in values
    thrust = load(F550, Vehicle).thrust  # by its exponent the file has the log's thrust at the log's voltage
    ratio = with_file.forces.reference_voltage_v / thrust.reference_voltage_v
    assert values["thrust.coefficient_m_s2"] * ratio**thrust.voltage_exponent == pytest.approx(30.0, rel=0.03)


def identify_with_f550(name):
    return identify([LOGS / f"{name}.ulg"], F550)


@pytest.mark.parametrize(("name", "volts"), [("hexa_altitude_4s", 14.7), ("hexa_stabilised_3s", 11.6)])
def test_a_real_hexrotor_gives_attitude_and_thrust_and_names_what_is_missing(name, volts):
    found = identify_with_f550(name)
    assert found.flight.aircraft == "hexarotor"
    for axis in (found.roll, found.pitch):
        assert axis.trusted and axis.held_out_percent > 70
    forces = found.forces
    assert 17.5 < forces.thrust_coefficient_m_s2 < 20.0
    assert forces.reference_voltage_v == pytest.approx(volts, abs=0.2)
    assert forces.trend is not None and forces.trend.low < forces.voltage_exponent < forces.trend.high
    assert forces.drag_horizontal_1_s is None and forces.rotor_drag_1_s is None
    assert forces.curvature > forces.intervals["curvature"]  # propellers without PX4's thrust model
    said = " ".join(warnings(found))
    assert "horizontal drag not identified: the log has no valid horizontal velocity" in said
    written = {change.key: change.value for change in changes(found, "x")}
    assert "attitude.roll.time_constant_s" in written
    if "drag.linear_1_s" in written:  # the vertical one
        assert written["drag.linear_1_s"][:2] == list(load(F550, Vehicle).drag.linear_1_s[:2])


def test_another_battery_brings_its_own_reference_and_a_question():
    found = identify_with_f550("hexa_stabilised_3s")
    written = {change.key: change.value for change in changes(found, "x")}
    assert written["thrust.reference_voltage_v"] == pytest.approx(11.6, abs=0.1)
    assert any("is it this aircraft's battery?" in sentence for sentence in warnings(found))


def test_logs_of_two_kinds_of_battery_are_written_only_with_this_aircraft(tmp_path):
    """Together they give a thrust that does not depend on the voltage, with a small interval."""
    vehicle = tmp_path / "mine.toml"
    vehicle.write_bytes(F550.read_bytes())
    logs = [str(LOGS / f"{name}.ulg") for name in ("hexa_altitude_4s", "hexa_stabilised_3s")]
    refused = CliRunner().invoke(identify_command, [*logs, "--vehicle", str(vehicle), "--yes"])
    assert refused.exit_code == 2
    assert (
        "parts of the flight are at 14.6 and at 11.8 V: are the logs of one aircraft and one kind of" in refused.output
    )
    assert vehicle.read_bytes() == F550.read_bytes()


def test_the_note_of_a_vertical_drag_has_its_interval_and_no_horizontal_speed():
    (note,) = [c.note for c in changes(identify_with_f550("hexa_altitude_4s"), "x") if c.key == "drag.linear_1_s"]
    assert note == "x: vertical ± 0.101"


def test_a_quadrotor_with_coarse_setpoints_is_accepted_and_nothing_uncertain_is_written(tmp_path):
    log = LOGS / "quad_mission_esc_status.ulg"
    found = identify([log], F550)
    assert (found.flight.aircraft, found.flight.rotors) == ("quadrotor", 4)
    said = " ".join(warnings(found))
    assert "is it the right log?" not in said and "roll not identified" in said and "pitch not identified" in said
    made = changes(found, "x")
    assert not [change for change in made if change.key.startswith(("attitude", "latency"))]
    values = {change.key: change.value for change in made}
    vehicle, tables = tmp_path / "quad.toml", read_layered(F550)
    tables["thrust"]["coefficient_m_s2"] = 1.1 * values["thrust.coefficient_m_s2"]
    tables["thrust"]["reference_voltage_v"] = values.get(
        "thrust.reference_voltage_v", tables["thrust"]["reference_voltage_v"]
    )
    vehicle.write_text(tomlkit.dumps(tables))
    done = CliRunner().invoke(identify_command, [str(log), "--vehicle", str(vehicle), "--yes"])
    assert done.exit_code == 0, done.output
    assert load(vehicle, Vehicle).thrust.coefficient_m_s2 == pytest.approx(values["thrust.coefficient_m_s2"], rel=0.02)
