"""A log is fitted with the vehicle that flew, and messages that cannot be decoded are named by topic."""

from dataclasses import replace

import mount_logs
import pytest
import tomlkit
from calibration_paths import F550, VEHICLES
from click.testing import CliRunner
from identify_flights import write_flight_log

from calibration.flown_vehicle import VehicleSource, flown_vehicle
from calibration.identification.command import identify as identify_command
from calibration.identification.identify import identify
from calibration.logs import log_warnings
from calibration.mount import extrinsics, latency
from calibration.mount.observations import read_mount_log
from calibration.results import DataError
from companion.core.config import load, read_layered
from companion.core.messages import FcuAttitude, Markers
from companion.core.vehicle import Vehicle
from companion.recording.log import read_log
from companion.recording.writer import LogWriter

EXPONENT = "thrust.voltage_exponent"


@pytest.fixture
def write_log(tmp_path):
    """Writes a log with some metadata; broken: how many of its 200 marker messages cannot be decoded."""

    def written(metadata: dict[str, str], broken: int = 0):
        path = tmp_path / "flight.mcap"
        writer = LogWriter(path, metadata)
        for i in range(200):
            t_s = 0.02 * i
            attitude = FcuAttitude(stamp_s=t_s, q_WB=(1.0, 0.0, 0.0, 0.0), omega_B=(0.0, 0.0, 0.0))
            markers = Markers(stamp_s=t_s, observations=[], detect_time_s=0.003, search="full")
            writer.put("fcu_attitude", attitude, t_s)
            writer.put("markers", attitude if i < broken else markers, t_s)
        writer.close()
        return path

    return written


def changed(path, **numbers):
    """The vehicle file with other numbers of its table `thrust`."""
    tables = read_layered(F550)
    tables["thrust"] |= numbers
    path.write_text(tomlkit.dumps(tables))
    return path


def test_the_numbers_that_flew_are_those_of_the_log_whatever_the_file_is_now(write_log, vehicle):
    metadata = {"vehicle": vehicle.read_text(), "vehicle_file": str(vehicle)}
    flew = load(vehicle, Vehicle)
    changed(vehicle, voltage_exponent=0.7)
    flown = flown_vehicle(read_log(write_log(metadata)), vehicle)
    assert flown.source is VehicleSource.LOG and flown.vehicle == flew
    assert flown.value(EXPONENT) == flew.thrust.voltage_exponent and flown.value("thrust.absent") is None
    (note,) = flown.notes
    assert f"{vehicle} differs from the vehicle that flew: {EXPONENT} = 0.7 (flown: 1.5)" in note
    assert note.endswith("the fit uses the flown numbers")


def test_a_file_that_equals_the_flown_one_gives_no_note(write_log, vehicle):
    assert flown_vehicle(read_log(write_log({"vehicle": vehicle.read_text()})), vehicle).notes == ()


def test_a_file_with_a_base_counts_while_it_is_unchanged(write_log, copy_vehicle):
    copy_vehicle("f550")
    rtk = copy_vehicle("f550_rtk")
    metadata = {"vehicle": rtk.read_text(), "vehicle_file": str(rtk)}
    log = read_log(write_log(metadata))
    assert flown_vehicle(log, None).vehicle == load(rtk, Vehicle)
    rtk.write_text(rtk.read_text() + "\n[thrust]\nvoltage_exponent = 0.7\n")
    assert flown_vehicle(log, None).source is VehicleSource.UNKNOWN


def test_without_a_vehicle_in_the_log_the_given_file_is_taken_and_named(write_log, vehicle):
    log = read_log(write_log({}))
    flown = flown_vehicle(log, vehicle)
    assert flown.source is VehicleSource.GIVEN_FILE and flown.vehicle == load(vehicle, Vehicle)
    assert flown.notes == (f"the log does not hold its vehicle file; the fit takes {vehicle} for the one that flew",)
    assert flown_vehicle(log, None).source is VehicleSource.UNKNOWN


NAMED = {"name": "Vega 6", "fcu.hardware_id": "0x001f003b34385119"}


def identified(path, **values):
    """The F550's vehicle file with another name or hardware id of its flight controller."""
    tables = read_layered(F550)
    tables["name"] = values.get("name", tables["name"])
    tables["fcu"]["hardware_id"] = values.get("fcu.hardware_id", "")
    path.write_text(tomlkit.dumps(tables))
    return path


@pytest.mark.parametrize(
    ("flown", "given", "different"),
    [
        ({}, {}, []),
        ({"name": "Vega 6"}, {}, ["name"]),
        (NAMED, NAMED, []),
        (NAMED, {"name": "Vega 6"}, []),  # a file without the id: any flight controller
        (NAMED, NAMED | {"fcu.hardware_id": "0x001f003b34385120"}, ["fcu.hardware_id"]),
        (NAMED, {"fcu.hardware_id": "0x001f003b34385120"}, ["fcu.hardware_id"]),
        (NAMED, NAMED | {"name": "F550 with payload camera"}, []),  # the same flight controller
    ],
)
def test_another_name_or_flight_controller_in_the_log_is_a_doubt(write_log, tmp_path, flown, given, different):
    log = read_log(write_log({"vehicle": identified(tmp_path / "flown.toml", **flown).read_text()}))
    file = identified(tmp_path / "mine.toml", **given)
    doubts = flown_vehicle(log, file).doubts
    assert [doubt.removeprefix("flown with ").split(" = ")[0] for doubt in doubts] == different
    assert all(f"{file} has " in doubt and doubt.endswith("is it this aircraft's log?") for doubt in doubts)
    assert flown_vehicle(log, None).doubts == ()


def test_the_log_of_another_aircraft_is_identified_into_a_file_only_with_this_aircraft(
    tmp_path, vehicle, made_up_flight
):
    flown = identified(tmp_path / "flown.toml", name="Vega 6")
    log = write_flight_log(tmp_path / "flight.mcap", made_up_flight(seed=6, duration_s=45.0), vehicle=flown)
    written_only_with_this_aircraft(identify_command, log, vehicle)


@pytest.mark.parametrize("command", [extrinsics.command, latency.command], ids=["extrinsics", "latency"])
def test_the_mount_of_another_aircraft_is_written_only_with_this_aircraft(monkeypatch, tmp_path, vehicle, command):
    doubt = f'flown with name = "Vega 6", {vehicle} has "F550": is it this aircraft\'s log?'
    log = replace(mount_logs.fly(), doubts=(doubt,))
    for module in (extrinsics, latency):
        monkeypatch.setattr(module, "read_mount_log", lambda *_: log)
    written_only_with_this_aircraft(command, tmp_path / "flight.mcap", vehicle)


def test_a_delay_of_setpoints_alone_names_another_aircraft_too(tmp_path, vehicle, made_up_flight):
    """The camera saw nothing in this log."""
    flown = identified(tmp_path / "flown.toml", name="Vega 6")
    log = write_flight_log(tmp_path / "flight.mcap", made_up_flight(seed=6, duration_s=45.0), vehicle=flown)
    written_only_with_this_aircraft(latency.command, log, vehicle)


def written_only_with_this_aircraft(command, log, vehicle):
    before, line = vehicle.read_bytes(), [str(log), "--vehicle", str(vehicle), "--yes"]
    refused = CliRunner().invoke(command, line, catch_exceptions=False)
    (last,) = [line for line in refused.output.splitlines() if line.startswith("companion: ")]
    assert refused.exit_code == 2 and vehicle.read_bytes() == before
    assert f'nothing written: flown with name = "Vega 6", {vehicle} has "F550"' in last
    assert last.endswith("(--this-aircraft writes nevertheless)")
    done = CliRunner().invoke(command, [*line, "--this-aircraft"], catch_exceptions=False)
    assert done.exit_code == 0 and vehicle.read_bytes() != before
    assert 'flown with name = "Vega 6"' in done.output


def test_identification_fits_with_the_flown_exponent_and_keeps_the_reference_of_the_given_file(
    tmp_path, made_up_flight
):
    flight = made_up_flight(seed=6, duration_s=45.0)
    flown, given = tmp_path / "flown.toml", changed(tmp_path / "given.toml", voltage_exponent=0.7)
    changed(flown, voltage_exponent=1.4)
    log = write_flight_log(tmp_path / "flight.mcap", flight, vehicle=flown)
    found, alone = identify([log], given), identify([log])
    assert found.forces.voltage_exponent == alone.forces.voltage_exponent
    assert found.vehicle == load(given, Vehicle) and alone.vehicle == load(flown, Vehicle)
    assert any(f"{EXPONENT} = 0.7 (flown: 1.4)" in note for note in found.notes) and not alone.notes


def test_messages_that_cannot_be_decoded_are_named_by_topic_and_count(write_log):
    log = read_log(write_log({"vehicle": (VEHICLES / "f550.toml").read_text()}, broken=30))
    (warning,) = log_warnings(log)
    assert warning.startswith("30 messages of the topic 'markers' cannot be decoded by this version (")
    assert "unknown field" in warning


@pytest.mark.parametrize(("broken", "seen"), [(200, False), (30, True)])
def test_undecodable_markers_are_not_taken_for_no_markers(write_log, broken, seen):
    path = write_log({"vehicle": (VEHICLES / "f550.toml").read_text()}, broken)
    with pytest.raises(DataError) as caught:
        read_mount_log(path, None, None)
    text = str(caught.value)
    assert f"{broken} messages of the topic 'markers' cannot be decoded" in text
    assert ("no marker was seen" in text) == seen and "\n" not in text
