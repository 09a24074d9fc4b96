"""Several battery modules: the lowest pack is judged, the thrust model follows the first, a broken one harms no more."""

import math

import pytest
from fcu_peer import BATTERY, SYS_STATUS
from pymavlink.dialects.v20 import common

from companion.core.messages import FcuStatus, FcuText
from companion.fcu.batteries import FIRST_AGE_S, OTHER_AGE_S

FULL = (3900, 3900, 3900, 3900)


def module(number, cells=FULL, percent=73, function=common.MAV_BATTERY_FUNCTION_ALL):
    """BATTERY_STATUS; cells [mV]."""
    voltages = [*cells, *[65535] * (10 - len(cells))]
    return common.MAVLink_battery_status_message(number, function, 0, 2500, voltages, 1000, 0, 0, percent)


def report(peer, *others, seconds=2.0):
    """The first module by its stream, the others once in every half second; returns the newest status."""
    for _ in range(round(seconds / 0.5)):
        peer.deliver(*others)
        peer.run(0.5)
    return [m for _, m in peer.out if type(m) is FcuStatus][-1]


def test_the_lowest_voltage_and_charge_of_all_modules_are_published(flying):
    """With one of two packs at its end the aircraft flew on until that pack failed: only the first one was seen."""
    status = report(flying, module(1, [3300] * 4, 12), module(2, [3700] * 4, 40))
    assert status.battery_voltage_v == pytest.approx(13.2) and status.battery_remaining == pytest.approx(0.12)


def test_the_first_module_is_judged_where_it_is_the_lower_one(flying):
    status = report(flying, module(1, [4100] * 4, 95))
    assert status.battery_voltage_v == pytest.approx(15.6) and status.battery_remaining == pytest.approx(0.73)


def test_a_weak_cell_of_another_pack_is_seen_and_packs_are_not_mixed(flying):
    weak = report(flying, module(1, (3900, 3900, 3900, 3400)))
    assert min(weak.cells_v) == pytest.approx(3.4) and len(weak.cells_v) == 4
    lower = report(flying, module(1, [3500] * 4))
    assert max(lower.cells_v) == min(lower.cells_v), "two packs of different charge have no weak cell"


def test_the_thrust_model_follows_the_first_module_alone(flying):
    assert math.isnan(report(flying).thrust_voltage_v)
    status = report(flying, module(1, [3300] * 4))
    assert status.thrust_voltage_v == pytest.approx(15.6) and status.battery_voltage_v == pytest.approx(13.2)


def test_a_module_that_falls_silent_is_forgotten(flying):
    assert report(flying, module(1, [3300] * 4)).battery_voltage_v == pytest.approx(13.2)
    silent = report(flying, seconds=OTHER_AGE_S + 0.5)
    assert silent.battery_voltage_v == pytest.approx(15.6) and math.isnan(silent.thrust_voltage_v)


@pytest.mark.parametrize("cells", [[65000], [1], [0], [65535], [5000] * 4, [1000] * 4])
def test_a_broken_second_module_is_left_out_and_named_once(flying, cells):
    status = report(flying, module(1, cells, 0))
    assert status.battery_voltage_v == pytest.approx(15.6) and status.battery_remaining == pytest.approx(0.73)
    assert status.cells_v == (3.9,) * 4 and math.isnan(status.thrust_voltage_v)
    assert "battery voltage" not in status.implausible
    named = [m.text for _, m in flying.out if type(m) is FcuText and "battery module 2" in m.text]
    assert len(named) == (cells not in ([0], [65535]))


def test_a_broken_first_module_is_reported_as_it_is(flying):
    """Another module does not hide it: the row `battery_implausible` ends the flight."""
    flying.content[BATTERY] = lambda ms: module(0, [65000])
    status = report(flying, module(1))
    assert status.battery_voltage_v == pytest.approx(65.0) and "battery voltage" in status.implausible


def test_a_first_module_that_measures_nothing_is_not_replaced_by_another(flying):
    flying.content[BATTERY] = lambda ms: module(0, [])
    assert math.isnan(report(flying, module(1)).battery_voltage_v)
    flying.content[BATTERY] = flying.content[SYS_STATUS] = lambda ms: None
    assert math.isnan(report(flying, module(1), seconds=FIRST_AGE_S + 2.0).battery_voltage_v)


@pytest.mark.parametrize(
    "other",
    [
        module(4, [3300] * 4),
        module(255, [3300] * 4),
        module(1, [3300] * 4, function=common.MAV_BATTERY_FUNCTION_AVIONICS),
    ],
    ids=["id 4", "id 255", "avionics"],
)
def test_what_is_no_pack_of_the_rotors_is_not_judged(flying, other):
    assert report(flying, other).battery_voltage_v == pytest.approx(15.6)


def test_an_id_that_appears_in_flight_is_no_pack_of_this_aircraft(flying):
    """No module corrects forged frames of such an id: they would land the aircraft."""
    report(flying, module(1, [3800] * 4))
    flying.armed = True
    flying.run(2.5)  # two heartbeats
    status = report(flying, module(1, [3700] * 4), module(2, [3200] * 4, 1))
    assert status.battery_voltage_v == pytest.approx(14.8) and status.battery_remaining == pytest.approx(0.73)


def test_after_a_restart_of_the_flight_controller_the_modules_are_found_again(flying):
    report(flying, module(1, [3300] * 4))
    flying.reboot()
    assert report(flying, seconds=3.0).battery_voltage_v == pytest.approx(15.6)
