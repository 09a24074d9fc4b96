"""What an identification writes into the vehicle file, with its figures of merit, and what it only reports."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calibration.identification.identify import Axis, Identification
from calibration.identification.motion import Motion
from calibration.results import result
from calibration.vehicle_file import Change
from companion.core.frames import GRAVITY_M_S2
from companion.core.vehicle import Vehicle

REFERENCE_TOLERANCE = 0.08  # of the vehicle file's reference voltage: a log farther away brings its own
CURVATURE_MAX = 0.15  # more, for certain: the controller's thrust would be off away from the hover
DRAG_SURE = 0.6  # interval over value
THRUST_CHANGE = 0.25  # of k_T: as much more or less is another aircraft, propeller or battery


def changes(found: Identification, source: str) -> list[Change]:
    """The numbers that the logs determined well enough. source: names the data in the notes."""
    made = []
    for axis in (found.roll, found.pitch):
        if axis.trusted:
            note = f"{source}: fits {axis.held_out_percent:.0f} % of held-out flight"
            key = f"attitude.{axis.name}"
            made.append(_change(f"{key}.time_constant_s", axis.response.time_constant_s, axis, "time_constant_s", note))
            made.append(_change(f"{key}.gain", axis.response.gain, axis, "gain", note))
    delay = actuation_delay(found)
    if delay is not None:
        made.append(Change("latency.actuation_s", _round(delay[0], delay[1]), f"{source}: ± {delay[1]:.3f} s"))
    motion, old = found.motion, found.believed
    if motion is None:
        return made
    reference_v, k = thrust_at_reference(found)
    k_std = motion.intervals["thrust_coefficient"]
    note = f"{source}: at {reference_v:g} V, from {motion.reference_voltage_v:.1f} V ± {k_std:.2f}"
    made.append(Change("thrust.coefficient_m_s2", round(k, 3), note))
    if len(found.flight.voltage) and (old is None or reference_v != old.thrust.reference_voltage_v):
        made.append(Change("thrust.reference_voltage_v", reference_v, f"{source}: the log's own"))
    if motion.exponent_fitted and "exponent" not in motion.at_bound:
        note = f"{source}: ± {motion.intervals['exponent']:.2f}"
        made.append(Change("thrust.voltage_exponent", round(motion.voltage_exponent, 2), note))
    horizontal, vertical = drag(found)
    if horizontal is not None or vertical is not None:
        kept = old.drag.linear_1_s if old else (0.0, 0.0, 0.0)
        values = [*(kept[:2] if horizontal is None else (horizontal,) * 2), kept[2] if vertical is None else vertical]
        sure = [
            f"± {motion.intervals[name]:.3f}"
            for name in ("drag_horizontal", "drag_vertical")
            if name in motion.intervals
        ]
        note = f"{source}: {', '.join(sure)} at {motion.speed_rms_m_s:.1f} m/s RMS"
        made.append(Change("drag.linear_1_s", [round(v, 4) for v in values], note))
    return made


def _change(key: str, value: float, axis: Axis, name: str, note: str) -> Change:
    interval = axis.response.intervals[name]
    return Change(key, _round(value, interval), f"{note}, ± {interval:.3f}")


def _round(value: float, interval: float) -> float:
    """Digits beyond a tenth of the interval say nothing; four places at the least stay readable."""
    return round(value, 4 if interval > 1e-4 else 5)


def actuation_delay(found: Identification) -> tuple[float, float] | None:
    """(delay [s] of roll and pitch together, half-width of its interval), weighted by certainty; None if neither is."""
    axes = [axis for axis in (found.roll, found.pitch) if axis.trusted]
    if not axes:
        return None
    delays = np.array([axis.response.delay_s for axis in axes])
    weights = np.array([1.0 / max(axis.response.intervals["delay_s"], 1e-3) ** 2 for axis in axes])
    spread = float(np.ptp(delays)) / 2.0
    return float(delays @ weights / weights.sum()), max(float(weights.sum()) ** -0.5, spread)


def thrust_at_reference(found: Identification) -> tuple[float, float]:
    """(reference voltage, k_T there): the vehicle file's reference unless the log is far from it."""
    motion = found.motion
    reference_v = found.believed.thrust.reference_voltage_v if found.believed else 0.0
    if not len(found.flight.voltage):
        return reference_v, motion.thrust_coefficient_m_s2
    if not reference_v or abs(motion.reference_voltage_v / reference_v - 1.0) > REFERENCE_TOLERANCE:
        reference_v = round(motion.reference_voltage_v, 1)
    ratio = (reference_v / motion.reference_voltage_v) ** motion.voltage_exponent
    return reference_v, motion.thrust_coefficient_m_s2 * ratio


def thrust_model_factor(motion: Motion) -> float:
    """By how much PX4's THR_MDL_FAC is too small: a in thrust ~ a u² + (1 - a) u with the curvature found, 0 to 1."""
    c, hover = motion.curvature, GRAVITY_M_S2 / motion.thrust_coefficient_m_s2
    return min(max(c / max(c + hover * (1.0 - c), 1e-3), 0.0), 1.0)


def drag(found: Identification) -> tuple[float | None, float | None]:
    """Horizontal and vertical linear drag [1/s] where they are certain enough."""
    motion = found.motion

    def certain(value: float | None, name: str) -> float | None:
        sure = value is not None and name not in motion.at_bound and motion.intervals[name] < DRAG_SURE * value
        return value if sure else None

    return certain(motion.drag_horizontal_1_s, "drag_horizontal"), certain(motion.drag_vertical_1_s, "drag_vertical")


def warnings(found: Identification) -> list[str]:
    """One sentence for each thing that the logs could not tell or that looks wrong."""
    said = list(found.notes)
    flight, motion = found.flight, found.motion
    said += stranger(found)
    axes = (found.roll, found.pitch, found.yaw)
    said += [f"{axis.name} not identified: {axis.reason}" for axis in axes if axis.reason]
    for axis in (found.roll, found.pitch):
        if axis.response is not None and axis.setpoint_rate_hz < 20.0:
            said.append(
                f"{axis.name} setpoints were logged at {axis.setpoint_rate_hz:.0f} Hz: a faster logging profile"
                " (SDLOG_PROFILE) gives a more certain delay"
            )
            break
    if motion is None:
        return [*said, f"thrust and drag not identified: {found.motion_reason}"]
    names = {
        "drag_horizontal": "horizontal drag",
        "drag_vertical": "vertical drag",
        "exponent": "voltage exponent",
        "thrust_lag_s": "lag of thrust",
    }
    said += [f"{names[name]} not identified: {reason}" for name, reason in motion.missing.items()]
    said += [f"{names[name]} ran to the edge of its range" for name in motion.at_bound]
    for value, name, index in zip(
        (motion.drag_horizontal_1_s, motion.drag_vertical_1_s),
        ("drag_horizontal", "drag_vertical"),
        (0, 1),
        strict=True,
    ):
        if value is not None and name not in motion.at_bound and drag(found)[index] is None:
            said.append(f"{names[name]} is uncertain: {value:.2f} ± {motion.intervals[name]:.2f} 1/s, not written")
    if motion.curvature - motion.intervals["curvature"] > CURVATURE_MAX:
        said.append(
            f"thrust changes by {1.0 + motion.curvature:.1f} % for 1 % of command: the thrust coefficient holds near"
            f" the hover alone; with THR_MDL_FAC raised by about {thrust_model_factor(motion):.1f} it would hold"
            " everywhere"
        )
    if not len(flight.voltage):
        said.append("without a battery voltage the thrust coefficient holds for the battery of this log alone")
    return said + (_contradictions(found, found.believed) if found.believed else [])


def _contradictions(found: Identification, vehicle: Vehicle) -> list[str]:
    """What the logs and the vehicle file say against each other."""
    said, flight, motion = [], found.flight, found.motion
    believed = vehicle.thrust
    if flight.battery_compensated and believed.voltage_exponent > 0.5:
        said.append(
            "PX4 compensates the battery (MC_BAT_SCALE_EN = 1): thrust.voltage_exponent of the vehicle file should be"
            f" near 0, it is {believed.voltage_exponent:g}"
        )
    reference_v, _ = thrust_at_reference(found)
    if len(flight.voltage) and reference_v != believed.reference_voltage_v:
        said.append(
            f"flown at {motion.reference_voltage_v:.1f} V, the vehicle file's reference is"
            f" {believed.reference_voltage_v:g} V: is it this aircraft's battery?"
        )
    return said


def stranger(found: Identification) -> list[str]:
    """What makes the log look like another aircraft's; empty if nothing does."""
    said, flight = [], found.flight
    if flight.rotors and flight.rotors != 6:
        said.append(f"the log is a {flight.aircraft}'s, and this stack's vehicles are hexrotors: is it the right log?")
    if found.motion is not None and found.believed is not None:
        reference_v, k = thrust_at_reference(found)
        believed = found.believed.thrust
        old = believed.coefficient_m_s2 * (reference_v / believed.reference_voltage_v) ** believed.voltage_exponent
        if abs(k / old - 1.0) > THRUST_CHANGE:
            said.append(
                f"thrust coefficient {k:.1f} m/s² against {old:.1f} in the vehicle file: is it this aircraft's log?"
            )
    return said


def as_result(found: Identification, logs: Sequence[Path], made: Sequence[Change]) -> dict:
    """The result in the common schema (`calibration.results`)."""
    merit = {"airborne_s": found.flight.airborne_s}
    for axis in (found.roll, found.pitch, found.yaw):
        if axis.response is not None:
            name = axis.name.replace(" ", "_")
            merit[f"{name}_held_out_fit_percent"] = axis.held_out_percent
            merit[f"{name}_fit_percent"] = axis.fit_percent
    if found.motion is not None:
        merit["velocity_rms_m_s"] = found.motion.velocity_rms_m_s
        if found.motion.rotor_velocity_rms_m_s is not None:
            merit["velocity_rms_rotor_drag_m_s"] = found.motion.rotor_velocity_rms_m_s
    values = {change.key: change.value for change in made}
    return result("identify", logs, values, merit, warnings(found), details(found))


def details(found: Identification) -> dict:
    """Every number with its interval, trusted or not."""
    flight = found.flight
    told = {"aircraft": flight.aircraft, "rotors": flight.rotors, "airborne": flight.airborne, "kind": flight.kind}
    for axis in (found.roll, found.pitch, found.yaw):
        told[axis.name.replace(" ", "_")] = _axis_details(axis)
    motion = found.motion
    if motion is None:
        return told
    reference_v, k = thrust_at_reference(found)
    told["thrust"] = {
        "coefficient_m_s2": k,
        "reference_voltage_v": reference_v,
        "coefficient_in_log_m_s2": motion.thrust_coefficient_m_s2,
        "voltage_in_log_v": motion.reference_voltage_v if len(flight.voltage) else None,
        "voltage_spread_v": motion.voltage_spread_v,
        "voltage_exponent": motion.voltage_exponent,
        "voltage_exponent_fitted": motion.exponent_fitted,
        "lag_s": motion.thrust_lag_s,
        "curvature": motion.curvature,
        "thr_mdl_fac_missing": thrust_model_factor(motion),
        "interval_95": {name: motion.intervals[name] for name in motion.intervals if "drag" not in name},
    }
    if motion.trend is not None:
        told["thrust"]["trend"] = {
            "exponent": motion.trend.exponent,
            "exponent_95": [motion.trend.low, motion.trend.high],
            "voltage_v": motion.trend.voltage_v,
            "coefficient_m_s2": motion.trend.coefficient_m_s2,
        }
    told["drag"] = {
        "horizontal_1_s": motion.drag_horizontal_1_s,
        "vertical_1_s": motion.drag_vertical_1_s,
        "rotor_1_s": motion.rotor_drag_1_s,
        "speed_rms_m_s": motion.speed_rms_m_s,
        "constant_m_s2": motion.constant_m_s2,
        "interval_95": {name: motion.intervals[name] for name in motion.intervals if "drag" in name},
        "missing": {name: reason for name, reason in motion.missing.items() if "drag" in name},
    }
    return told


def _axis_details(axis: Axis) -> dict:
    told = {"moving_s": axis.moving_s, "setpoint_rate_hz": axis.setpoint_rate_hz, "reason": axis.reason or None}
    if (response := axis.response) is None:
        return told
    return told | {
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
