"""The vehicle file: everything the stack knows about one aircraft, typed, with unit and range.

One file serves estimator, controller, tracker, link and calibration; no number is written twice. The simulator
does not read it (it has airframes of its own, so the plant is never the model).
"""

from typing import Annotated, Literal

from msgspec import Meta

from companion.core.config import Section, integer, number

Vector3 = tuple[
    Annotated[float, number(-1e3, 1e3, "")],
    Annotated[float, number(-1e3, 1e3, "")],
    Annotated[float, number(-1e3, 1e3, "")],
]
UnitQuaternion = tuple[
    Annotated[float, number(-1, 1, "")],
    Annotated[float, number(-1, 1, "")],
    Annotated[float, number(-1, 1, "")],
    Annotated[float, number(-1, 1, "")],
]
Std3 = tuple[
    Annotated[float, number(1e-6, 1e3, "")],
    Annotated[float, number(1e-6, 1e3, "")],
    Annotated[float, number(1e-6, 1e3, "")],
]


class Thrust(Section):
    """Mass-normalised collective thrust = coefficient · command · (voltage / reference)^exponent."""

    coefficient_m_s2: Annotated[float, number(5, 100, "m/s² per unit of command")]
    reference_voltage_v: Annotated[float, number(3, 100, "V")]
    voltage_exponent: Annotated[float, number(0, 3, "(0: thrust does not depend on the battery)")]


class AttitudeAxis(Section):
    """First-order response of the flight controller's attitude loop."""

    time_constant_s: Annotated[float, number(0.02, 1.0, "s")]
    gain: Annotated[float, number(0.5, 1.5, "")]


class Attitude(Section):
    roll: AttitudeAxis
    pitch: AttitudeAxis


class Drag(Section):
    linear_1_s: tuple[
        Annotated[float, number(0, 5, "1/s")],
        Annotated[float, number(0, 5, "1/s")],
        Annotated[float, number(0, 5, "1/s")],
    ]  # world x, y, z


class Latency(Section):
    actuation_s: Annotated[
        float, number(0, 0.5, "s")
    ]  # from a setpoint leaving to the force it makes, beyond the first-order lag
    camera_s: Annotated[float, number(0, 0.5, "s")]  # from mid-exposure to the image's arrival in the camera process


class Camera(Section):
    device: str  # "0" or "/dev/video0", a folder of images, a video file
    width_px: Annotated[int, integer(160, 8192, "px")]
    height_px: Annotated[int, integer(120, 8192, "px")]
    rate_hz: Annotated[float, number(1, 240, "Hz")]
    fx_px: Annotated[float, number(50, 20000, "px")]
    fy_px: Annotated[float, number(50, 20000, "px")]
    cx_px: Annotated[float, number(0, 8192, "px")]
    cy_px: Annotated[float, number(0, 8192, "px")]
    model: Literal["pinhole", "fisheye"]
    distortion: Annotated[list[float], Meta(min_length=4, max_length=8)]  # OpenCV's order
    p_BC: Vector3  # camera in the body frame [m]
    q_BC: UnitQuaternion  # rotates optical axes (x right, y down, z forward) into FLU


class Tracking(Section):
    corner_noise_px: Annotated[float, number(0.01, 10, "px")]
    max_reprojection_px: Annotated[float, number(0.1, 50, "px")]
    flip_ratio: Annotated[
        float, number(1, 20, "(second over first reprojection error below which a pose is ambiguous)")
    ]
    roi_margin: Annotated[float, number(0, 3, "(of the size of the bundle in the image)")]
    full_search_every: Annotated[int, integer(1, 1000, "frames")]


class Fcu(Section):
    url: str  # serial:/dev/ttyAMA0:921600, udpin:0.0.0.0:14540, tcp:127.0.0.1:5760
    system_id: Annotated[int, integer(1, 254)]
    component_id: Annotated[int, integer(1, 254)]
    autopilot_system_id: Annotated[int, integer(1, 254)]
    attitude_rate_hz: Annotated[float, number(10, 250, "Hz")]
    position_rate_hz: Annotated[float, number(10, 250, "Hz")]
    send_odometry: bool  # the place by the marker to PX4's own estimator (companion/fcu/odometry.py)
    forward: list[str]  # ground stations that share the link, each as udpout:127.0.0.1:14550
    signing_key_file: str | None = None  # 32 bytes, its owner's alone; path from the vehicle file's folder


class Weights(Section):
    """Diagonal weights of the cost 1/2 ∫ |x - x_r|²_Q + |u - u_r|²_R."""

    position: tuple[
        Annotated[float, number(0, 1e4, "")], Annotated[float, number(0, 1e4, "")], Annotated[float, number(0, 1e4, "")]
    ]
    velocity: tuple[
        Annotated[float, number(0, 1e4, "")], Annotated[float, number(0, 1e4, "")], Annotated[float, number(0, 1e4, "")]
    ]
    attitude: tuple[
        Annotated[float, number(0, 1e4, "")], Annotated[float, number(0, 1e4, "")], Annotated[float, number(0, 1e4, "")]
    ]  # roll, pitch, yaw
    thrust: Annotated[float, number(0.01, 1e5, "")]
    roll_pitch: tuple[Annotated[float, number(0.01, 1e5, "")], Annotated[float, number(0.01, 1e5, "")]]
    terminal_factor: Annotated[float, number(0, 1e4, "(terminal over running state weight)")]


class Fallback(Section):
    """PID on position, world frame: acceleration = kp e + kd ė + ki ∫e (the estimated disturbance is fed forward)."""

    kp: tuple[
        Annotated[float, number(0, 50, "1/s²")],
        Annotated[float, number(0, 50, "1/s²")],
        Annotated[float, number(0, 50, "1/s²")],
    ]
    kd: tuple[
        Annotated[float, number(0, 50, "1/s")],
        Annotated[float, number(0, 50, "1/s")],
        Annotated[float, number(0, 50, "1/s")],
    ]
    ki: tuple[
        Annotated[float, number(0, 50, "1/s³")],
        Annotated[float, number(0, 50, "1/s³")],
        Annotated[float, number(0, 50, "1/s³")],
    ]
    clean_cycles_to_return: Annotated[int, integer(1, 1000, "cycles")]


class Yaw(Section):
    kp: Annotated[float, number(0, 10, "1/s")]
    ki: Annotated[float, number(0, 10, "1/s²")]
    rate_max_rad_s: Annotated[float, number(0.01, 3.0, "rad/s")]


class Controller(Section):
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

    position_m: Annotated[float, number(1e-4, 100, "m")]
    velocity_m_s: Annotated[float, number(1e-4, 100, "m/s")]
    attitude_rad: Annotated[float, number(1e-4, 3, "rad")]
    disturbance_m_s2: Annotated[float, number(1e-4, 20, "m/s²")]
    gnss_bias_m: Annotated[float, number(1e-4, 100, "m")]
    marker_position_m: Annotated[float, number(1e-4, 100, "m")]
    marker_attitude_rad: Annotated[float, number(1e-4, 3, "rad")]


class ProcessNoise(Section):
    """Square roots of the continuous-time noise densities."""

    velocity_m_s_sqrt_s: Annotated[float, number(1e-6, 10, "m/s/√s")]
    attitude_rad_sqrt_s: Annotated[float, number(1e-6, 10, "rad/√s")]
    disturbance_m_s2_sqrt_s: Std3  # world x, y, z [m/s²/√s], in still air
    gust_factor: Annotated[float, number(1, 100, "(up to which the same may grow in gusts)")]
    gnss_bias_m_sqrt_s: Annotated[float, number(1e-6, 10, "m/√s")]
    marker_position_m_sqrt_s: Annotated[float, number(0, 1, "m/√s")]
    marker_attitude_rad_sqrt_s: Annotated[float, number(0, 1, "rad/√s")]


class Sensor(Section):
    """One kind of measurement: nominal noise, adaptation window, gate."""

    std: Annotated[
        float, number(1e-5, 100, "(of the measured unit)")
    ]  # for the marker: factor on the tracker's own covariance
    window: Annotated[int, integer(2, 1000, "innovations in the covariance matching")]
    gate_probability: Annotated[float, number(0.5, 0.999999, "(chi-square)")]


class VelocityBias(Section):
    """The slow error of the flight controller's velocity: first-order Gauss-Markov, each axis."""

    std_m_s: Annotated[float, number(1e-4, 5, "m/s")]
    time_constant_s: Annotated[float, number(0.5, 1000, "s")]


class DisturbanceMemory(Section):
    """Times in which a disturbance that nothing shows any more is forgotten."""

    horizontal_s: Annotated[float, number(0.5, 1e6, "s")]
    vertical_s: Annotated[float, number(0.5, 1e6, "s (what stays longer is thrust scale)")]


class AttitudeBias(Section):
    """The slow error of the flight controller's attitude in the world: first-order Gauss-Markov."""

    tilt_std_rad: Annotated[float, number(1e-5, 0.5, "rad, about each horizontal axis")]
    tilt_time_s: Annotated[float, number(0.5, 1e5, "s")]
    heading_std_rad: Annotated[float, number(1e-5, 1, "rad")]
    heading_time_s: Annotated[float, number(0.5, 1e5, "s")]


class Mount(Section):
    """The camera turning on its mount, in wind and vibration: first-order Gauss-Markov, each axis."""

    std_rad: Annotated[float, number(1e-5, 0.5, "rad")]
    time_constant_s: Annotated[float, number(0.05, 1000, "s")]


class ThrustScale(Section):
    """True over modelled thrust: a slow random walk that begins at 1."""

    std: Annotated[float, number(1e-4, 0.5, "at the start")]
    walk_sqrt_s: Annotated[float, number(1e-6, 0.1, "1/√s")]


class Estimator(Section):
    rate_hz: Annotated[float, number(20, 500, "Hz")]
    history_s: Annotated[float, number(0.1, 5, "s")]
    marker_mode: Literal["pose", "corners"]  # what of a bundle is measured: its pose, or the corners of each marker
    camera_calibration_px: Annotated[float, number(0, 20, "px, standard deviation of what calibration left")]
    initial: InitialStd
    process: ProcessNoise
    disturbance: DisturbanceMemory
    velocity_bias: VelocityBias
    attitude_bias: AttitudeBias
    thrust_scale: ThrustScale
    mount: Mount
    position: Sensor  # std [m]
    velocity: Sensor  # std [m/s], without the bias
    attitude: Sensor  # std [rad]
    marker: Sensor  # std [1]


class Safety(Section):
    """Limits of the safety table (companion/mission/monitors.py), in its order; ``companion safety`` prints it."""

    rc_lost_s: Annotated[float, number(0.2, 10, "s")]
    link_lost_s: Annotated[float, number(0.2, 10, "s")]
    timesync_lost_s: Annotated[float, number(1, 600, "s")]
    state_age_s: Annotated[float, number(0.05, 5, "s")]
    innovation_nis: Annotated[
        float, number(1, 100, "(normalised innovation squared per number measured, 1 is consistent)")
    ]
    relative_std_m: Annotated[float, number(0.01, 20, "m")]
    position_std_m: Annotated[float, number(0.01, 20, "m")]
    marker_lost_s: Annotated[float, number(0.2, 60, "s")]
    gnss_lost_s: Annotated[float, number(0.2, 60, "s")]
    both_lost_s: Annotated[float, number(0.2, 60, "s without satellites and bundle")]
    control_error_m: Annotated[float, number(0.1, 20, "m")]
    tilt_rad: Annotated[float, number(0.2, 1.5, "rad from upright")]
    tilt_error_rad: Annotated[float, number(0.1, 1.5, "rad between commanded and true body z")]
    throttle_share: Annotated[float, number(0.3, 1, "of the way from controller.thrust_min to thrust_max")]
    standoff_min_m: Annotated[float, number(0.2, 20, "m from the centre of gravity to the face of the bundle")]
    battery_low_v: Annotated[float, number(3, 100, "V")]
    battery_critical_v: Annotated[float, number(3, 100, "V")]
    setpoints_lost_s: Annotated[float, number(0.1, 5, "s")]
    fallback_s: Annotated[float, number(0.1, 60, "s")]
    failing_share: Annotated[float, number(0.05, 1, "of the cycles whose solve fails or which come too late")]
    process_dead_s: Annotated[float, number(1, 60, "s without a health message")]
    step_rate_share: Annotated[float, number(0.1, 1, "of its steps that a process of the loop must manage")]
    cpu_temperature_c: Annotated[float, number(40, 120, "°C")]
    disk_free_mb: Annotated[float, number(1, 1e6, "MB")]
    memory_free_mb: Annotated[float, number(1, 1e6, "MB")]


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

    def model_parameters(self, voltage_v: float | None = None) -> tuple[float, ...]:
        """The numbers of `acados_gen.flight_model.PARAMETERS`, in that order.

        voltage_v: battery voltage for the thrust coefficient; None or not positive: the reference voltage.
        """
        k_T = self.thrust.coefficient_m_s2
        if voltage_v is not None and voltage_v > 0:
            k_T *= (voltage_v / self.thrust.reference_voltage_v) ** self.thrust.voltage_exponent
        roll, pitch = self.attitude.roll, self.attitude.pitch
        return (k_T, *self.drag.linear_1_s, roll.time_constant_s, roll.gain, pitch.time_constant_s, pitch.gain)
