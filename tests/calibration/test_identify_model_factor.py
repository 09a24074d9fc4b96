"""A thrust coefficient belongs to the THR_MDL_FAC with which it was flown: where the factor is read from."""

import struct
from types import SimpleNamespace

import numpy as np
import pytest
from identify_flights import every, fly, write_flight_log, write_ulog

from calibration.identification.flight_log import read_flight_log
from calibration.identification.merge import merge
from calibration.identification.ulog import read_ulog
from calibration.identification.values import thrust_model_factor
from calibration.results import DataError
from companion.core.frames import GRAVITY_M_S2


@pytest.fixture(scope="module")
def short():
    return fly(duration_s=16.0)


def ulog(path, flight, factor, **options):
    return write_ulog(path, flight, parameters={"CA_ROTOR_COUNT": 6, "THR_MDL_FAC": factor}, **options)


def test_a_ulog_holds_the_factor_and_one_without_parameters_does_not(tmp_path, short):
    assert read_ulog(ulog(tmp_path / "a.ulg", short, 0.3)).model_factor == 0.3
    assert read_ulog(ulog(tmp_path / "b.ulg", short, 7.0)).model_factor is None, "PX4 ignores a factor above 1"
    assert read_ulog(write_ulog(tmp_path / "c.ulg", short)).model_factor is None


def test_a_factor_changed_within_a_log_is_refused(tmp_path, short):
    path = ulog(tmp_path / "changed.ulg", short, 0.0)
    key = b"float THR_MDL_FAC"
    body = bytes([len(key)]) + key + struct.pack("<f", 0.5)
    path.write_bytes(path.read_bytes() + struct.pack("<HB", len(body), ord("P")) + body)
    with pytest.raises(DataError, match=r"changed\.ulg: THR_MDL_FAC was changed from 0 to 0\.5"):
        read_ulog(path)


def test_a_flight_log_holds_the_factor_of_the_flight_controller_or_of_its_vehicle(tmp_path, short):
    assert read_flight_log(write_flight_log(tmp_path / "old.mcap", short)).model_factor == 0.0
    reported = write_flight_log(tmp_path / "reported.mcap", short, factors=[0.4, 0.4])
    assert read_flight_log(reported).model_factor == 0.4
    with pytest.raises(DataError, match=r"THR_MDL_FAC was changed from 0\.4 to 0\.2"):
        read_flight_log(write_flight_log(tmp_path / "changed.mcap", short, factors=[0.4, 0.2]))


def test_logs_of_different_factors_are_not_merged(tmp_path, short):
    flights = [read_ulog(ulog(tmp_path / f"{factor}.ulg", short, factor)) for factor in (0.3, 0.0)]
    with pytest.raises(DataError, match=r"0\.0\.ulg: flown with THR_MDL_FAC 0, but .*0\.3\.ulg with 0\.3"):
        merge(flights)


def test_logs_with_and_without_compensated_battery_are_not_merged(tmp_path, short):
    flights = [
        read_ulog(write_ulog(tmp_path / f"{on}.ulg", short, parameters={"CA_ROTOR_COUNT": 6, "MC_BAT_SCALE_EN": on}))
        for on in (0, 1)
    ]
    with pytest.raises(DataError, match=r"1\.ulg: flown with another MC_BAT_SCALE_EN than .*0\.ulg"):
        merge(flights)


def test_pulse_widths_become_commands_by_the_factor(tmp_path, short):
    """PX4 sends the signal s for the command F s² + (1 - F) s."""
    path = ulog(
        tmp_path / "pwm.ulg", short, 0.4, skip=("vehicle_attitude_setpoint", "vehicle_rates_setpoint"), pwm=True
    )
    thrust = read_ulog(path).thrust
    assert np.allclose(thrust.value, 0.4 * 0.5**2 + 0.6 * 0.5, atol=1e-6)
    assert len(thrust) == len(every(short, 10))


@pytest.mark.parametrize(("true", "present"), [(0.6, None), (0.6, 0.3), (0.3, 0.3), (0.1, 0.4), (1.0, 0.5)])
def test_the_advised_factor_makes_thrust_proportional_to_the_command(true, present):
    k_T, a = 28.0, present or 0.0
    hover = GRAVITY_M_S2 / k_T
    s = np.linspace(0.0, 1.0, 200001)
    command, thrust = a * s**2 + (1 - a) * s, true * s**2 + (1 - true) * s
    at = int(np.searchsorted(command, hover))
    slope = (thrust[at + 1] - thrust[at - 1]) / (command[at + 1] - command[at - 1]) * command[at] / thrust[at]
    found = SimpleNamespace(thrust_coefficient_m_s2=k_T, curvature=slope - 1.0)
    assert thrust_model_factor(found, present) == pytest.approx(true, abs=1e-3)
