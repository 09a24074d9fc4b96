"""The messages of the flight controller that the stack reads, as named tuples.

Fields have the names and the order of MAVLink's wire format (common.xml: fields sorted by size, extensions last), so
that a payload unpacks into them without a further step. Units are MAVLink's. Text fields are bytes with their padding.
"""

from typing import NamedTuple

Floats4 = tuple[float, float, float, float]


class Heartbeat(NamedTuple):
    custom_mode: int
    type: int  # MAV_TYPE
    autopilot: int  # MAV_AUTOPILOT
    base_mode: int  # bits of MAV_MODE_FLAG
    system_status: int
    mavlink_version: int


class SysStatus(NamedTuple):
    """The sensor fields are bits of MAV_SYS_STATUS_SENSOR."""

    onboard_control_sensors_present: int
    onboard_control_sensors_enabled: int
    onboard_control_sensors_health: int
    load: int
    voltage_battery: int  # mV, 65535: unknown
    current_battery: int
    drop_rate_comm: int
    errors_comm: int
    errors_count1: int
    errors_count2: int
    errors_count3: int
    errors_count4: int
    battery_remaining: int  # percent, -1: unknown
    onboard_control_sensors_present_extended: int
    onboard_control_sensors_enabled_extended: int
    onboard_control_sensors_health_extended: int


class GpsRawInt(NamedTuple):
    time_usec: int
    lat: int
    lon: int
    alt: int
    eph: int
    epv: int
    vel: int
    cog: int
    fix_type: int  # GPS_FIX_TYPE
    satellites_visible: int
    alt_ellipsoid: int
    h_acc: int
    v_acc: int
    vel_acc: int
    hdg_acc: int
    yaw: int


class Vibration(NamedTuple):
    """PX4 gives the vibrations other meanings than MAVLink does (VIBRATION.hpp)."""

    time_usec: int
    vibration_x: float
    vibration_y: float
    vibration_z: float
    clipping_0: int  # samples of the first accelerometer that were at the end of its range, since its start
    clipping_1: int
    clipping_2: int


class HighresImu(NamedTuple):
    """FRD. `fields_updated` is a bit for each number, from the accelerometer's x on."""

    time_usec: int  # since boot
    xacc: float
    yacc: float
    zacc: float
    xgyro: float
    ygyro: float
    zgyro: float
    xmag: float
    ymag: float
    zmag: float
    abs_pressure: float
    diff_pressure: float
    pressure_alt: float
    temperature: float
    fields_updated: int
    id: int


class ParamValue(NamedTuple):
    param_value: float  # the bytes of an integer parameter, see `companion.fcu.link.params`
    param_count: int
    param_index: int
    param_id: bytes
    param_type: int  # MAV_PARAM_TYPE


class AutopilotVersion(NamedTuple):
    capabilities: int
    uid: int
    flight_sw_version: int  # four bytes: major, minor, patch, FIRMWARE_VERSION_TYPE
    middleware_sw_version: int
    os_sw_version: int
    board_version: int
    vendor_id: int
    product_id: int
    flight_custom_version: tuple[int, ...]  # vendor version (3 bytes), commit (5 bytes), reversed
    middleware_custom_version: tuple[int, ...]
    os_custom_version: tuple[int, ...]
    uid2: tuple[int, ...]


class AttitudeQuaternion(NamedTuple):
    """Attitude q_NED_FRD (w, x, y, z) and body rates in FRD [rad/s]."""

    time_boot_ms: int
    q1: float
    q2: float
    q3: float
    q4: float
    rollspeed: float
    pitchspeed: float
    yawspeed: float
    repr_offset_q: Floats4


class LocalPositionNed(NamedTuple):
    """Position [m] and velocity [m/s] in NED."""

    time_boot_ms: int
    x: float
    y: float
    z: float
    vx: float
    vy: float
    vz: float


class RcChannels(NamedTuple):
    """Pulse widths [µs]; `chancount` of the channels count."""

    time_boot_ms: int
    chan1_raw: int
    chan2_raw: int
    chan3_raw: int
    chan4_raw: int
    chan5_raw: int
    chan6_raw: int
    chan7_raw: int
    chan8_raw: int
    chan9_raw: int
    chan10_raw: int
    chan11_raw: int
    chan12_raw: int
    chan13_raw: int
    chan14_raw: int
    chan15_raw: int
    chan16_raw: int
    chan17_raw: int
    chan18_raw: int
    chancount: int
    rssi: int


class AttitudeTarget(NamedTuple):
    """The setpoint that PX4 follows: attitude q_NED_FRD (w, x, y, z) and thrust 0..1."""

    time_boot_ms: int
    q: Floats4
    body_roll_rate: float
    body_pitch_rate: float
    body_yaw_rate: float
    thrust: float
    type_mask: int


class CommandAck(NamedTuple):
    command: int  # MAV_CMD
    result: int  # MAV_RESULT
    progress: int
    result_param2: int
    target_system: int
    target_component: int


class Timesync(NamedTuple):
    """tc1 = 0 in a request, the answering clock's time [ns] in an answer; ts1: the requesting clock's time [ns]."""

    tc1: int
    ts1: int


class BatteryStatus(NamedTuple):
    current_consumed: int
    energy_consumed: int
    temperature: int
    voltages: tuple[int, ...]  # 10 cells [mV], 65535: not there
    current_battery: int
    id: int
    battery_function: int
    type: int
    battery_remaining: int  # percent, -1: unknown
    time_remaining: int
    charge_state: int
    voltages_ext: tuple[int, ...]  # 4 more cells [mV], 0: not there
    mode: int
    fault_bitmask: int


class HomePosition(NamedTuple):
    latitude: int
    longitude: int
    altitude: int  # mm above mean sea level
    x: float  # NED [m], in the local frame
    y: float
    z: float
    q: Floats4
    approach_x: float
    approach_y: float
    approach_z: float
    time_usec: int


class ExtendedSysState(NamedTuple):
    vtol_state: int
    landed_state: int  # MAV_LANDED_STATE


class StatusText(NamedTuple):
    severity: int  # MAV_SEVERITY
    text: bytes
    id: int  # of the chunked text, 0: a single message
    chunk_seq: int


class CurrentMode(NamedTuple):
    custom_mode: int
    intended_custom_mode: int
    standard_mode: int


class GlobalPositionInt(NamedTuple):
    time_boot_ms: int
    lat: int
    lon: int
    alt: int  # mm above mean sea level, as PX4's own position control uses it
    relative_alt: int
    vx: int
    vy: int
    vz: int
    hdg: int


class Altitude(NamedTuple):
    time_usec: int
    altitude_monotonic: float  # m, by pressure alone
    altitude_amsl: float
    altitude_local: float
    altitude_relative: float
    altitude_terrain: float
    bottom_clearance: float


class Odometry(NamedTuple):
    """PX4's own estimate; only its reset counter is read."""

    time_usec: int
    x: float
    y: float
    z: float
    q: Floats4
    vx: float
    vy: float
    vz: float
    rollspeed: float
    pitchspeed: float
    yawspeed: float
    pose_covariance: tuple[float, ...]
    velocity_covariance: tuple[float, ...]
    frame_id: int
    child_frame_id: int
    reset_counter: int
    estimator_type: int
    quality: int


class DistanceSensor(NamedTuple):
    time_boot_ms: int
    min_distance: int  # cm, as the other two
    max_distance: int
    current_distance: int
    type: int
    id: int  # of the sensor; there may be several
    orientation: int  # MAV_SENSOR_ORIENTATION, 0: forward
    covariance: int
    horizontal_fov: float
    vertical_fov: float
    quaternion: Floats4
    signal_quality: int  # percent; 0: not known, 1: the measurement is not valid


Decoded = (
    Heartbeat
    | SysStatus
    | GpsRawInt
    | ParamValue
    | AutopilotVersion
    | AttitudeQuaternion
    | LocalPositionNed
    | HighresImu
    | Vibration
    | RcChannels
    | AttitudeTarget
    | CommandAck
    | Timesync
    | BatteryStatus
    | HomePosition
    | ExtendedSysState
    | StatusText
    | CurrentMode
    | GlobalPositionInt
    | Altitude
    | Odometry
    | DistanceSensor
)
