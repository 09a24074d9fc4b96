"""Linear and rotor drag from a made-up flight with known drag: numbers, intervals, and how much each explains."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from calibration_paths import F550

from calibration.identification.drag_models import compare_drags, root_line
from calibration.identification.flight_data import FlightData, LogKind, Signal, nothing
from calibration.identification.forces import Forces
from calibration.identification.identify import Axis, Identification
from calibration.identification.values import changes, rotor_drag_changes, warnings
from calibration.identification.windows import Windows, usable_spans
from companion.core.config import ConfigError, load
from companion.core.frames import GRAVITY_M_S2, quat_from_rpy, rotation_matrix
from companion.core.vehicle import Drag, Vehicle

STEP_S, DURATION_S, K_T = 0.02, 60.0, 27.0
NOISE_M_S2 = 0.1
LINEAR_1_S, C_D = np.array([0.3, 0.3, 0.2]), 0.08


def made_up(drag, noise_m_s2=NOISE_M_S2, wind_W=(1.0, -2.0, 0.0), climbs=True) -> FlightData:
    """A flight whose tilt and thrust vary independently, so a drag that depends on thrust shows. drag: of (v_B, t)."""
    rng = np.random.default_rng(1)
    n = round(DURATION_S / STEP_S)
    t_s = STEP_S * np.arange(n)
    rpy = 0.35 * np.column_stack([np.sin(1.1 * t_s), np.sin(0.8 * t_s + 1.0), np.zeros(n)])
    share = 1.0 + climbs * (0.25 * np.sin(1.9 * t_s) + 0.2 * np.sin(2.7 * t_s))
    v_W, velocity, felt = np.zeros(3), np.zeros((n, 3)), np.zeros((n, 3))
    command = GRAVITY_M_S2 / K_T * share / (np.cos(rpy[:, 0]) * np.cos(rpy[:, 1]))
    for i in range(n):
        R = rotation_matrix(quat_from_rpy(*rpy[i]))
        thrust = K_T * command[i]
        felt[i] = [0.0, 0.0, thrust] + drag(R.T @ (v_W - wind_W), thrust)
        velocity[i] = v_W
        v_W = v_W + STEP_S * (R @ felt[i] - [0.0, 0.0, GRAVITY_M_S2])
    flight = FlightData(Path("made_up"), LogKind.FLIGHT_LOG)
    flight.attitude, flight.thrust = Signal(t_s, rpy), Signal(t_s, command, held=True)
    flight.velocity_W, flight.velocity_axes = Signal(t_s, velocity), (True, True)
    flight.imu_B = Signal(t_s, felt + noise_m_s2 * rng.standard_normal((n, 3)) + [0.05, -0.02, 0.03])
    flight.airborne = [(0.5, DURATION_S - 0.5)]
    return flight


def linear(v_B, thrust):
    return -LINEAR_1_S * v_B


def rotor(v_B, thrust):
    return -C_D * np.sqrt(thrust) * v_B * [1.0, 1.0, 0.0]


def forces_of(flight, **changes) -> Forces:
    windows = Windows(flight, usable_spans(flight))
    found = Forces(K_T, 1.0, 0.0, False, 0.0, 0.3, None, (0.0, 0.0), 0.0, 3.0, (0.0, 0.0), windows, windows.velocity)
    return replace(found, **changes)


def compared(flight, **changes):
    return compare_drags(flight, usable_spans(flight), forces_of(flight, **changes))


@pytest.fixture(scope="module")
def with_rotor_drag():
    return made_up(rotor)


def test_rotor_drag_is_found_and_explains_more_than_linear_drag(with_rotor_drag):
    drags, reason = compared(with_rotor_drag)
    assert reason == ""
    assert drags.c_d_1_sqrt_m == pytest.approx(C_D, rel=0.05)
    assert abs(drags.c_d_1_sqrt_m - C_D) < 2 * drags.c_d_half_1_sqrt_m < 0.1 * C_D
    assert drags.explained_rotor > drags.explained_linear > 0.5
    assert drags.rmse_rotor_m_s2 == pytest.approx(np.sqrt(3) * NOISE_M_S2, rel=0.1)
    assert abs(drags.vertical_1_s) < 0.02


def test_linear_drag_is_found_and_explains_more_than_rotor_drag():
    drags, _ = compared(made_up(linear))
    np.testing.assert_allclose(drags.linear_1_s, LINEAR_1_S, atol=0.02)
    assert (np.abs(np.array(drags.linear_1_s) - LINEAR_1_S) < 2 * np.array(drags.linear_half_1_s)).all()
    assert drags.explained_linear > drags.explained_rotor_vertical > drags.explained_rotor > 0.5
    assert drags.vertical_1_s == pytest.approx(0.2, abs=0.02)


def test_an_error_of_thrust_does_not_become_drag(with_rotor_drag):
    drags, _ = compared(with_rotor_drag, thrust_coefficient_m_s2=1.05 * K_T)
    assert drags.c_d_1_sqrt_m == pytest.approx(C_D, rel=0.04)  # √t alone is 2.5 % larger
    assert drags.explained_rotor > 0.9


def test_the_line_stands_for_the_root_of_the_thrusts_flown():
    thrust = np.random.default_rng(2).uniform(7.0, 15.0, 1000)
    k, b, low, high = root_line(thrust)
    np.testing.assert_allclose(k * thrust + b, np.sqrt(thrust), rtol=0.02)
    assert low == pytest.approx(7.0, abs=0.2) and high == pytest.approx(15.0, abs=0.2)
    k, b, low, high = root_line(np.full(100, 9.8))  # without any spread: the tangent
    assert (low, high) == (pytest.approx(8.82), pytest.approx(10.78))
    assert k == pytest.approx(0.5 / np.sqrt(9.8), rel=0.01)


def test_the_papers_numbers_follow_by_mass_and_number_of_rotors():
    mass_kg, rotors, t, v = 1.8, 6, 11.0, 5.0
    k, b, _, _ = root_line(np.linspace(7, 15, 100))
    of_one = (k * np.sqrt(rotors / mass_kg)) * (mass_kg * t / rotors) + b * np.sqrt(mass_kg / rotors)
    force = rotors * of_one * C_D * np.sqrt(mass_kg / rotors) * v
    assert force / mass_kg == pytest.approx((k * t + b) * C_D * v)


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (lambda f: replace(f, imu_B=nothing(3)), "accelerometer"),
        (lambda f: replace(f, imu_B=Signal(f.imu_B.t_s[::3], f.imu_B.value[::3])), "25 Hz"),
        (lambda f: replace(f, airborne=[(0.5, 8.0)]), "windows"),
    ],
)
def test_without_the_data_there_is_a_reason(with_rotor_drag, broken, expected):
    flight = broken(with_rotor_drag)
    drags, reason = compared(flight)
    assert drags is None and expected in reason


def test_the_reason_is_said(with_rotor_drag):
    none = replace(with_rotor_drag, imu_B=nothing(3))
    forces = forces_of(none, intervals={"drag_horizontal": 0.01, "curvature": 0.0}, thrust_lag_s=0.05)
    drags, reason = compare_drags(none, usable_spans(none), forces)
    axes = [Axis(name, reason="not flown") for name in ("roll", "pitch", "yaw rate")]
    found = Identification(none, *axes, forces, "", [], None, drags, reason)
    assert f"linear and rotor drag not compared: {reason}" in warnings(found)


def test_where_the_flight_determines_no_drag_its_reason_is_given(with_rotor_drag):
    drags, reason = compared(with_rotor_drag, drag_horizontal_1_s=None, missing={"drag_horizontal": "flown at 0.1 m/s"})
    assert drags is None and reason == "flown at 0.1 m/s"


def test_a_log_with_an_accelerometer_of_its_own_is_used(with_rotor_drag):
    ulog = replace(with_rotor_drag, imu_B=nothing(3), accelerometer_B=with_rotor_drag.imu_B)
    assert compared(ulog)[0] == compared(with_rotor_drag)[0]


def identified(flight, drags, reason="") -> Identification:
    axes = [Axis(name, reason="not flown") for name in ("roll", "pitch", "yaw rate")]
    return Identification(flight, *axes, forces_of(flight), "", [], None, drags, reason)


def test_what_is_written_is_the_drag_of_the_flight(with_rotor_drag):
    drags, _ = compared(with_rotor_drag)
    written = {change.key: change.value for change in rotor_drag_changes(identified(with_rotor_drag, drags), "log")}
    assert written["drag.linear_1_s"] == [0.0, 0.0, 0.0]
    for thrust in (8.0, 10.0, 14.0):
        drag_1_s = written["drag.rotor_1_s"] + written["drag.rotor_s_m"] * thrust
        assert drag_1_s == pytest.approx(C_D * np.sqrt(thrust), rel=0.06)


def test_the_drag_along_the_axis_is_written_beside_it(with_rotor_drag):
    drags, _ = compared(made_up(lambda v, t: rotor(v, t) - [0.0, 0.0, 0.25] * v))
    written = {change.key: change.value for change in rotor_drag_changes(identified(with_rotor_drag, drags), "log")}
    assert written["drag.linear_1_s"] == [0.0, 0.0, pytest.approx(0.25, abs=0.03)]


@pytest.mark.parametrize(("known", "kept", "words"), [(0.12, 0.12, "kept"), (None, 0.0, "unknown")])
def test_drag_along_the_axis_that_the_log_does_not_determine_stays(with_rotor_drag, known, kept, words):
    drags = replace(compared(with_rotor_drag)[0], vertical_1_s=0.12, vertical_half_1_s=0.2)
    found = identified(with_rotor_drag, drags)
    if known is not None:
        vehicle = msgspec.structs.replace(load(F550, Vehicle), drag=Drag(linear_1_s=(0.3, 0.3, known)))
        found = replace(found, vehicle=vehicle)
    change = next(c for c in rotor_drag_changes(found, "log") if c.key == "drag.linear_1_s")
    assert change.value == [0.0, 0.0, kept]
    assert f"vertical {words}, uncertain in the log: 0.12 ± 0.20" in change.note


@pytest.mark.parametrize(("rotor_1_s", "rotor_s_m"), [(0.1, 0.017), (0.27, 0.0), (0.0, 0.0)])
def test_linear_drag_across_replaces_rotor_drag_of_the_file(with_rotor_drag, rotor_1_s, rotor_s_m):
    flown = Drag(linear_1_s=(0.0, 0.0, 0.05), rotor_1_s=rotor_1_s, rotor_s_m=rotor_s_m)
    vehicle = msgspec.structs.replace(load(F550, Vehicle), drag=flown)
    intervals = {"thrust_coefficient": 0.1, "drag_horizontal": 0.01}
    forces = forces_of(with_rotor_drag, drag_horizontal_1_s=0.27, intervals=intervals)
    found = replace(identified(with_rotor_drag, None), vehicle=vehicle, forces=forces)
    written = {c.key.removeprefix("drag."): c.value for c in changes(found, "log") if c.key.startswith("drag.")}
    after = msgspec.convert(msgspec.to_builtins(flown) | written, Drag)
    assert after == Drag(linear_1_s=(0.27, 0.27, 0.05)) and after.contradiction() == ""
    assert ("rotor_1_s" in written, "rotor_s_m" in written) == (rotor_1_s > 0, rotor_s_m > 0)


def test_rotor_drag_that_the_log_does_not_determine_is_not_written(with_rotor_drag):
    with pytest.raises(ConfigError, match=r"^--drag rotor: flown at 0\.1 m/s$"):
        rotor_drag_changes(identified(with_rotor_drag, None, "flown at 0.1 m/s"), "log")
    drags = replace(compared(with_rotor_drag)[0], c_d_half_1_sqrt_m=0.06)
    with pytest.raises(
        ConfigError, match=r"^--drag rotor: c_d = 0\.08\d\d ± 0\.0600 is not certain enough: fly faster$"
    ):
        rotor_drag_changes(identified(with_rotor_drag, drags), "log")
