"""Checks of the flight controller, from an observation of a few seconds. Pure: no link, no clock."""

import math
import statistics

from pymavlink.dialects.v20 import common

from companion.core.px4_parameters import FIRMWARE_NEWEST, FIRMWARE_OLDEST
from companion.core.vehicle import Vehicle, hardware_id
from companion.core.voltage import RANGE, is_plausible
from companion.fcu.streams import SLOW_FRACTION
from companion.fcu.timesync import RTT_GATE_S, SYNC_SAMPLES
from companion.mission.plan import Plan
from companion.mission.start_checks import IMU_WRONG, NO_START_MODES
from companion.preflight.observation import Observation, Unfit
from companion.preflight.report import PreflightCheck, failed, ok, skipped, warning, worst

SATELLITES_FEW = 8  # with fewer, a fix drifts by metres
BATTERY_FULL = 0.8  # of its charge; less is a warning, not a failure
NAMES = (
    "autopilot",
    "vehicle type",
    "disarmed",
    "sensors",
    "ready to arm",
    "gnss",
    "battery",
    "transmitter",
    "time sync",
    "imu",
)
FIXES = ("FIX_3D", "FIX_DGPS", "RTK_FLOAT", "RTK_FIXED")
CALIBRATED = {
    "is_gyrometer_calibration_ok": "gyro not calibrated",
    "is_accelerometer_calibration_ok": "accelerometer not calibrated",
    "is_magnetometer_calibration_ok": "compass not calibrated",
}
POSITIONED = {
    "is_local_position_ok": "no local position",
    "is_global_position_ok": "no global position",
    "is_home_position_ok": "no home position",
}


def autopilot_checks(seen: Observation, vehicle: Vehicle, plan: Plan | None) -> list[PreflightCheck]:
    """All checks of the flight controller except its parameters, in the order of `NAMES`."""
    satellites = plan is None or plan.satellites
    return [
        firmware(seen, vehicle),
        vehicle_type(seen),
        disarmed(seen),
        sensors(seen),
        ready_to_arm(seen, satellites),
        gnss(seen, vehicle) if satellites else skipped("gnss", "the mission flies without satellites"),
        battery(seen, vehicle),
        transmitter(seen, plan),
        time_sync(seen),
        imu(seen, vehicle, satellites),
    ]


def without_link() -> list[PreflightCheck]:
    """The same checks when there is no link."""
    return [skipped(name, "no link") for name in NAMES]


def firmware(seen: Observation, vehicle: Vehicle) -> PreflightCheck:
    """It is PX4, of a version that the parameter table covers, on the hardware that the vehicle file names."""
    name = "autopilot"
    if seen.unfit is Unfit.AUTOPILOT:
        return failed(name, seen.wrong)
    if seen.firmware is None:
        return failed(name, "does not report its firmware's version")
    detail = "PX4 " + ".".join(map(str, seen.firmware)) + f" ({seen.release.lower()}), {hardware_id(seen.hardware)}"
    if other := vehicle.fcu.other_hardware(seen.hardware):
        return failed(name, f"{detail}: {other}")
    span = f"{FIRMWARE_OLDEST[0]}.{FIRMWARE_OLDEST[1]} to {FIRMWARE_NEWEST[0]}.{FIRMWARE_NEWEST[1]}"
    if seen.firmware[:2] < FIRMWARE_OLDEST:
        return failed(name, f"{detail}: too old, must be {span}")
    if seen.firmware[:2] > FIRMWARE_NEWEST:
        return warning(name, f"{detail}: newer than the versions that this stack knows, {span}")
    return ok(name, detail) if seen.release == "RELEASE" else warning(name, f"{detail}: not a release")


def vehicle_type(seen: Observation) -> PreflightCheck:
    """It is a multirotor."""
    entry = common.enums["MAV_TYPE"].get(seen.vehicle_type)
    detail = entry.name.removeprefix("MAV_TYPE_").lower() if entry else f"MAV_TYPE {seen.vehicle_type}"
    return failed("vehicle type", seen.wrong) if seen.unfit is Unfit.VEHICLE else ok("vehicle type", detail)


def disarmed(seen: Observation) -> PreflightCheck:
    """It stands disarmed, in a mode from which a mission may start."""
    if seen.armed:
        return failed("disarmed", "armed: preflight is for the ground, before arming")
    if not seen.landed:
        return failed("disarmed", "not landed, or its landed state is not known")
    mode = seen.mode
    if mode in NO_START_MODES:
        return warning("disarmed", f"mode is {mode}: no mission starts from it")
    return ok("disarmed", mode)


def sensors(seen: Observation) -> PreflightCheck:
    """Health (SYS_STATUS) and calibration of PX4's sensors."""
    if not seen.health:
        return failed("sensors", "no report of their health")
    found = [words for key, words in CALIBRATED.items() if not seen.health.get(key)]
    return worst("sensors", [*([f"not healthy: {seen.unhealthy}"] if seen.unhealthy else []), *found], [], "")


def ready_to_arm(seen: Observation, satellites: bool = True) -> PreflightCheck:
    """PX4's own checks, with its texts for a refusal; without satellites it has no position."""
    found = [words for key, words in POSITIONED.items() if satellites and not seen.health.get(key)]
    if not seen.health.get("is_armable"):
        found.append("PX4 would not arm")
    return worst("ready to arm", found, [], "; ".join(seen.texts) if found else "")


def gnss(seen: Observation, vehicle: Vehicle) -> PreflightCheck:
    """Fix, satellites and uncertainty."""
    count, error_m, limit_m = seen.satellites, seen.gnss_uncertainty_m, vehicle.safety.position_std_m
    failures: list[str] = []
    doubts: list[str] = []
    detail = f"{seen.gnss_fix.removeprefix('FIX_').replace('_', ' ')}, {count} satellites"
    if seen.gnss_fix not in FIXES:
        failures.append("no 3D fix")
    elif count < SATELLITES_FEW:
        doubts.append("few satellites")
    if math.isfinite(error_m) and error_m > 0:
        detail += f", {error_m:.1f} m"
        if error_m > limit_m:
            failures.append(f"uncertain by {error_m:.1f} m, must be below {limit_m:g} m (safety.position_std_m)")
    return worst("gnss", failures, doubts, detail)


def battery(seen: Observation, vehicle: Vehicle) -> PreflightCheck:
    """Voltage and charge."""
    voltage_v, remaining, low_v = (
        seen.battery_voltage_v,
        seen.battery_remaining,
        vehicle.safety.battery_low_v,
    )
    if not voltage_v > 0:
        return failed("battery", "voltage not measured")
    detail = f"{voltage_v:.1f} V" + (f", {remaining:.0%}" if math.isfinite(remaining) else "")
    if voltage_v <= low_v:
        return failed("battery", f"{detail}: must be above {low_v:.1f} V (safety.battery_low_v)")
    reference_v = vehicle.thrust.reference_voltage_v
    if not is_plausible(voltage_v, reference_v):
        limits = f"{RANGE[0] * reference_v:.1f} to {RANGE[1] * reference_v:.1f} V by thrust.reference_voltage_v"
        return failed("battery", f"{detail}: implausible in flight, which is {limits}; the flight would end at once")
    return warning("battery", f"{detail}: not full") if remaining < BATTERY_FULL else ok("battery", detail)


def transmitter(seen: Observation, plan: Plan | None) -> PreflightCheck:
    """The RC signal."""
    if seen.rc_ok:
        return ok("transmitter")
    if plan is not None and plan.start == "rc_switch":
        return failed("transmitter", 'no RC signal, and the mission waits for its switch (start = "rc_switch")')
    return warning("transmitter", "no RC signal: no pilot can take over")


def time_sync(seen: Observation) -> PreflightCheck:
    """Round trips of TIMESYNC and how steady the offset of the clocks is; the filter cannot detect wrong stamps."""
    rtts_s, offsets_s = seen.rtts_s, seen.offsets_s
    if not rtts_s:
        return failed("time sync", "no answer to TIMESYNC")
    if len(rtts_s) < SYNC_SAMPLES:
        return failed("time sync", f"{len(rtts_s)} answers, at least {SYNC_SAMPLES} are needed")
    rtt_s, middle_s = statistics.median(rtts_s), statistics.median(offsets_s)
    spread_s = sorted(abs(offset_s - middle_s) for offset_s in offsets_s)[int(0.95 * len(offsets_s))]
    doubts = []
    if rtt_s > RTT_GATE_S:
        doubts.append(f"round trips longer than {RTT_GATE_S * 1e3:g} ms: a slow or busy link")
    if spread_s > RTT_GATE_S:
        doubts.append("the offset is not steady: a clock that drifts, or a busy computer")
    detail = f"round trip {rtt_s * 1e3:.1f} ms, offset within {spread_s * 1e3:.1f} ms"
    return worst("time sync", [], doubts, detail)


def imu(seen: Observation, vehicle: Vehicle, satellites: bool = True) -> PreflightCheck:
    """Rate of HIGHRES_IMU, and whether it agrees with the attitude of the standing aircraft; essential without satellites."""
    name, wanted_hz, rate_hz = "imu", vehicle.fcu.imu_rate_hz, seen.imu_rate_hz
    if not satellites and (wanted_hz == 0.0 or rate_hz == 0.0):
        why = "fcu.imu_rate_hz = 0" if wanted_hz == 0.0 else "HIGHRES_IMU does not arrive"
        return failed(name, f"{why}: without satellites the filter needs it between two sights of the bundle")
    if wanted_hz == 0.0:
        return skipped(name, "not requested (fcu.imu_rate_hz = 0): the filter predicts by the commands")
    if rate_hz == 0.0:
        return warning(
            name, "HIGHRES_IMU does not arrive: the filter predicts by the commands, less accurately in wind"
        )
    detail = f"{rate_hz:.0f} of {wanted_hz:g} Hz"
    failures, doubts = [], []
    if seen.imu_fault in IMU_WRONG:
        failures.append(seen.imu_problem)
    elif seen.imu_fault is not None:
        doubts.append("not used in flight")
    if rate_hz < SLOW_FRACTION * wanted_hz:
        doubts.append(
            f"slower than {SLOW_FRACTION * wanted_hz:g} Hz: the line needs 921600 baud and MAV_1_RATE 0, or set fcu.imu_rate_hz to 0"
        )
    return worst(name, failures, doubts, detail)
