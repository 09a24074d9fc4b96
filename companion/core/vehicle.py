"""The vehicle file: all data of one aircraft, typed, with unit and range.

One file serves estimator, controller, tracker, link and calibration; no number is written twice. The simulated
aircraft does not come from it: the simulator has its own airframes (config/airframes/), so the plant differs from the
model. A field without a default must be in the file (or in its ``base``).
"""

import math
import re
from typing import Annotated, Literal, TypeVar

from msgspec import Meta

from companion.core.config import Section, check_unit_quaternion, integer, number
from companion.core.frames import GRAVITY_M_S2
from companion.core.voltage import RANGE

SENDER = re.compile(r"\d{1,3}/\d{1,3}", re.ASCII)  # system/component
HARDWARE_ID = re.compile(r"0x[0-9a-f]{16}")

PAUSE_SHARE = 0.8  # of safety.setpoints_lost_s: the longest pause between two setpoints in one stream
PAUSE_PERIODS = 3  # of the controller, at least: two setpoints lost or late in a row do not end a stream
# Longest COM_OF_LOSS_T of PX4: with a longer one it holds the last setpoint for too long after the stack has stopped streaming.
OFFBOARD_LOSS_MAX_S = 1.0

# Of width or height: the largest distance of the principal point from the middle of the picture. That of a lens lies within some
# hundredths of it; one that was found for another size of the picture lies where the middle of that size was.
PRINCIPAL_POINT_SHARE = 0.2

MODEL_PARAMETERS = 10  # numbers of `Vehicle.model_parameters`

T = TypeVar("T")
Triple = tuple[T, T, T]

# Types that several fields share. A number that occurs once has its range and unit beside its name.
Coordinate = Annotated[float, number(-1e3, 1e3, "")]
QuaternionElement = Annotated[float, number(-1, 1, "")]
Vector3 = Triple[Coordinate]
UnitQuaternion = tuple[QuaternionElement, QuaternionElement, QuaternionElement, QuaternionElement]  # w, x, y, z
FocalLength = Annotated[float, number(50, 20000, "px")]
PrincipalPoint = Annotated[float, number(0, 8192, "px")]
Delay = Annotated[float, number(0, 0.5, "s")]
Voltage = Annotated[float, number(3, 100, "V")]
Megabytes = Annotated[float, number(1, 1e6, "MB")]
MavlinkId = Annotated[int, integer(1, 254)]
StreamRate = Annotated[float, number(10, 250, "Hz")]
DragCoefficient = Annotated[float, number(0, 5, "1/s")]
StateWeight = Annotated[float, number(0, 1e4, "")]
InputWeight = Annotated[float, number(0.01, 1e5, "")]
ProportionalGain = Annotated[float, number(0, 50, "1/s²")]
DerivativeGain = Annotated[float, number(0, 50, "1/s")]
IntegralGain = Annotated[float, number(0, 50, "1/s³")]
PositionStd = Annotated[float, number(1e-4, 100, "m")]
AttitudeStd = Annotated[float, number(1e-4, 3, "rad")]
NoiseDensity = Annotated[float, number(1e-6, 1e3, "")]
LossTime = Annotated[float, number(0.2, 10, "s")]
SourceLossTime = Annotated[float, number(0.2, 60, "s")]
PositionStdLimit = Annotated[float, number(0.01, 20, "m")]


class Thrust(Section):
    """Mass-normalised collective thrust = coefficient · command · (voltage / reference)^exponent."""

    coefficient_m_s2: Annotated[float, number(5, 100, "m/s² per unit of command")]
    reference_voltage_v: Voltage
    voltage_exponent: Annotated[float, number(0, 3, "(0: thrust does not depend on the battery)")]
    # PX4's THR_MDL_FAC with which coefficient and exponent were identified: PX4 bends the command by it on its way to
    # the motors, so with another factor the same command gives another thrust.
    model_factor: Annotated[float, number(0, 1, "(THR_MDL_FAC of PX4)")]


class AttitudeAxis(Section):
    """First-order response of the flight controller's attitude loop."""

    time_constant_s: Annotated[float, number(0.02, 1.0, "s")]
    gain: Annotated[float, number(0.5, 1.5, "")]


class Attitude(Section):
    """The attitude response by axis."""

    roll: AttitudeAxis
    pitch: AttitudeAxis


class Drag(Section):
    """Drag acceleration = -linear · v - (rotor + rotor_per_thrust · specific thrust) · v in the plane of the rotors.

    v: velocity relative to the ground. Rotor drag is equation 13 of W. Kim et al., "High-Fidelity Drone Simulation with
    Depth Camera Noise and Improved Air Drag Force Models", Applied Sciences 13, 10631, 2023, (k T + b) c_d over mass.
    Linear drag across stands for the same force: a file with rotor drag has 0 there.
    """

    linear_1_s: Triple[DragCoefficient]  # world x, y, z
    rotor_1_s: DragCoefficient = 0.0
    rotor_s_m: Annotated[float, number(0, 0.5, "s/m, of the thrust over mass")] = 0.0

    def contradiction(self) -> str:
        """Of linear drag across and rotor drag, which are one force and would count twice."""
        across = self.linear_1_s[:2]
        if not any(across) or not (self.rotor_1_s or self.rotor_s_m):
            return ""
        return (
            f"drag.linear_1_s = [{across[0]:g}, {across[1]:g}, …] across and rotor drag (drag.rotor_1_s ="
            f" {self.rotor_1_s:g}, drag.rotor_s_m = {self.rotor_s_m:g}) are the same force: one of them must be 0"
        )


class Latency(Section):
    """Constant delays."""

    actuation_s: Delay  # from sending a setpoint to its force, beyond the first-order lag
    camera_s: Delay  # from mid-exposure to the image's arrival in the camera process


class CameraControls(Section):
    """What the camera must not choose for itself. A key that is left out stays as the device has it."""

    exposure_s: Annotated[float, number(2e-5, 0.1, "s")] | None = None
    gain: Annotated[float, number(0, 1e5, "in the device's unit; analogue gain of a Raspberry Pi's camera")] | None = (
        None
    )
    white_balance_k: Annotated[float, number(1000, 15000, "K")] | None = None
    focus: Annotated[float, number(0, 1e5, "in the device's unit; dioptres of a Raspberry Pi's camera")] | None = None


class Camera(Section):
    """The camera: where its images come from, its lens, and its place on the aircraft."""

    device: str  # "0" or "/dev/video0", "rpicam", a folder of images, a video file
    width_px: Annotated[int, integer(160, 8192, "px")]
    height_px: Annotated[int, integer(120, 8192, "px")]
    rate_hz: Annotated[float, number(1, 240, "Hz")]
    fx_px: FocalLength
    fy_px: FocalLength
    cx_px: PrincipalPoint
    cy_px: PrincipalPoint
    model: Literal["pinhole", "fisheye"]
    distortion: Annotated[list[float], Meta(min_length=4, max_length=8)]  # OpenCV's order
    p_BC: Vector3  # camera in the body frame [m]
    q_BC: UnitQuaternion  # rotates optical axes (x right, y down, z forward) into FLU
    controls: CameraControls | None = None  # fixed and read back; None: as the device has them
    # Time from the exposure of the first row to that of the last; 0: global shutter, None: not known.
    rolling_shutter_s: Annotated[float, number(0, 0.2, "s")] | None = None

    def __post_init__(self) -> None:
        check_unit_quaternion("q_BC", self.q_BC)

    def contradiction(self) -> str:
        """Of the lens and the size of the picture: its numbers count pixels, so they are those of one size alone."""
        for key, centre_px, length, size_px in (
            ("cx_px", self.cx_px, "width_px", self.width_px),
            ("cy_px", self.cy_px, "height_px", self.height_px),
        ):
            middle_px, most_px = (size_px - 1) / 2, PRINCIPAL_POINT_SHARE * size_px
            if abs(centre_px - middle_px) > most_px:
                return (
                    f"camera.{key} = {centre_px:g}: must be {middle_px - most_px:g} to {middle_px + most_px:g} px with"
                    f" camera.{length} = {size_px}: fx_px, fy_px, cx_px, cy_px and distortion are those of one size of the"
                    " picture, width_px x height_px (companion calibrate camera)"
                )
        return ""


class Tracking(Section):
    """Detection of markers and the pose of a bundle."""

    corner_noise_px: Annotated[float, number(0.01, 10, "px")]  # standard deviation of one corner coordinate
    marker_size_std: Annotated[float, number(0, 0.2, "of a marker's size against the marker file; its centre is true")]
    max_reprojection_px: Annotated[float, number(0.1, 50, "px")]  # RMS above which a bundle is rejected
    flip_ratio: Annotated[
        float, number(1, 20, "(second over first reprojection error below which a pose is ambiguous)")
    ]
    roi_margin: Annotated[float, number(0, 3, "(of the size of the bundle in the image)")]
    full_search_every: Annotated[int, integer(1, 1000, "frames")]
    # The user's own detector as "module:Class" (companion/tracking/detection.py); None: the built-in detectors.
    detector: str | None = None


def hardware_id(uid: int) -> str:
    """AUTOPILOT_VERSION.uid as `Fcu.hardware_id` has it."""
    return f"0x{uid:016x}"


class Fcu(Section):
    """The link to the flight controller."""

    url: str  # serial:/dev/ttyAMA0:921600, udpin:0.0.0.0:14540, tcp:127.0.0.1:5760
    system_id: MavlinkId
    component_id: MavlinkId
    autopilot_system_id: MavlinkId
    attitude_rate_hz: StreamRate
    position_rate_hz: StreamRate
    imu_rate_hz: Annotated[float, number(0, 500, "Hz of HIGHRES_IMU; 0: the link is too slow, the commands propagate")]
    send_odometry: bool  # the position by the marker for PX4's own estimator (companion/fcu/odometry.py)
    forward: list[str]  # ground stations that share the link, each as udpout:127.0.0.1:14550
    signing_key_file: str | None = None  # 32 bytes, readable by the owner only; path relative to the vehicle file
    # Other senders that belong to the aircraft, as "1/197" (system/component): motion capture, flow sensor, smart battery.
    measurement_senders: list[str] = []
    # The flight controller that this file belongs to, as `companion preflight` shows it ("0x3130…"); "": any.
    hardware_id: str = ""

    def __post_init__(self) -> None:
        if self.hardware_id and not HARDWARE_ID.fullmatch(self.hardware_id):
            raise ValueError(f'hardware_id = "{self.hardware_id}": must be 16 digits as "0x001f003b34385119", or empty')
        for sender in self.measurement_senders:
            if not SENDER.fullmatch(sender) or not all(1 <= int(number) <= 255 for number in sender.split("/")):
                raise ValueError(f'measurement_senders: "{sender}" is no system/component as "1/197", 1 to 255 each')

    def other_hardware(self, uid: int) -> str:
        """Why a flight controller with this AUTOPILOT_VERSION.uid is not this file's, "" when it may be."""
        if self.hardware_id in ("", hardware_id(uid)):
            return ""
        return f"its hardware id is {hardware_id(uid)}, this vehicle file belongs to {self.hardware_id} (fcu.hardware_id): wrong aircraft or wrong file"

    @property
    def senders_of_measurements(self) -> list[tuple[int, int]]:
        """System and component of each of `measurement_senders`."""
        pairs = (sender.split("/") for sender in self.measurement_senders)
        return [(int(system), int(component)) for system, component in pairs]


class Weights(Section):
    """Diagonal weights of the cost 1/2 ∫ |x - x_r|²_Q + |u - u_r|²_R."""

    position: Triple[StateWeight]
    velocity: Triple[StateWeight]
    attitude: Triple[StateWeight]  # roll, pitch, yaw
    thrust: InputWeight
    roll_pitch: tuple[InputWeight, InputWeight]
    terminal_factor: Annotated[float, number(0, 1e4, "(terminal over running state weight)")]


class Fallback(Section):
    """PID on position, world frame: acceleration = kp e + kd ė + ki ∫e (the estimated disturbance is fed forward)."""

    kp: Triple[ProportionalGain]
    kd: Triple[DerivativeGain]
    ki: Triple[IntegralGain]
    clean_cycles_to_return: Annotated[int, integer(1, 1000, "cycles")]


class Yaw(Section):
    """The heading controller (companion/control/yaw.py)."""

    kp: Annotated[float, number(0, 10, "1/s")]
    ki: Annotated[float, number(0, 10, "1/s²")]
    rate_max_rad_s: Annotated[float, number(0.01, 3.0, "rad/s")]


class Controller(Section):
    """Model predictive controller, its limits, and what replaces it when it fails."""

    rate_hz: Annotated[float, number(10, 200, "Hz")]
    horizon_s: Annotated[float, number(0.5, 6, "s")]
    nodes: Annotated[int, integer(10, 200, "shooting nodes")]
    condensed_nodes: Annotated[int, integer(1, 200, "blocks left after partial condensing")]
    deadline_s: Annotated[float, number(0.001, 0.1, "s")]
    tilt_max_rad: Annotated[float, number(0.05, 0.8, "rad")]
    speed_max_m_s: Annotated[float, number(0.5, 30, "m/s over ground, soft")]
    thrust_min: Annotated[float, number(0.0, 0.5, "of full command")]
    thrust_max: Annotated[float, number(0.2, 1.0, "of full command")]
    weights: Weights
    fallback: Fallback
    yaw: Yaw


class InitialStd(Section):
    """Standard deviations of the error state at the start."""

    position_m: PositionStd
    velocity_m_s: Annotated[float, number(1e-4, 100, "m/s")]
    attitude_rad: AttitudeStd
    disturbance_m_s2: Annotated[float, number(1e-4, 20, "m/s²")]
    gnss_bias_m: PositionStd
    marker_position_m: PositionStd
    marker_attitude_rad: AttitudeStd


class ProcessNoise(Section):
    """Square roots of the continuous-time noise densities."""

    velocity_m_s_sqrt_s: Annotated[float, number(1e-6, 10, "m/s/√s")]
    attitude_rad_sqrt_s: Annotated[float, number(1e-6, 10, "rad/√s")]
    disturbance_m_s2_sqrt_s: Triple[NoiseDensity]  # world x, y, z [m/s²/√s], in still air
    gust_factor: Annotated[float, number(1, 100, "(up to which the same may grow in gusts)")]
    gnss_bias_m_sqrt_s: Annotated[float, number(1e-6, 10, "m/√s")]
    marker_position_m_sqrt_s: Annotated[float, number(0, 1, "m/√s")]
    marker_attitude_rad_sqrt_s: Annotated[float, number(0, 1, "rad/√s")]


class SensorNoise(Section):
    """One kind of measurement: nominal noise, adaptation window, gate."""

    std: Annotated[float, number(1e-5, 100, "(of the measured unit)")]  # marker: factor on the tracker's covariance
    window: Annotated[int, integer(2, 1000, "innovations in the covariance matching")]
    gate_probability: Annotated[float, number(0.5, 0.999999, "(chi-square)")]


class VelocityBias(Section):
    """The slow error of the flight controller's velocity: first-order Gauss-Markov, each axis."""

    std_m_s: Annotated[float, number(1e-4, 5, "m/s")]
    time_constant_s: Annotated[float, number(0.5, 1000, "s")]


class DisturbanceMemory(Section):
    """Time constants with which the estimated disturbance decays while no measurement supports it."""

    horizontal_s: Annotated[float, number(0.5, 1e6, "s")]
    vertical_s: Annotated[float, number(0.5, 1e6, "s (what stays longer is thrust scale)")]


class AttitudeBias(Section):
    """The slow error of the flight controller's attitude in the world: first-order Gauss-Markov."""

    tilt_std_rad: Annotated[float, number(1e-5, 0.5, "rad, about each horizontal axis")]
    tilt_time_s: Annotated[float, number(0.5, 1e5, "s")]
    heading_std_rad: Annotated[float, number(1e-5, 1, "rad")]
    heading_time_s: Annotated[float, number(0.5, 1e5, "s")]


class CameraMount(Section):
    """Rotation of the camera on its mount in wind and vibration: first-order Gauss-Markov, each axis."""

    std_rad: Annotated[float, number(1e-5, 0.5, "rad")]
    time_constant_s: Annotated[float, number(0.05, 1000, "s")]


class CameraErrors(Section):
    """What calibration leaves of the camera, and the slow part of the tracker's errors. Standard deviations."""

    rotation_rad: Annotated[float, number(1e-6, 1, "rad, rotation on the aircraft, each axis")]
    lever_m: Annotated[float, number(1e-5, 1, "m, position on the aircraft, each axis")]
    delay_s: Annotated[float, number(1e-5, 0.5, "s, time of an image")]
    bundle_scale: Annotated[float, number(1e-6, 0.2, "true over assumed size of all markers of a bundle, minus 1")]
    slow_pose: Annotated[float, number(1e-3, 20, "slow error of a bundle's pose over the tracker's standard deviation")]
    slow_pose_time_s: Annotated[float, number(0.5, 1000, "s, time constant of the same")]
    corner_drift_px: Annotated[
        float, number(0, 10, "px, slow error of one corner coordinate; 0: each pose of one image")
    ]
    corner_drift_time_s: Annotated[float, number(0.5, 1000, "s, time constant of the same")]


class ThrustScale(Section):
    """True over modelled thrust: a slow random walk that begins at 1."""

    std: Annotated[float, number(1e-4, 0.5, "at the start")]
    walk_sqrt_s: Annotated[float, number(1e-6, 0.1, "1/√s")]


class ImuNoise(Section):
    """HIGHRES_IMU of the flight controller, from which PX4 has already taken the biases that EKF2 estimates.

    The noise is what propagation has to allow for: the sensors', vibration, and their product with the sampling.
    """

    gyro_rad_sqrt_s: Annotated[float, number(1e-6, 1, "rad/√s")]
    accel_m_s_sqrt_s: Annotated[float, number(1e-6, 10, "m/s/√s")]
    gyro_bias_rad_s: Annotated[float, number(1e-6, 0.2, "rad/s, standard deviation of what EKF2 leaves")]
    accel_bias_m_s2: Annotated[float, number(1e-5, 5, "m/s², standard deviation of what EKF2 leaves")]
    bias_time_s: Annotated[float, number(1, 1e5, "s, time constant of both")]
    disturbance_m_s2_sqrt_s: Triple[NoiseDensity]  # world x, y, z [m/s²/√s]: gusts, which the accelerometer observes


class Estimator(Section):
    """The error-state Kalman filter: initial covariance, process noise, measurements."""

    rate_hz: Annotated[float, number(20, 500, "Hz")]
    history_s: Annotated[float, number(0.1, 5, "s")]
    marker_mode: Literal["pose", "corners"]  # the measurement: pose of the bundle, or corners of each marker
    camera_calibration_px: Annotated[float, number(0, 20, "px, standard deviation of what calibration left")]
    initial: InitialStd
    process: ProcessNoise
    disturbance: DisturbanceMemory
    velocity_bias: VelocityBias
    attitude_bias: AttitudeBias
    thrust_scale: ThrustScale
    mount: CameraMount
    camera: CameraErrors
    imu: ImuNoise
    specific_force: SensorNoise  # std [m/s²]: mean over some hundredths of a second against thrust and drag
    position: SensorNoise  # std [m]
    velocity: SensorNoise  # std [m/s], without the bias
    attitude: SensorNoise  # std [rad]
    marker: SensorNoise  # std [1]


class Safety(Section):
    """Limits of the safety table (companion/mission/monitors.py), in its order; ``companion safety`` prints it."""

    rc_lost_s: LossTime
    link_lost_s: LossTime
    timesync_lost_s: Annotated[float, number(1, 600, "s")]
    state_age_s: Annotated[float, number(0.05, 5, "s")]
    innovation_nis: Annotated[
        float, number(1, 100, "(normalised innovation squared per number measured, 1 is consistent)")
    ]
    relative_std_m: PositionStdLimit
    position_std_m: PositionStdLimit
    marker_lost_s: SourceLossTime
    gnss_lost_s: SourceLossTime
    gnss_lost_work_s: Annotated[float, number(5, 3600, "s of work at the bundle without a GNSS fix")]
    both_lost_s: Annotated[float, number(0.2, 60, "s without GNSS and bundle")]
    control_error_m: Annotated[float, number(0.1, 20, "m")]
    tilt_rad: Annotated[float, number(0.2, 1.5, "rad from upright")]
    tilt_error_rad: Annotated[float, number(0.1, 1.5, "rad between commanded and true body z")]
    throttle_share: Annotated[float, number(0.3, 1, "of the way from controller.thrust_min to thrust_max")]
    standoff_min_m: Annotated[float, number(0.2, 20, "m from the centre of gravity to the face of the bundle")]
    battery_low_v: Voltage
    battery_critical_v: Voltage
    setpoints_lost_s: Annotated[float, number(0.1, 5, "s")]
    fallback_s: Annotated[float, number(0.1, 60, "s")]
    failing_share: Annotated[float, number(0.05, 1, "of the cycles whose solve fails or which come too late")]
    process_dead_s: Annotated[float, number(1, 60, "s without a health message")]
    step_rate_share: Annotated[float, number(0.1, 1, "of its steps that a process of the loop must manage")]
    cpu_temperature_c: Annotated[float, number(40, 120, "°C")]
    disk_free_mb: Megabytes
    memory_free_mb: Megabytes

    @property
    def setpoint_pause_s(self) -> float:
        """Longest pause between two setpoints in one stream [s]: after a longer one PX4 may already leave offboard."""
        return PAUSE_SHARE * self.setpoints_lost_s


class ViewAccess(Section):
    """Who may use `companion view` from other computers (docs/view.md); paths are relative to the vehicle file."""

    token_file: str | None = None  # persons, their rights and tokens; readable by its owner only
    certificate_file: str | None = None  # of TLS, PEM
    key_file: str | None = None


class Vehicle(Section):
    """A vehicle file (config/vehicles/*.toml)."""

    name: str
    mass_kg: Annotated[float, number(0.1, 100, "kg")]
    wheelbase_m: Annotated[float, number(0.1, 5, "m")]
    thrust: Thrust
    attitude: Attitude
    drag: Drag
    latency: Latency
    camera: Camera
    tracking: Tracking
    fcu: Fcu
    controller: Controller
    estimator: Estimator
    safety: Safety
    view_access: ViewAccess = ViewAccess()

    def contradiction(self) -> str:
        """Of limits that exclude each other. A log may hold such a vehicle; no flight begins with its file."""
        low, high, tilt_max_rad = self.controller.thrust_min, self.controller.thrust_max, self.controller.tilt_max_rad
        safety = self.safety
        if not low < high:
            return f"controller.thrust_min = {low:g}: must be below controller.thrust_max = {high:g}"
        if problem := self._hover_contradiction() or self.drag.contradiction():
            return problem
        if not safety.tilt_rad > tilt_max_rad:
            return (
                f"safety.tilt_rad = {safety.tilt_rad:g}: must be above controller.tilt_max_rad = {tilt_max_rad:g}, the tilt"
                " that the controller may use"
            )
        if not safety.battery_low_v > safety.battery_critical_v:
            return (
                f"safety.battery_low_v = {safety.battery_low_v:g}: must be above safety.battery_critical_v ="
                f" {safety.battery_critical_v:g}: the return comes before the landing on the spot"
            )
        return self._pause_contradiction() or self.camera.contradiction()

    def _pause_contradiction(self) -> str:
        """The longest pause in the stream of setpoints suits neither the controller's rate nor PX4's timeout."""
        pause_s, lost_s, rate_hz = self.safety.setpoint_pause_s, self.safety.setpoints_lost_s, self.controller.rate_hz
        if pause_s < PAUSE_PERIODS / rate_hz:
            least_s = math.ceil(1000 * PAUSE_PERIODS / rate_hz / PAUSE_SHARE) / 1000
            return (
                f"safety.setpoints_lost_s = {lost_s:g}: must be at least {least_s:g}: {PAUSE_SHARE:g} of it is the longest"
                f" pause of the stream, at least {PAUSE_PERIODS} periods of controller.rate_hz = {rate_hz:g}"
            )
        if pause_s > OFFBOARD_LOSS_MAX_S:
            return (
                f"safety.setpoints_lost_s = {lost_s:g}: must be at most {OFFBOARD_LOSS_MAX_S / PAUSE_SHARE:g}: {PAUSE_SHARE:g}"
                f" of it is the longest pause of the stream, at most {OFFBOARD_LOSS_MAX_S:g} s (COM_OF_LOSS_T of PX4)"
            )
        return ""

    @property
    def throttle_limit(self) -> float:
        """Thrust command above which the safety table says that the thrust is near its limit."""
        low, high = self.controller.thrust_min, self.controller.thrust_max
        return low + self.safety.throttle_share * (high - low)

    def hover_thrust(self, voltage_v: float | None = None) -> float:
        """Thrust command of a hover in still air, by `model_parameters`."""
        return GRAVITY_M_S2 / self.model_parameters(voltage_v)[0]

    def _hover_contradiction(self) -> str:
        """The aircraft cannot hover within the limits of its thrust: k_T or a limit is wrong, or it is too heavy."""
        reference_v, critical_v = self.thrust.reference_voltage_v, self.safety.battery_critical_v
        limits = self.controller
        for voltage_v, most, key in (
            (reference_v, limits.thrust_max, "controller.thrust_max"),
            (
                reference_v,
                self.throttle_limit,
                "safety.throttle_share of the way from controller.thrust_min to thrust_max",
            ),
            (critical_v, limits.thrust_max, "controller.thrust_max"),
        ):
            hover = self.hover_thrust(voltage_v)
            place = "thrust.reference_voltage_v" if voltage_v == reference_v else "safety.battery_critical_v"
            needs = (
                f"thrust.coefficient_m_s2 = {self.thrust.coefficient_m_s2:g}: hover takes {hover:.3g} of full command at"
                f" {place} = {voltage_v:g} V, "
            )
            if not hover < most:
                return f"{needs}must be below {most:.3g} ({key})"
            if not hover > limits.thrust_min:
                return f"{needs}must be above controller.thrust_min = {limits.thrust_min:g}"
        return ""

    def model_parameters(self, voltage_v: float | None = None) -> tuple[float, ...]:
        """The numbers of `acados_gen.flight_model.PARAMETERS`, in that order.

        voltage_v: battery voltage for the thrust coefficient, limited to what a battery has (`companion.core.voltage`);
        None or not positive: the reference voltage.
        """
        k_T = self.thrust.coefficient_m_s2
        if voltage_v is not None and voltage_v > 0:
            share = min(RANGE[1], max(RANGE[0], voltage_v / self.thrust.reference_voltage_v))
            k_T *= share**self.thrust.voltage_exponent
        roll, pitch = self.attitude.roll, self.attitude.pitch
        response = (roll.time_constant_s, roll.gain, pitch.time_constant_s, pitch.gain)
        return (k_T, *self.drag.linear_1_s, *response, self.drag.rotor_1_s, self.drag.rotor_s_m)
