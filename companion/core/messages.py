"""The table of all topics of the bus: type, sources, rate, logging and age limit.

Messages are plain data (msgspec structs, MessagePack on the wire) without behaviour.

Every message starts with the same three fields:

``stamp_s``  companion monotonic time [s] at which the content was *true* (mid-exposure of an image, time
             of an attitude), not the time of arrival;
``seq``      counts the messages of one source; the runner of the node fills it in;
``valid``    False: the source is alive, but its content must not be used.

Frames: W is ENU (z up), B is FLU, C is the camera's optical frame, M is a marker bundle (x right, y up,
z out of the face). ``p_WB`` is the position of B in W; ``q_WB`` = (w, x, y, z) rotates vectors of B into W.
Units are SI and radians; a unit ends every name that is not a frame quantity.
"""

from typing import NamedTuple

import msgspec

from companion.core.enums import (
    CaptureOutcome,
    CommandAction,
    ControlSource,
    ExposureClock,
    FcuMode,
    FcuSystem,
    ImuFault,
    OperatorAction,
    Phase,
    ProcessName,
    SafetyAction,
    SearchArea,
    Sensor,
    TopicName,
)
from companion.core.trajectory_messages import Quat, Trajectory, Vec3

WORLD = "world"  # the frame of a reference that is not tied to a bundle


class Message(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields that all messages have."""

    stamp_s: float
    seq: int = 0
    valid: bool = True


# --- light -> corners ---------------------------------------------------------------------------------


class Image(Message):
    """One monochrome camera frame; ``stamp_s`` is the middle of the exposure."""

    width: int
    height: int
    data: bytes  # height * width bytes, row major, 8 bit


class StereoImages(Message):
    """The two monochrome frames of a stereo camera; ``stamp_s`` is the middle of their common exposure."""

    width: int  # of one frame
    height: int
    data: bytes  # the left frame, then the right one: each height * width bytes, row major, 8 bit


class DepthImage(Message):
    """One frame of a depth camera; ``stamp_s`` is the middle of the exposure."""

    width: int
    height: int
    data: bytes  # height * width little-endian uint16, row major: mm along the optical axis; 0: no value


class CameraImu(Message):
    """A sample of the inertial sensor inside a camera, in its own axes I, with its biases: rad/s and m/s²."""

    gyro_I: Vec3
    accel_I: Vec3  # specific force


class RangeReading(Message):
    """A reading of a range finder that is connected to the companion."""

    range_m: float  # along direction_B; NaN: nothing between min_m and max_m
    min_m: float
    max_m: float
    direction_B: Vec3  # unit vector


class MarkerCorners(msgspec.Struct):
    """One detected marker of a bundle: its four corners in the image and on the bundle."""

    family: str
    id: int
    corners_px: tuple[float, float, float, float, float, float, float, float]  # u0 v0 … u3 v3, distorted image
    corners_M: tuple[Vec3, Vec3, Vec3, Vec3]  # the same corners on the bundle [m]
    # the same in normalised image coordinates, the lens undone: x0 y0 … x3 y3; empty unless the estimator takes corners
    corners_xy: tuple[float, ...] = ()


class PoseSolution(msgspec.Struct):
    """A pose of the bundle in the camera frame that explains the corners."""

    p_CM: Vec3
    q_CM: Quat
    reprojection_rms_px: float


class BundleObservation(msgspec.Struct):
    """A bundle in one image."""

    bundle: str
    markers: list[MarkerCorners]
    best: PoseSolution
    alternative: PoseSolution | None  # the second IPPE solution, when there is one
    ambiguous: bool  # the flip test could not decide between best and alternative by the image alone
    covariance: tuple[float, ...]  # 6x6 row major: p_CM [m²], then right-multiplied rotation error of q_CM [rad²]
    corner_noise_px: float  # standard deviation assumed for one corner coordinate


class Markers(Message):
    """All bundles seen in one image; also sent for an image without any, because that is information, too."""

    observations: list[BundleObservation]
    detect_time_s: float  # time the detector took
    search: SearchArea
    copied: tuple[str, ...] = ()  # bundles of which this image shows two; such a bundle has no observation


# --- flight controller -> companion ----------------------------------------------------------------------


class FcuAttitude(Message):
    """Attitude and body rates as the flight controller estimates them."""

    q_WB: Quat
    omega_B: Vec3


class FcuPosition(Message):
    """Local position and velocity as the flight controller estimates them, including its GNSS bias."""

    p_W: Vec3
    v_W: Vec3


class FcuImu(Message):
    """Mean angular rate and specific force over a sample's interval, less the biases that the flight controller estimates.

    The interval ends at the stamp. PX4's is that of `IMU_INTEG_RATE` (5 ms), also where the stream is slower.
    """

    gyro_B: Vec3
    accel_B: Vec3


class FcuStatus(Message):
    """The slow states of the flight controller."""

    connected: bool
    armed: bool
    mode: FcuMode
    landed: bool
    battery_voltage_v: float  # of the lowest pack
    battery_remaining: float  # 0..1, likewise; NaN when unknown
    rc_ok: bool
    rc_channels_us: tuple[int, ...]
    gnss_ok: bool
    home_W: Vec3 | None
    timesync_offset_s: float  # companion monotonic time minus FCU boot time
    timesync_rtt_s: float
    link_errors: int  # bytes or frames dropped since start
    timesync_age_s: float = float("nan")  # since the newest answer that was used; inf: none yet; NaN: not reported
    ready_to_arm: bool | None = None  # by PX4's own checks, in its present mode; None: no recent report
    unhealthy: str = ""  # what those checks found, as text
    refused: str = ""  # why no flight may begin with this flight controller (parameters, conflict); "" when one may
    conflict: str = ""  # another sender uses the link in place of this companion: no setpoint is sent
    slow_streams: tuple[str, ...] = ()  # messages that arrive too rarely or not at all
    gnss_p_W: Vec3 | None = None  # of logs from before `gnss_position`: the same from the first fix [m]
    gnss_v_W: tuple[float, float] | None = None  # east, north [m/s]; None: not reported
    gnss_s: float = float("nan")  # companion time of its arrival
    gnss_h_acc_m: float = float("nan")  # standard deviation as the receiver reports it; NaN: not reported
    gnss_v_acc_m: float = float("nan")
    gnss_hdop: float = float("nan")
    baro_altitude_m: float = float("nan")  # by pressure alone (ALTITUDE.altitude_monotonic)
    position_resets: int | None = None  # of PX4's estimator (ODOMETRY.reset_counter, modulo 256); None: not reported
    # of the cells of one pack, that with the weakest cell; empty where the battery monitor does not measure them
    cells_v: tuple[float, ...] = ()
    unhealthy_systems: tuple[FcuSystem, ...] = ()  # by PX4's own checks
    ground_station_age_s: float = float("nan")  # since the last heartbeat of a ground station; NaN: none so far
    implausible: tuple[str, ...] = ()  # quantities with an implausible value lately (companion/fcu/guards/plausible.py)
    implausible_messages: int = 0  # since the start
    foreign_estimate: str = ""  # message and sender that gives PX4 measurements in the last seconds, not this stack
    range_m: float = float("nan")  # of the nearest forward range finder, along body x; NaN: none, or nothing measured
    # The receiver's own solution (GPS_RAW_INT): latitude, longitude [°], altitude over mean sea level [m]; None: no fix.
    gnss_position: Vec3 | None = None
    imu_rate_hz: float = float("nan")  # of HIGHRES_IMU, as it arrives; NaN: not requested, or not measured yet
    foreign_change: str = ""  # likewise, what changes its mode, settings or sticks
    # Of the battery module that the thrust model follows, where there are several; NaN: that is `battery_voltage_v`.
    thrust_voltage_v: float = float("nan")
    position_resets_s: float = float("nan")  # companion time at which ODOMETRY with `position_resets` arrived
    # Samples per second at the end of the range of the accelerometer that has most of them (VIBRATION); NaN: not reported.
    clipping_hz: float = float("nan")
    position_ok: bool | None = None  # PX4 has a horizontal position, by its own checks (SYS_STATUS); None: not reported
    # What persons and programs have asked PX4 for (CURRENT_MODE); a failsafe changes `mode` and not this. None: not reported lately
    intended_mode: FcuMode | None = None
    intended_known: bool = False  # it was reported beside `mode`; else it may be older
    intended_changes: int = 0  # of it, since the start
    mode_s: float = float("nan")  # companion time at which the newest report of the mode arrived

    @property
    def gnss_used(self) -> bool:
        """The receiver has a fix, and the flight controller has a position: else it does not use the fix, whatever its reason."""
        return self.gnss_ok and self.position_ok is not False


class FcuInfo(Message):
    """Identity of the flight controller and the parameters that preflight checks, when they are known or change."""

    version: str  # of the firmware, e.g. "1.17.0 release"; "" while unknown
    commit: str  # first digits of the firmware's commit, "" or zeros where it names none
    hardware_id: int
    parameters: dict[str, float]  # integers exactly, as all int32 are


class FcuText(Message):
    """A STATUSTEXT from the flight controller."""

    severity: int  # MAV_SEVERITY: 0 emergency … 7 debug
    text: str


class FcuCommand(Message):
    """A request of the mission to the flight controller; answered by `FcuCommandAck` with the same id."""

    id: int
    action: CommandAction
    height_m: float = 0.0  # take-off height over home
    text: str = ""  # for "text": STATUSTEXT to the ground station
    severity: int = 6
    mode: FcuMode = FcuMode.UNKNOWN  # of PX4 when this was decided: no other mode is left for this request
    intended_mode: FcuMode | None = None  # likewise what PX4 was asked for; None: not reported


class FcuCommandAck(Message):
    """The answer of the flight controller to an `FcuCommand`."""

    id: int
    accepted: bool
    reason: str
    temporary: bool = False  # refused for now: the same request may be accepted later
    heard: bool = True  # False: it is not the flight controller that refused


class SentSetpoint(Message):
    """The attitude setpoint whose bytes were sent to the flight controller, at ``stamp_s``."""

    roll_rad: float
    pitch_rad: float
    yaw_rad: float
    yaw_rate_rad_s: float
    thrust: float


class LinkRx(Message):
    """Raw bytes from the flight controller."""

    data: bytes
    ground: bool = False  # from a ground station on the forward, for the flight controller


class LinkTx(Message):
    """Raw bytes for the flight controller."""

    data: bytes


# --- state -------------------------------------------------------------------------------------------------


class MapBundle(msgspec.Struct):
    """A bundle of the filter's map, beside the mission's."""

    name: str
    p_WM: Vec3
    q_WM: Quat
    age_s: float  # since its last accepted observation, inf before the first
    relative_std_m: float = float("nan")  # of the body's position in its frame, the largest; NaN: not reported
    attitude_std_rad: float = float("nan")  # of its own attitude, the largest over all directions; NaN: not reported


class State(Message, kw_only=True):
    """The estimate of the filter at ``stamp_s``; ``valid`` is False until it has converged enough to fly by."""

    p_W: Vec3
    v_W: Vec3
    q_WB: Quat
    disturbance_W: Vec3  # mass-normalised external force [m/s²]
    gnss_bias_W: Vec3
    velocity_bias_W: Vec3  # error of the flight controller's velocity
    attitude_bias_W: Vec3 = (0.0, 0.0, 0.0)  # error of its attitude, a rotation vector: it reports exp(bias) ⊗ q_WB
    mount_C: Vec3 = (0.0, 0.0, 0.0)  # rotation of the camera on its mount: its attitude is q_BC ⊗ exp(mount)
    thrust_scale: float = 1.0  # true over modelled thrust; multiplies the thrust coefficient of the vehicle file
    thrust_scale_std: float = 0.0
    bundle: str  # name of the bundle of the next two fields, "" while none was seen
    p_WM: Vec3
    q_WM: Quat
    marker_age_s: float  # since the last accepted observation of the bundle, or of others by which its place is known
    bundle_age_s: float = float("inf")  # since the last accepted observation of the bundle itself; inf: none
    position_std_m: float  # largest standard deviation of p_W over all directions
    relative_std_m: float  # the same of the position in the bundle's frame, inf without bundle
    covariance_diag: tuple[float, ...]  # 31 variances in the order of ERROR_LAYOUT, companion/estimation/layout.py
    battery_voltage_v: float
    bundles: tuple[MapBundle, ...] = ()  # the others of the map
    reset_count: int  # starts at tenths of seconds since boot in a process, +1 per filter restart: use differences


class Innovation(msgspec.Struct):
    """One measurement update and its consistency with the prediction of the filter."""

    stamp_s: float
    sensor: Sensor
    nis: float
    dof: int
    accepted: bool
    noise_scale: float  # adapted over nominal noise, mean of the standard deviations
    late_s: float  # age of the measurement when it was applied
    bundle: str = ""  # name of a further bundle of the map; "": the mission's, or the sensor sees none


class BundleWitness(msgspec.Struct):
    """What the flight controller's own motion says about the bundle (`companion.estimation.witnesses`)."""

    displaced_m: float = 0.0  # how far the bundle is seen from where it was; 0 while both agree
    moving_m_s: float = 0.0  # speed of a bundle that goes away step by step; 0 while it stands still
    # Change of the bundle's place by GNSS, or of its height by the barometer, since the first sight; NaN: unknown.
    gnss_offset_m: float = float("nan")
    gnss_offset_max_m: float = float("nan")  # the largest change that errors of that sensor explain
    gnss_jump_m: float = 0.0  # of the receiver against the flight controller, while the bundle is out of sight
    # Share by which the print is smaller than its marker file says: above 0 the structure is nearer than it looks.
    size_error: float = 0.0
    size_error_std: float = float("inf")
    # Change of the range over the way along it, in the sways of the last seconds: at least this; NaN: unknown.
    range_gain: float = float("nan")
    # Largest change of the place of a bundle relative to another (`companion.estimation.bundle_pairs`); 0: all agree.
    bundles_apart_m: float = 0.0
    bundles_apart: tuple[str, ...] = ()  # the names of these two
    satellites_refused: bool = False  # the flight controller's position does not follow the receiver's solution
    given_up: bool = False  # it stood elsewhere for so long that it is used again only where it was, if at all


class ImuReport(msgspec.Struct):
    """How the filter uses the flight controller's inertial measurements (`companion.estimation.imu_check`)."""

    rate_hz: float  # at which they arrive; 0: none
    fault: ImuFault | None = None  # why they are not used; None: they are, or there was none yet
    problem: str = ""  # the same in words


class EstimatorStatus(Message):
    """All updates since the last message of this type, and counters that only increase."""

    innovations: list[Innovation]
    rejected: dict[str, int]
    dropped_late: int
    update_time_s: float  # computing time of this step
    # Ten times a second, else empty: upper triangles of the 3x3 covariances of p, v, θ, disturbance and bias of the
    # state with the same stamp, xx xy xz yy yz zz each.
    covariance_blocks: tuple[float, ...] = ()
    note: str = ""  # unusual behaviour of the filter, with the reason; one line
    witness: BundleWitness | None = None  # of the filter's bundle; None before the first sight
    imu: ImuReport | None = None  # None: not reported, an older version
    runaways: dict[str, int] = {}  # by `FilterOffset`: how often a state left its bounds and was put back, if it did
    upside_down: tuple[str, ...] = ()  # bundles whose `plumb` axis points down: they are not used


# --- plan -> thrust -------------------------------------------------------------------------------------------


class Reference(Message):
    """A trajectory to fly. Points are in ``frame``: WORLD, or the name of a bundle.

    In a bundle's frame yaw is relative to "facing the bundle" (0: the nose points into its face).
    """

    id: int
    frame: str
    start_s: float
    trajectory: Trajectory
    before_face: bool = True  # in a bundle's frame: the controller keeps off the plane of its face


class Setpoint(Message):
    """Attitude and thrust for the flight controller; not sent after ``expires_s``."""

    expires_s: float
    roll_rad: float
    pitch_rad: float
    yaw_rad: float
    yaw_rate_rad_s: float
    thrust: float  # 0..1
    source: ControlSource  # never IDLE


class ControlStatus(Message):
    """State of the controller, at every cycle."""

    active: ControlSource
    reason: str  # why it is idle or on the fallback
    reference_id: int
    reference_finished: bool
    reference_p_W: Vec3
    reference_yaw_rad: float
    position_error_m: float
    yaw_error_rad: float
    solver_status: int  # acados' status of this cycle, -1 when it did not run
    solve_time_s: float
    cycle_time_s: float
    fallback_cycles: int  # since start
    deadline_misses: int
    solver_failures: int
    # Five times a second while the NMPC's setpoints act, else empty: the predicted positions, from stamp_s + latency.actuation_s
    # on. They begin at the estimate, also where a correction of it reaches the controller later.
    horizon_W: tuple[Vec3, ...] = ()
    horizon_step_s: float = 0.0  # between two of them


# --- mission ----------------------------------------------------------------------------------------------------


class MissionStatus(Message):
    """State of the mission."""

    phase: Phase
    reason: str  # why the phase was entered
    phase_time_s: float
    finished: bool
    success: bool
    photographs: int
    cause: str = ""  # why the mission ended early or without success, the first cause; "" while all is well
    # Of an inspection: stops that were reached and all of this flight; photographs by the payload camera count in `photographs`, too.
    station: int = 0
    stations: int = 0
    photographs_wanted: int = 0  # of the whole plan
    photographs_before: int = 0  # of these, taken in former flights (`--resume`)
    photographs_blurred: int = 0  # taken in this flight, but not sharp in any attempt
    photographs_missing: int = 0  # requested in this flight and given up


class SafetyEvent(Message):
    """A monitor of the safety table became active, escalated or was cleared."""

    monitor: str  # name of the row of the safety table
    active: bool
    value: float
    limit: float
    action: SafetyAction
    text: str


class OperatorRequest(Message):
    """What a person asks the mission for (`companion.mission.operator`)."""

    action: OperatorAction
    who: str  # the name that belongs to the person's token


class PhotoRequest(Message):
    """Request to keep the next image."""

    id: int


class Photo(Message):
    """The requested image, as the camera delivered it; ``stamp_s`` is its mid-exposure."""

    id: int
    png: bytes


# --- payload camera ---------------------------------------------------------------------------------------------------


class CaptureRequest(Message):
    """Request of one photograph of an inspection plan; answered by `Capture` with the same id."""

    id: int  # of the photograph in the plan, from 1, in the order of the plan; the same in every flight of the plan
    item: str  # of the plan
    row: int  # of the item: path and place on it, from 0
    column: int
    frame: str  # of the item: WORLD, or the name of a bundle
    pitch_rad: float  # of the gimbal, up is positive
    distance_m: float  # from the camera to the surface along the optical axis; NaN: unknown, as for a viewpoint


class Capture(Message):
    """How a request ended; ``stamp_s`` is the mid-exposure, or when it was tried. ``valid``: the pose is known.

    A late answer makes a second message with the same id and attempt, which replaces the one that says "lost".
    """

    id: int
    item: str
    row: int
    column: int
    attempt: int  # ascends for each request of this id; not from 1: see `companion.payload.shots`
    outcome: CaptureOutcome
    reason: str  # "" when taken
    image_index: int  # the camera's own count; -1: unknown
    file: str  # where the camera or this stack stored it; "": unknown
    blur_px: float  # expected motion blur, from estimated rates and exposure time
    gsd_m: float  # ground sampling distance at `distance_m`: as planned, not of the pose; NaN: unknown
    p_WC: Vec3  # at the exposure, NaN when unknown
    q_WC: Quat
    bundle: str  # the nearest one seen, "" none
    p_MC: Vec3  # in its frame, NaN without one
    q_MC: Quat
    position_std_m: float  # in that frame, in the world's without one; the largest over all directions
    attitude_std_rad: float
    distance_m: float = float("nan")  # as requested
    late: bool = False  # the answer came after the time-out
    clock: ExposureClock = ExposureClock.NONE
    time_std_s: float = float("nan")  # of `stamp_s`
    # Of the camera: latitude, longitude [°], altitude over mean sea level [m] by the flight controller's origin; None: unknown.
    geo: Vec3 | None = None
    geo_std_m: float = float("nan")  # horizontal; NaN: the receiver does not report it
    geo_v_std_m: float = float("nan")  # vertical; likewise
    speed_m_s: float = float("nan")  # of the camera


class PayloadStatus(Message):
    """State of the payload camera and its gimbal, and what became of all requests since the start."""

    connected: bool  # heard within the last seconds, and it has introduced itself
    problem: str  # why no photograph can be taken; "" when one can
    model: str = ""  # as the camera names itself
    storage_free_mb: float = float("nan")  # NaN: the camera does not report it
    pending: int = 0  # id of the photograph in work, 0 none
    requested: int = 0  # requests, each of which ended, or is pending
    taken: int = 0  # sharp ones
    blurred: int = 0
    refused: int = 0
    lost: int = 0  # without those that were answered late
    late: int = 0  # answered after the time-out; counted in `taken` or `blurred`, too
    duplicated: int = 0  # answers to a photograph that had one
    foreign: int = 0  # photographs that this stack did not request
    missing: int = 0  # gaps in the camera's own count
    gimbal: bool = False  # one is used, and reports its attitude
    gimbal_q_BG: Quat = (1.0, 0.0, 0.0, 0.0)  # of the gimbal in the body; (1, 0, 0, 0) without one
    utc_offset_s: float = float("nan")  # UTC minus companion time, NaN unknown
    gimbal_foreign: int = 0  # reports of gimbals that are not this camera's; not used


class CameraRx(Message):
    """A verified MAVLink message of a camera, of a gimbal, or of the flight controller about them."""

    system: int
    component: int
    number: int  # MAVLink's message id
    payload: bytes  # without the trailing zeros that MAVLink 2 cuts


class CameraTx(Message):
    """A MAVLink message for a camera or a gimbal; the owner of the link frames, numbers and signs it."""

    number: int
    payload: bytes


class CaptureTruth(Message):
    """True pose of the simulated payload camera at an exposure; an aircraft does not have it."""

    image_index: int  # the camera's own count
    p_WC: Vec3
    q_WC: Quat
    blur_px: float  # true motion of the picture's points during the exposure, the largest
    bundles: dict[str, tuple[Vec3, Quat]]  # p_WM, q_WM
    file: str = ""


# --- all processes ----------------------------------------------------------------------------------------------------


class Health(Message):
    """State of a process, twice a second."""

    process: ProcessName
    pid: int
    steps_per_s: float
    nominal_steps_per_s: float
    late_steps: int  # steps that began more than half a period late
    errors: int  # exceptions and undecodable messages, counted and dropped
    last_error: str
    step_time_max_s: float
    cpu_s: float
    memory_mb: float
    files: str = ""  # fingerprint of the files of the flight when it was started; "": it has read none


class HostStatus(Message):
    """State of the companion computer, once a second. NaN: not available on this machine."""

    disk_free_mb: float  # where the flight log is written
    cpu_load: float  # 0..1, of all cores
    cpu_temperature_c: float
    throttled: bool  # the firmware has lowered the clock: too hot, or under-voltage
    memory_free_mb: float


class Truth(Message):
    """True state of the simulation; an aircraft does not have it."""

    p_W: Vec3
    v_W: Vec3
    q_WB: Quat
    omega_B: Vec3
    disturbance_W: Vec3  # force of the moving air beyond the still-air drag, over mass
    gnss_bias_W: Vec3
    bundles: dict[str, tuple[Vec3, Quat]]  # p_WM, q_WM
    battery_voltage_v: float
    motor_thrust_n: tuple[float, ...]


class Contact(Message):
    """The simulated aircraft has touched a solid of its world; ``stamp_s``: of the first touch."""

    solid: str  # its name in the world file
    p_W: Vec3
    normal_W: Vec3  # out of the solid
    speed_m_s: float  # of the aircraft's touching point, just before
    force_n: float  # the largest since then
    landing: bool  # feet alone, slowly, on its top


# --- the table ------------------------------------------------------------------------------------------------------


class Topic(NamedTuple):
    """A row of the table."""

    type: type[Message]
    sources: tuple[ProcessName, ...]  # processes that may publish it
    rate_hz: float  # nominal; 0: on events
    logged: bool
    max_age_s: float  # a consumer treats older content as absent


CAMERA, TRACKER, ESTIMATOR = ProcessName.CAMERA, ProcessName.TRACKER, ProcessName.ESTIMATOR
CONTROLLER, FCU, MISSION = ProcessName.CONTROLLER, ProcessName.FCU, ProcessName.MISSION
PAYLOAD, RECORDER, SIMULATOR = ProcessName.PAYLOAD, ProcessName.RECORDER, ProcessName.SIMULATOR
VIEW = ProcessName.VIEW
ALL_PROCESSES = tuple(name for name in ProcessName if name != VIEW)  # a view may be killed at any time: no health
INF = float("inf")

TOPICS: dict[TopicName, Topic] = {
    #                        type             sources              Hz  logged max age s
    "image":           Topic(Image,           (CAMERA, SIMULATOR), 30, False, 0.20),
    "stereo":          Topic(StereoImages,    (CAMERA, SIMULATOR), 20, False, 0.20),
    "depth":           Topic(DepthImage,      (CAMERA, SIMULATOR), 30, False, 0.20),
    "camera_imu":      Topic(CameraImu,       (CAMERA, SIMULATOR), 200, True, 0.10),
    "range":           Topic(RangeReading,    (SIMULATOR,),        20, True,  0.20),
    "markers":         Topic(Markers,         (TRACKER, SIMULATOR), 30, True, 0.30),
    "fcu_attitude":    Topic(FcuAttitude,     (FCU,),              50, True,  0.20),
    "fcu_position":    Topic(FcuPosition,     (FCU,),              50, True,  0.20),
    "fcu_imu":         Topic(FcuImu,          (FCU,),             200, True,  0.10),
    "fcu_status":      Topic(FcuStatus,       (FCU,),              10, True,  1.00),
    "fcu_info":        Topic(FcuInfo,         (FCU,),               0, True,  INF),
    "fcu_text":        Topic(FcuText,         (FCU,),               0, True,  INF),
    "fcu_command":     Topic(FcuCommand,      (MISSION,),           0, True,  1.00),
    "fcu_command_ack": Topic(FcuCommandAck,   (FCU,),               0, True,  INF),
    "sent_setpoint":   Topic(SentSetpoint,    (FCU,),              50, True,  0.50),
    "link_rx":         Topic(LinkRx,          (FCU,),               0, True,  INF),
    "link_tx":         Topic(LinkTx,          (FCU,),               0, True,  INF),
    "state":           Topic(State,           (ESTIMATOR,),       100, True,  0.15),
    "estimator":       Topic(EstimatorStatus, (ESTIMATOR,),       100, True,  0.50),
    "reference":       Topic(Reference,       (MISSION,),          20, True,  0.30),
    "setpoint":        Topic(Setpoint,        (CONTROLLER,),       50, True,  0.10),
    "control":         Topic(ControlStatus,   (CONTROLLER,),       50, True,  0.50),
    "mission_status":  Topic(MissionStatus,   (MISSION,),          10, True,  1.00),
    "safety":          Topic(SafetyEvent,     (MISSION,),           0, True,  INF),
    "operator_request": Topic(OperatorRequest, (VIEW,),             0, True,  1.00),
    "photo_request":   Topic(PhotoRequest,    (MISSION,),           0, True,  INF),
    "photo":           Topic(Photo,           (TRACKER, SIMULATOR), 0, False, INF),
    "capture_request": Topic(CaptureRequest,  (MISSION,),           0, True,  INF),
    "capture":         Topic(Capture,         (PAYLOAD,),           0, True,  INF),
    "payload":         Topic(PayloadStatus,   (PAYLOAD,),           2, True,  2.00),
    "camera_rx":       Topic(CameraRx,        (FCU, PAYLOAD),       0, True,  INF),
    "camera_tx":       Topic(CameraTx,        (PAYLOAD,),           0, True,  INF),
    "host":            Topic(HostStatus,      (RECORDER, SIMULATOR), 1, True, 3.00),
    "health":          Topic(Health,          ALL_PROCESSES,        2, True,  2.00),
    "truth":           Topic(Truth,           (SIMULATOR,),       100, True,  INF),
    "contact":         Topic(Contact,         (SIMULATOR,),         0, True,  INF),
    "capture_truth":   Topic(CaptureTruth,    (SIMULATOR,),         0, True,  INF),
}  # fmt: skip

TOPIC_OF: dict[type[Message], TopicName] = {row.type: name for name, row in TOPICS.items()}
