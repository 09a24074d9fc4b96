"""Numbers of an identification for the vehicle file, with their figures of merit, and what is only reported."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibration.identification.forces import Forces
from calibration.identification.identify import Axis, Identification
from calibration.results import Result, result
from calibration.vehicle_file import Change
from companion.core.config import ConfigError
from companion.core.frames import GRAVITY_M_S2
from companion.core.px4_parameters import MODEL_FACTOR_DIFFERENCE
from companion.core.vehicle import Vehicle

REFERENCE_TOLERANCE = (
    0.08  # of the vehicle file's reference voltage: farther away the voltage of the log becomes the reference
)
CURVATURE_MAX = 0.15  # above it, with certainty, the controller's thrust is wrong away from the hover
DRAG_CERTAIN = 0.6  # interval over value
THRUST_CHANGE = 0.25  # of k_T: a larger change is another aircraft, propeller or battery
BATTERY_SPREAD = 1.2  # highest over lowest voltage of flights on one battery: 4.0 and 3.4 V a cell in the median
SUPPORTED_ROTORS = range(4, 17)


def changes(found: Identification, source: str, rotor_drag: bool = False) -> list[Change]:
    """The numbers that the logs determined well enough.

    source: names the data in the notes; rotor_drag: rotor drag in the place of linear drag across; raises `ConfigError`
    when the logs do not determine it.
    """
    made: list[Change] = []
    for axis in (found.roll, found.pitch):
        if (response := axis.trusted_response) is not None:
            note = f"{source}: fits {axis.held_out_percent:.0f} % of held-out flight"
            key = f"attitude.{axis.name}"
            half = response.intervals
            made.append(_change(f"{key}.time_constant_s", response.time_constant_s, half["time_constant_s"], note))
            made.append(_change(f"{key}.gain", response.gain, half["gain"], note))
    delay = actuation_delay(found)
    if delay is not None:
        made.append(Change("latency.actuation_s", _round(delay[0], delay[1]), f"{source}: ± {delay[1]:.3f} s"))
    forces, old = found.forces, found.vehicle
    if forces is None:
        return made if not rotor_drag else made + rotor_drag_changes(found, source)
    reference_v, k = thrust_at_reference(found, forces)
    k_std = forces.intervals["thrust_coefficient"]
    note = f"{source}: ± {k_std:.2f} m/s², at {reference_v:g} V, from {forces.reference_voltage_v:.1f} V"
    made.append(Change("thrust.coefficient_m_s2", round(k, 3), note))
    if (factor := found.flight.model_factor) is not None:
        made.append(Change("thrust.model_factor", factor, f"{source}: THR_MDL_FAC in the log"))
    if len(found.flight.voltage) and (old is None or reference_v != old.thrust.reference_voltage_v):
        made.append(Change("thrust.reference_voltage_v", reference_v, f"{source}: that of the log"))
    exponent, origin = _written_exponent(found, forces)
    if origin:
        made.append(Change("thrust.voltage_exponent", exponent, f"{source}: {origin}"))
    if rotor_drag:
        return made + rotor_drag_changes(found, source)
    horizontal, vertical = drag(forces)
    if horizontal is not None or vertical is not None:
        kept = old.drag.linear_1_s if old else (0.0, 0.0, 0.0)
        flat, up = (None if v is None else round(v, 4) for v in (horizontal, vertical))
        values = [*(kept[:2] if flat is None else (flat, flat)), kept[2] if up is None else up]
        half = forces.intervals
        found_how = []
        if flat is not None:
            speed = f"at {forces.speed_rms_m_s:.1f} m/s RMS"
            found_how.append(f"horizontal ± {half['drag_horizontal']:.3f} {speed}")
        if up is not None:
            found_how.append(f"vertical ± {half['drag_vertical']:.3f}")
        made.append(Change("drag.linear_1_s", values, f"{source}: {', '.join(found_how)}"))
        if flat is not None and old:
            made += _no_rotor_drag(old, source)
    return made


def _no_rotor_drag(vehicle: Vehicle, source: str) -> list[Change]:
    """Rotor drag of 0 where the file has another: linear drag across stands for the same force."""
    present = {"drag.rotor_1_s": vehicle.drag.rotor_1_s, "drag.rotor_s_m": vehicle.drag.rotor_s_m}
    return [Change(key, 0.0, f"{source}: linear drag in its place") for key, value in present.items() if value]


def rotor_drag_changes(found: Identification, source: str) -> list[Change]:
    """Rotor drag for the vehicle file, with the drag along the axis beside it; linear drag across becomes 0.

    Drag along the axis that the log does not determine stays that of the file. (k t + b) c_d of
    `calibration.identification.drag_models` is `drag.rotor_s_m` t + `drag.rotor_1_s`.
    """
    drags = found.drags
    if drags is None:
        raise ConfigError(f"--drag rotor: {found.drags_reason or found.forces_reason}")
    c_d, half = drags.c_d_1_sqrt_m, drags.c_d_half_1_sqrt_m
    if half >= DRAG_CERTAIN * c_d:
        raise ConfigError(f"--drag rotor: c_d = {c_d:.4f} ± {half:.4f} is not certain enough: fly faster")
    value, interval = drags.vertical_1_s, drags.vertical_half_1_s
    beside = f"{source}: beside rotor drag, vertical"
    if interval < DRAG_CERTAIN * value:
        along, along_note = round(value, 4), f"{beside} ± {interval:.3f}"
    else:
        along = found.vehicle.drag.linear_1_s[2] if found.vehicle else 0.0
        along_note = (
            f"{beside} {'kept' if found.vehicle else 'unknown'}, uncertain in the log: {value:.2f} ± {interval:.2f}"
        )
    low, high = drags.thrust_range_m_s2
    note = f"{source}: c_d ± {100.0 * half / c_d:.0f} %, thrust of {low:.1f} to {high:.1f} m/s²"
    return [
        Change("drag.linear_1_s", [0.0, 0.0, along], along_note),
        Change("drag.rotor_1_s", round(drags.b_sqrt_m_s * c_d, 4), note),
        Change("drag.rotor_s_m", round(drags.k_s_sqrt_m * c_d, 5), note),
    ]


def _change(key: str, value: float, interval: float, note: str) -> Change:
    return Change(key, _round(value, interval), f"{note}, ± {interval:.3f}")


def _round(value: float, interval: float) -> float:
    """Four places, five for a very small interval: more digits are below a tenth of the interval."""
    return round(value, 4 if interval > 1e-4 else 5)


def actuation_delay(found: Identification) -> tuple[float, float] | None:
    """(delay [s] of roll and pitch, weighted by certainty, half-width of its interval); None if both are uncertain."""
    responses = [r for axis in (found.roll, found.pitch) if (r := axis.trusted_response) is not None]
    if not responses:
        return None
    delays = np.array([r.delay_s for r in responses])
    weights = np.array([1.0 / max(r.intervals["delay_s"], 1e-3) ** 2 for r in responses])
    spread = float(np.ptp(delays)) / 2.0
    return float(delays @ weights / weights.sum()), max(float(weights.sum()) ** -0.5, spread)


def thrust_at_reference(found: Identification, forces: Forces) -> tuple[float, float]:
    """(reference voltage, k_T there): the reference of the vehicle file unless the log is far from it.

    The exponent is that which the file will have, so that its model gives k_T of the log at the voltage of the log.
    """
    reference_v = found.vehicle.thrust.reference_voltage_v if found.vehicle else 0.0
    if not len(found.flight.voltage):
        return reference_v, forces.thrust_coefficient_m_s2
    if not reference_v or abs(forces.reference_voltage_v / reference_v - 1.0) > REFERENCE_TOLERANCE:
        reference_v = round(forces.reference_voltage_v, 1)
    exponent, _ = _written_exponent(found, forces)
    return reference_v, forces.thrust_coefficient_m_s2 * (reference_v / forces.reference_voltage_v) ** exponent


def _written_exponent(found: Identification, forces: Forces) -> tuple[float, str]:
    """(the voltage exponent that the vehicle file will have, where it comes from).

    "": the file keeps its exponent. Without a vehicle file it is then that of the fit.
    """
    if forces.exponent_fitted and "exponent" not in forces.at_bound:
        return round(forces.voltage_exponent, 2), f"± {forces.intervals['exponent']:.2f}"
    kept = found.vehicle.thrust.voltage_exponent if found.vehicle else None
    if found.flight.battery_compensated and kept != 0.0:
        return 0.0, "MC_BAT_SCALE_EN = 1 in the log"
    return forces.voltage_exponent if kept is None else kept, ""


def thrust_model_factor(forces: Forces, present: float | None = None) -> float:
    """THR_MDL_FAC that would make thrust proportional to the command near the hover, 0 to 1.

    present: the factor a₀ of the log, None: 0. PX4 sends the signal s with u = a₀ s² + (1 - a₀) s for the command u; the
    factor a of the motors, thrust = a s² + (1 - a) s, follows from the relative slope of thrust over signal at the hover,
    r = (1 + curvature) u'(s) / u.
    """
    a, u = present or 0.0, min(GRAVITY_M_S2 / forces.thrust_coefficient_m_s2, 1.0)
    s = u if a == 0.0 else (np.sqrt((1.0 - a) ** 2 + 4.0 * a * u) - (1.0 - a)) / (2.0 * a)
    r = (1.0 + forces.curvature) * (2.0 * a * s + 1.0 - a) / u
    return float(min(max((r * s - 1.0) / max(2.0 * s - 1.0 - r * s * s + r * s, 1e-3), 0.0), 1.0))


def drag(forces: Forces) -> tuple[float | None, float | None]:
    """Horizontal and vertical linear drag [1/s]; None where it is not certain enough."""

    def certain(value: float | None, name: str) -> float | None:
        if value is None or name in forces.at_bound or forces.intervals[name] >= DRAG_CERTAIN * value:
            return None
        return value

    return certain(forces.drag_horizontal_1_s, "drag_horizontal"), certain(forces.drag_vertical_1_s, "drag_vertical")


def warnings(found: Identification) -> list[str]:
    """One sentence for each number that the logs do not determine, and for each that looks wrong."""
    sentences = list(found.notes)
    flight, forces = found.flight, found.forces
    sentences += doubts(found)
    axes = (found.roll, found.pitch, found.yaw)
    sentences += [f"{axis.name} not identified: {axis.reason}" for axis in axes if axis.reason]
    for axis in (found.roll, found.pitch):
        if axis.response is not None and axis.setpoint_rate_hz < 20.0:
            sentences.append(
                f"{axis.name} setpoints were logged at {axis.setpoint_rate_hz:.0f} Hz: a faster logging profile"
                " (SDLOG_PROFILE) gives a more certain delay"
            )
            break
    if forces is None:
        return [*sentences, f"thrust and drag not identified: {found.forces_reason}"]
    names = {
        "drag_horizontal": "horizontal drag",
        "drag_vertical": "vertical drag",
        "exponent": "voltage exponent",
        "thrust_lag_s": "lag of thrust",
    }
    sentences += [f"{names[name]} not identified: {reason}" for name, reason in forces.missing.items()]
    sentences += [f"{names[name]} is at the edge of its range" for name in forces.at_bound]
    if found.drags is None and "drag_horizontal" not in forces.missing:
        sentences.append(f"linear and rotor drag not compared: {found.drags_reason}")
    for value, name, index in zip(
        (forces.drag_horizontal_1_s, forces.drag_vertical_1_s),
        ("drag_horizontal", "drag_vertical"),
        (0, 1),
        strict=True,
    ):
        if value is not None and name not in forces.at_bound and drag(forces)[index] is None:
            sentences.append(f"{names[name]} is uncertain: {value:.2f} ± {forces.intervals[name]:.2f} 1/s, not written")
    if forces.curvature - forces.intervals["curvature"] > CURVATURE_MAX:
        sentences.append(
            f"thrust changes by {1.0 + forces.curvature:.1f} % for 1 % of command: the thrust coefficient is valid near"
            f" the hover only; a THR_MDL_FAC of about {thrust_model_factor(forces, flight.model_factor):.1f} makes it valid"
            f" everywhere ({_factor_text(flight.model_factor)}): set it in PX4, tune the rates, and identify again"
        )
    if not len(flight.voltage):
        sentences.append("without a battery voltage the thrust coefficient is valid for the battery of this log only")
    return sentences + (_contradictions(found, forces, found.vehicle) if found.vehicle else [])


def _factor_text(factor: float | None) -> str:
    return "the log does not hold that of the flight" if factor is None else f"{factor:g} in this log"


def _contradictions(found: Identification, forces: Forces, vehicle: Vehicle) -> list[str]:
    """Contradictions between the logs and the vehicle file."""
    sentences, flight, thrust = [], found.flight, vehicle.thrust
    if flight.battery_compensated and thrust.voltage_exponent > 0.5:
        exponent, _ = _written_exponent(found, forces)
        sentences.append(
            "PX4 compensates the battery (MC_BAT_SCALE_EN = 1): thrust.voltage_exponent of the vehicle file should be"
            f" near 0, it is {thrust.voltage_exponent:g}, and {exponent:g} is written"
        )
    if flight.model_factor is None:
        sentences.append(
            "the log does not hold THR_MDL_FAC: the thrust coefficient is right only if it was"
            f" {thrust.model_factor:g}, as thrust.model_factor in the vehicle file"
        )
    elif abs(flight.model_factor - thrust.model_factor) > MODEL_FACTOR_DIFFERENCE:
        sentences.append(
            f"flown with THR_MDL_FAC = {flight.model_factor:g}, thrust.model_factor of the vehicle file is"
            f" {thrust.model_factor:g}: coefficient and factor are written together, and preflight compares PX4's"
        )
    reference_v, _ = thrust_at_reference(found, forces)
    if len(flight.voltage) and reference_v != thrust.reference_voltage_v:
        sentences.append(
            f"flown at {forces.reference_voltage_v:.1f} V, the vehicle file's reference is"
            f" {thrust.reference_voltage_v:g} V: is it this aircraft's battery?"
        )
    return sentences


def doubts(found: Identification) -> list[str]:
    """Reasons to think that the log is of another aircraft; empty if there are none."""
    sentences, flight = list(found.flight.doubts), found.flight
    if flight.rotors and flight.rotors not in SUPPORTED_ROTORS:
        allowed = f"{SUPPORTED_ROTORS[0]} to {SUPPORTED_ROTORS[-1]}"
        sentences.append(
            f"the log is of a {flight.aircraft}, and this stack is made for {allowed} rotors: is it the right log?"
        )
    voltages = [float(np.median(v)) for span in flight.airborne if len(v := flight.voltage.within(span).value)]
    if voltages and max(voltages) > BATTERY_SPREAD * min(voltages):
        sentences.append(
            f"parts of the flight are at {max(voltages):.1f} and at {min(voltages):.1f} V: are the logs of one aircraft"
            " and one kind of battery?"
        )
    if found.forces is not None and found.vehicle is not None:
        reference_v, k = thrust_at_reference(found, found.forces)
        thrust = found.vehicle.thrust
        old = thrust.coefficient_m_s2 * (reference_v / thrust.reference_voltage_v) ** thrust.voltage_exponent
        if abs(k / old - 1.0) > THRUST_CHANGE:
            sentences.append(
                f"thrust coefficient {k:.1f} m/s² against {old:.1f} in the vehicle file: is it this aircraft's log?"
            )
    return sentences


def as_result(found: Identification, logs: Sequence[Path], made: Sequence[Change]) -> Result:
    """The result in the common schema (`calibration.results`)."""
    merit: dict[str, float] = {"airborne_s": found.flight.airborne_s}
    for axis in (found.roll, found.pitch, found.yaw):
        if axis.response is not None:
            name = axis.name.replace(" ", "_")
            merit[f"{name}_held_out_fit_percent"] = axis.held_out_percent
            merit[f"{name}_fit_percent"] = axis.fit_percent
    if found.forces is not None:
        merit["velocity_rms_m_s"] = found.forces.velocity_rms_m_s
        if found.forces.rotor_velocity_rms_m_s is not None:
            merit["velocity_rms_rotor_drag_m_s"] = found.forces.rotor_velocity_rms_m_s
    values = {change.key: change.value for change in made}
    return result("identify", logs, values, merit, warnings(found), details(found))


def details(found: Identification) -> dict[str, Any]:
    """Every number with its interval, certain or not."""
    flight = found.flight
    content: dict[str, Any] = {
        "aircraft": flight.aircraft,
        "rotors": flight.rotors,
        "airborne": flight.airborne,
        "kind": flight.kind,
    }
    for axis in (found.roll, found.pitch, found.yaw):
        content[axis.name.replace(" ", "_")] = _axis_details(axis)
    forces = found.forces
    if forces is None:
        return content
    reference_v, k = thrust_at_reference(found, forces)
    content["thrust"] = {
        "coefficient_m_s2": k,
        "reference_voltage_v": reference_v,
        "coefficient_in_log_m_s2": forces.thrust_coefficient_m_s2,
        "voltage_in_log_v": forces.reference_voltage_v if len(flight.voltage) else None,
        "voltage_spread_v": forces.voltage_spread_v,
        "voltage_exponent": forces.voltage_exponent,
        "voltage_exponent_fitted": forces.exponent_fitted,
        "lag_s": forces.thrust_lag_s,
        "curvature": forces.curvature,
        "thr_mdl_fac": flight.model_factor,
        "thr_mdl_fac_advised": thrust_model_factor(forces, flight.model_factor),
        "interval_95": {name: forces.intervals[name] for name in forces.intervals if "drag" not in name},
    }
    if forces.trend is not None:
        content["thrust"]["trend"] = {
            "exponent": forces.trend.exponent,
            "exponent_95": [forces.trend.low, forces.trend.high],
            "voltage_v": forces.trend.voltage_v,
            "coefficient_m_s2": forces.trend.coefficient_m_s2,
        }
    content["drag"] = {
        "horizontal_1_s": forces.drag_horizontal_1_s,
        "vertical_1_s": forces.drag_vertical_1_s,
        "rotor_1_s": forces.rotor_drag_1_s,
        "speed_rms_m_s": forces.speed_rms_m_s,
        "constant_m_s2": forces.constant_m_s2,
        "interval_95": {name: forces.intervals[name] for name in forces.intervals if "drag" in name},
        "missing": {name: reason for name, reason in forces.missing.items() if "drag" in name},
        "models": _drag_models(found),
    }
    return content


def _drag_models(found: Identification) -> dict[str, Any]:
    """Both models of `calibration.identification.drag_models`, or the reason why there are none."""
    if (drags := found.drags) is None:
        return {"reason": found.drags_reason}
    return {
        "linear": {
            "d_1_s": drags.linear_1_s,
            "interval_95_1_s": drags.linear_half_1_s,
            "rmse_m_s2": drags.rmse_linear_m_s2,
            "explained": drags.explained_linear,
        },
        "rotor": {
            "k_s_sqrt_m": drags.k_s_sqrt_m,
            "b_sqrt_m_s": drags.b_sqrt_m_s,
            "c_d_1_sqrt_m": drags.c_d_1_sqrt_m,
            "interval_95_1_sqrt_m": drags.c_d_half_1_sqrt_m,
            "thrust_range_m_s2": drags.thrust_range_m_s2,
            "rmse_m_s2": drags.rmse_rotor_m_s2,
            "explained": drags.explained_rotor,
        },
        "rotor_and_vertical": {
            "vertical_1_s": drags.vertical_1_s,
            "interval_95_1_s": drags.vertical_half_1_s,
            "rmse_m_s2": drags.rmse_rotor_vertical_m_s2,
            "explained": drags.explained_rotor_vertical,
        },
        "none": {"rmse_m_s2": drags.rmse_none_m_s2},
    }


def _axis_details(axis: Axis) -> dict[str, Any]:
    content: dict[str, Any] = {
        "moving_s": axis.moving_s,
        "setpoint_rate_hz": axis.setpoint_rate_hz,
        "reason": axis.reason or None,
    }
    if (response := axis.response) is None:
        return content
    return content | {
        "time_constant_s": response.time_constant_s,
        "delay_s": response.delay_s,
        "gain": response.gain,
        "offset": response.offset,
        "interval_95": response.intervals,
        "fit_percent": axis.fit_percent,
        "held_out_fit_percent": axis.held_out_percent,
        "held_out_fit_percent_each": axis.held_out_each,
        "held_out_s": [[float(part[0].t_s[0]), float(part[-1].t_s[-1])] for part in axis.parts],
        "at_bound": list(response.at_bound),
    }
