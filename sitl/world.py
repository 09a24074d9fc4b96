"""The simulated world: airframe, air, sensors, autopilot and camera, moved together in steps of 4 ms.

It has no clock and no socket: the lockstep runner and the real-time process both move it and carry its bytes and
images.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np

from companion.core import precision
from companion.core.arrays import Array
from companion.core.config import ConfigError
from companion.core.enums import FcuMode
from companion.core.frames import quat_from_rpy, rotation_matrix
from companion.core.messages import CaptureTruth, Contact, HostStatus, Image, Truth
from companion.core.precision import near, rounded
from companion.core.trajectory_messages import Quat, Vec3
from companion.runtime.nodes import payload_camera
from sitl.airframe import Airframe, load_airframe, with_thrust
from sitl.autopilot.autopilot import Autopilot
from sitl.autopilot.modes import CommanderMode
from sitl.camera import FOG_GREY, Painter, SceneCamera
from sitl.corners import CornerCamera
from sitl.imu_faults import ImuFault
from sitl.marker_attacks import MarkerAttacks
from sitl.payload_camera import SimulatedPayload
from sitl.pilot import ScriptedPilot
from sitl.plant import Plant
from sitl.scenario import LoadedScenario
from sitl.scene import PlacedBundle
from sitl.sensors import Face, Look, SensorFrame, Sensors
from sitl.solids.air import SolidAir
from sitl.solids.contact import SolidContact
from sitl.solids.solids import Solids
from sitl.solids.standing import standing_z_m
from sitl.vectors import quat, vec3
from sitl.wind import Wind

if TYPE_CHECKING:
    from sitl.devices.arrivals import Arrival
    from sitl.devices.config import DevicesConfig
    from sitl.devices.devices import Devices

STEP_S = 0.004  # the autopilot's inner loop runs at 250 Hz
PLANT_STEPS = 4  # the physics at 1 kHz
PAYLOAD_STREAM = 7  # of the random numbers of a seed; those of `World` and its pilot come before


class FlightController(Protocol):
    """The autopilot of a world's aircraft."""

    def step(self, frame: SensorFrame) -> Array: ...  # motor commands 0..1

    def receive(
        self, data: bytes, now_s: float, instance: int = 0
    ) -> None: ...  # MAVLink, from the link of this number

    def take_output(self) -> bytes: ...  # MAVLink for the companion

    def set_rc(self, channels_us: list[int] | None) -> None: ...  # None: no RC signal

    def set_gnss_refused(self, refused: bool) -> None: ...  # fixes come, and the estimator uses none of them

    def set_imu_fault(self, fault: ImuFault | None) -> None: ...  # of the stream; None: there is none

    @property
    def rc_us(self) -> list[int] | None: ...  # the channels of this moment [µs]

    @property
    def rc_neutral_us(self) -> tuple[int, ...]: ...  # sticks centred, position mode

    @property
    def rc_mode_channel(self) -> int: ...  # counted from 1

    @property
    def rc_mode_positions_us(self) -> dict[FcuMode | CommanderMode, int]: ...


class World:
    """The world of one scenario.

    seed: everything random in it follows from this one number.
    stream_rates_hz: what the autopilot sends without a request, in place of PX4's onboard rates.
    autopilot: flies in place of the PX4 emulator (`sitl.px4`), configured already.
    """

    def __init__(
        self,
        loaded: LoadedScenario,
        seed: int,
        stream_rates_hz: dict[str, float] | None = None,
        autopilot: FlightController | None = None,
    ) -> None:
        self.loaded = loaded
        scenario = loaded.scenario
        # Independent streams, so that a change in one sensor's noise leaves the wind as it was.
        streams = [1000 * seed + i for i in range(6)]
        airframe = with_thrust(load_airframe(scenario.airframe, scenario.airframe_changes), scenario.thrust_scale)
        self.airframe = airframe
        self.plant = Plant(airframe, streams[0], scenario.start.p_W, scenario.start.yaw_rad)
        self.wind = Wind(scenario.wind, streams[1])
        self.contact = self.air = None
        if loaded.solids is not None:
            self.plant.p_W[2] = standing_z_m(loaded.solids, self.plant.p_W, self.plant.rest_height_m)
            self.contact = SolidContact(loaded.solids, self.plant)
            self.air = SolidAir(loaded.solids, self.plant, scenario.wind.mean_m_s)
        self._jets = bool(scenario.wind.jets)
        self._places_B = np.array([(0, 0, 0), *(hub.p_m for hub in airframe.hubs)])
        self.sensors = Sensors(scenario.sensors, streams[2], _ahead(loaded))
        self.autopilot: FlightController = autopilot or _built_in_autopilot(
            loaded, airframe, streams[3], stream_rates_hz
        )
        self.pilot = None
        if scenario.pilot is not None:
            self.pilot = ScriptedPilot(
                scenario.pilot, loaded.plan.rc_switch, self.autopilot, 1000 * seed + len(streams)
            )
        images = scenario.camera_mode == "images"
        painter = None if loaded.solids is None or not images else _painter(loaded.solids)
        self.camera = SceneCamera(
            scenario.camera, scenario.scene, loaded.site, streams[4], images, loaded.solids, painter
        )
        self.corners = None if images else CornerCamera(self.camera)
        self._bundles = {placed.name: _pose(placed) for placed in scenario.scene.bundles}
        self.payload = self._payload_camera(1000 * seed + PAYLOAD_STREAM)
        self.steps = 0
        self.markers_hidden = False
        self.marker_attacks = MarkerAttacks(self.camera.printed, streams[5])
        self.devices = None if scenario.devices is None else _devices(loaded, scenario.devices, self.camera, seed)
        self.camera_frozen = False  # every image is the one before
        self._last_exposure: Callable[[], Image] | None = None
        self.push_m_s2 = (0.0, 0.0, 0.0)  # force over mass beyond that of the scenario's wind
        self.motor_shares: Array | None = None  # of their commands that the motors obey; None: all of them
        self.camera_error_std_m = 0.0  # displacement of the camera in each image
        self._camera_noise = np.random.default_rng(streams[5])
        self.healthy_host = self.host = HostStatus(
            stamp_s=0.0, disk_free_mb=20e3, cpu_load=0.3, cpu_temperature_c=55.0, throttled=False, memory_free_mb=2e3
        )

    @property
    def now_s(self) -> float:
        return self.steps * STEP_S

    def advance(self) -> None:
        """Move everything on by `STEP_S`."""
        now_s = self.now_s
        plant = self.plant
        motors = self.autopilot.step(self.sensors.sample(now_s, plant))
        if self.motor_shares is not None:
            motors = motors * self.motor_shares
        force = self.wind.force(now_s, plant.p_W)
        push_n = [(a + b) * plant.mass_kg for a, b in zip(force, self.push_m_s2, strict=True)]
        wind_W = self.wind_on_aircraft(now_s)
        if self.contact is None or self.air is None:
            plant.step(motors, PLANT_STEPS, wind_W, push_n)
        else:
            self.air.lay_surfaces()
            self.contact.step(motors, PLANT_STEPS, self.air.wind(wind_W), push_n)
        self.steps += 1
        if self.payload is not None:
            self.payload.step(self.now_s, STEP_S)

    def receive(self, data: bytes, now_s: float, instance: int = 0) -> None:
        """MAVLink of a link reaches the autopilot at a simulated time, and the payload camera behind it."""
        self.autopilot.receive(data, now_s, instance)
        if self.payload is not None:
            self.payload.receive(data, now_s)

    def take_output(self) -> bytes:
        """MAVLink for the companion."""
        data = self.autopilot.take_output()
        return data if self.payload is None else data + self.payload.take_output()

    def take_captures(self) -> list[CaptureTruth]:
        """The exposures of the payload camera since the last call."""
        return [] if self.payload is None else self.payload.take_captures()

    def _payload_camera(self, seed: int) -> SimulatedPayload | None:
        camera = payload_camera(self.loaded.plan)
        if camera is None:
            return None
        solids, config = self.loaded.solids, self.loaded.scenario.payload
        distance_m = None if solids is None else lambda p_W, direction: float(solids.first_hit(p_W, direction))
        payload = SimulatedPayload(camera, config, self.plant, self._bundles, seed, distance_m)
        if camera.control is not None and camera.control.trigger == "px4" and isinstance(self.autopilot, Autopilot):
            self.autopilot.stack.trigger_camera = payload.expose_after_latency
        return payload

    @property
    def contacts(self) -> list[Contact] | None:
        """All contacts with solids so far; None: a world without solids."""
        return None if self.contact is None else self.contact.contacts

    def take_contacts(self) -> list[Contact]:
        """The contacts with solids of which enough is known by now, each once."""
        return [] if self.contact is None else self.contact.take()

    def step_pilot(self, mode: FcuMode | CommanderMode, armed: bool) -> None:
        """Let the pilot look and move the sticks; every `sitl.pilot.PERIOD_S`."""
        if self.pilot is not None:
            self.pilot.step(self.now_s, self.plant.p_W, self.plant.v_W, self.plant.q_WB, mode, armed)

    def exposure(self) -> Callable[[], Image]:
        """Expose an image now; the returned call draws it, also in another thread, in the order of exposure."""
        if self.camera_frozen and self._last_exposure is not None:
            frozen, stamp_s = self._last_exposure, self.now_s
            return lambda: msgspec.structs.replace(frozen(), stamp_s=stamp_s)
        # Drawn once: a frozen camera shows the image that was exposed last, however far the drawing is behind.
        self._last_exposure = functools.cache(self._exposed())
        return self._last_exposure

    def _exposed(self) -> Callable[[], Image]:
        plant, size, now_s = self.plant, self.camera.config, self.now_s
        p_W = plant.p_W.copy()
        if (markers := self.marker_attacks.exposed(now_s)) is not None:
            self.camera.place(markers)
        if self.camera_error_std_m:
            p_W += self.camera_error_std_m * self._camera_noise.standard_normal(3)
        if self.corners is not None:
            image = self.corners.expose(now_s, p_W, plant.q_WB, self.markers_hidden)
            return lambda: image
        if self.markers_hidden:
            fog = bytes([FOG_GREY]) * (size.width * size.height)
            return lambda: Image(stamp_s=now_s, width=size.width, height=size.height, data=fog)
        motion = (p_W, plant.q_WB.copy(), plant.v_W.copy(), plant.omega_B.copy())
        placed = self.camera.placed
        return lambda: self.camera.render(now_s, *motion, placed)

    def measured(self) -> "Sequence[Arrival]":
        """What the devices measured in the step that ends now, and when it arrives."""
        if self.devices is None:
            return ()
        self.devices.hidden = self.markers_hidden
        return self.devices.step(self.now_s, self.plant)

    def wind_on_aircraft(self, now_s: float) -> Vec3:
        """Velocity of the air [m/s], W; in a jet, which is narrower than the aircraft, its mean over hull and rotors.

        Advances the gusts to ``now_s``.
        """
        plant, wind = self.plant, self.wind
        if not self._jets:
            return wind.sample(now_s, plant.p_W)
        places = plant.p_W + self._places_B @ rotation_matrix(plant.q_WB).T
        return vec3(np.mean([wind.sample(now_s, place) for place in places], axis=0))

    def host_status(self) -> HostStatus:
        """The state of the computer that flies in this world."""
        return msgspec.structs.replace(self.host, stamp_s=self.now_s)

    def truth(self) -> Truth:
        plant = self.plant
        return Truth(
            stamp_s=self.now_s,
            p_W=rounded(plant.p_W.tolist(), precision.TRUTH),
            v_W=rounded(plant.v_W.tolist(), precision.TRUTH),
            q_WB=rounded(plant.q_WB.tolist(), precision.ATTITUDE),
            omega_B=rounded(plant.omega_B.tolist(), precision.TRUTH),
            disturbance_W=rounded(plant.disturbance_W.tolist(), precision.TRUTH),
            gnss_bias_W=rounded(self.sensors.gnss_bias_W, precision.TRUTH),
            bundles=self._bundles,
            battery_voltage_v=near(float(plant.battery_voltage_v), precision.VOLTAGE),
            motor_thrust_n=rounded(plant.motor_thrust_n.tolist(), precision.TRUTH),
        )


def _pose(placed: PlacedBundle) -> tuple[Vec3, Quat]:
    return placed.p_W, quat(quat_from_rpy(*placed.rpy_rad))


def _ahead(loaded: LoadedScenario) -> Face | Look | None:
    """What the flight controller's range finder measures: the solids of the world and the ground.

    In a world without solids it is the face of the structure: the plane of the first bundle as it really stands, whatever an attack shows.
    """
    if loaded.solids is not None:
        return functools.partial(_distance_to_solids_m, loaded.solids)
    bundles = loaded.scenario.scene.bundles
    if not bundles:
        return None
    p_W, q_WM = _pose(bundles[0])
    return Face(p_W, vec3(rotation_matrix(q_WM)[:, 2]))


def _distance_to_solids_m(solids: Solids, origin_W: Array, direction_W: Vec3) -> float:
    """From a point along a unit vector to the first solid or the ground z = 0 [m]; inf: there is nothing."""
    ground_m = -float(origin_W[2]) / direction_W[2] if direction_W[2] < 0.0 <= origin_W[2] else math.inf
    return min(float(solids.first_hit(origin_W, np.array(direction_W))), ground_m)


def _painter(solids: Solids) -> Painter:
    from sitl.rendering.painter import ScenePainter  # here: a world without solids loads no renderer

    return ScenePainter(solids.meshes())


def _devices(loaded: LoadedScenario, config: "DevicesConfig", camera: SceneCamera, seed: int) -> "Devices":
    from sitl.devices.devices import Devices, scene_of  # here: a scenario without devices loads no renderer

    if config.depth is not None and loaded.solids is not None:
        loaded.solids.check_depth_noise()
    return Devices(config, scene_of(camera, loaded.scenario.scene, loaded.solids, config.draws), seed)


def _built_in_autopilot(
    loaded: LoadedScenario, airframe: Airframe, seed: int, stream_rates_hz: dict[str, float] | None
) -> Autopilot:
    scenario = loaded.scenario
    autopilot = Autopilot(
        scenario.airframe,
        seed,
        rate_hz=1.0 / STEP_S,
        boot_offset_s=scenario.fcu_clock.boot_offset_s,
        clock_drift_ppm=scenario.fcu_clock.drift_ppm,
        stream_rates_hz=stream_rates_hz,
        airframe=airframe,
    )
    autopilot.stack.observer.gates_apart = scenario.gnss_gates_apart
    autopilot.attitude.input_delay_steps = round(scenario.command_delay_s / STEP_S)
    for name, value in scenario.fcu_parameters.items():
        if not autopilot.parameters.set(name, value):
            raise ConfigError(f"{loaded.path}: fcu_parameters.{name} = {value}: no such parameter or wrong type")
    return autopilot
