"""Tables in another unit than their header says are refused with the unit that it may be."""

import pytest

from calibration.results import DataError
from calibration.thrust.plausible import refuse_other_unit, refuse_other_voltage


def test_volts_per_cell_are_refused_and_named():
    with pytest.raises(
        DataError, match=r"3\.60 to 4\.10 V, x6\.toml has a reference of 15\.2 V: volts per cell\? multiply them by 4"
    ):
        refuse_other_voltage((3.6, 4.1), 15.2, "x6.toml")
    with pytest.raises(DataError, match="multiply them by 6"):
        refuse_other_voltage((3.5, 4.2), 22.2, "x6.toml")


@pytest.mark.parametrize("measured_v", [(22.0, 25.0), (9.0, 11.0)])
def test_another_battery_needs_the_reference_voltage(measured_v):
    with pytest.raises(DataError, match="--reference-voltage"):
        refuse_other_voltage(measured_v, 15.2, "x6.toml")


@pytest.mark.parametrize("measured_v", [(14.0, 16.8), (15.2, 15.2), (12.0, 13.0), (16.0, 18.0)])
def test_voltages_of_the_vehicles_battery_pass(measured_v):
    refuse_other_voltage(measured_v, 15.2, "x6.toml")


def test_thrust_in_grams_that_is_read_as_newtons_is_refused(tmp_path):
    refuse_other_unit(2.1, tmp_path / "motor.csv")
    refuse_other_unit(14.0, tmp_path / "racer.csv")
    with pytest.raises(
        DataError, match=r"motor\.csv: full thrust is 214 times the weight: is the thrust in another unit"
    ):
        refuse_other_unit(214.0, tmp_path / "motor.csv")
