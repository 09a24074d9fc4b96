"""PX4's own simulator (SIH): the physics are PX4's; the camera, the truth on the bus and the pilot's sticks are ours.

PX4 runs in real time by itself. It reports its true motion by HIL_STATE_QUATERNION, which carries no time: the stamp of
a state is its arrival, less a typical delay. Latitude and longitude come in steps of 1e-7 degrees (11 mm) and
velocities in cm/s, so the position is smoothed with the velocity (`ReportedMotion`).

Of a scenario, camera, scene, start, mission and fcu_parameters are used. Wind, sensors, airframe and clock are PX4's:
no wind, GNSS without drift, a hexarotor of 1 kg.
"""

import heapq
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from companion.core.arrays import Array
from companion.core.bus import ZmqBus
from companion.core.clock import monotonic_s
from companion.core.enums import ProcessName
from companion.core.frames import quat_from_rpy, quat_normalized
from companion.core.messages import SIMULATOR, Image, Message, PhotoRequest, Truth
from companion.runtime.nodes import NodeOptions, build_node
from companion.runtime.process import HealthMonitor, StopFlag
from sitl.autopilot.conversion import EARTH_RADIUS_M, ORIGIN, Vector, frd, ned, q_enu
from sitl.camera import SceneCamera
from sitl.corners import CornerCamera
from sitl.px4.autopilot import check_parameters
from sitl.px4.build import SIH_MODEL, Px4Build, prepare_run
from sitl.px4.process import Px4Process
from sitl.px4.side_link import SIH_PORTS, SideLink
from sitl.realtime import TRUTH_PERIOD_S
from sitl.scenario import LoadedScenario

# In flight SIH's gyroscope and accelerometer carry white noise of up to 0.14 rad/s and 1.7 m/s² a sample, ten and five
# times the defaults of EKF2, with which its heading wanders by degrees. These are the noises of its 10 ms steps.
# SIH's battery is at half of its charge after SIM_BAT_DRAIN seconds, PX4's default of 60 being shorter than any mission.
# Its simulation script lets PX4 obey a joystick alone, has no kill switch and returns on a low battery: three values with
# which the stack begins no flight.
SIH_PARAMETERS = {
    "EKF2_GYR_NOISE": 0.1,
    "EKF2_ACC_NOISE": 1.0,
    "SIM_BAT_DRAIN": 1200.0,
    "COM_RC_IN_MODE": 3,  # the first source: our sticks, which come over MAVLink
    "RC_MAP_KILL_SW": 7,
    "COM_LOW_BAT_ACT": 0,
}
STATE_REQUEST_HZ = 200.0
STATE_HZ = 100.0  # PX4 sends no more
STATE_ID = 115  # HIL_STATE_QUATERNION
STATE_DELAY_S = 0.002  # typical, from PX4's step to the reception
REQUEST_PERIOD_S = 1.0  # the request is repeated until states arrive at the rate
STICKS_PERIOD_S = 0.1
POLL_S = 0.001
SMOOTHING_S = 0.1  # time constant with which the smoothed position follows the reported one
STATE_AGE_MAX_S = 0.2  # after a longer gap the reported position is taken unsmoothed


class ReportedMotion:
    """The aircraft's true motion in W, from PX4's reports.

    The position of the first state becomes start_W, so that the origin of W is that of the scenario.
    """

    def __init__(self, start_W: Vector) -> None:
        self._start_W: Array = np.array(tuple(start_W), dtype=float)
        self._origin: tuple[float, float, float] | None = None
        self.stamp_s = -math.inf
        self.p_W: Array = self._start_W.copy()
        self.v_W: Array = np.zeros(3)
        self.omega_B: Array = np.zeros(3)
        self.q_WB: Array = np.array([1.0, 0.0, 0.0, 0.0])

    def put(self, state: tuple[float, ...], stamp_s: float) -> None:
        """Take a HIL_STATE_QUATERNION (values in wire order)."""
        _, w, x, y, z, p, q, r, lat, lon, alt, vn, ve, vd, *_ = state
        if self._origin is None:
            self._origin = (lat, lon, alt)
        lat0, lon0, alt0 = self._origin
        north = math.radians((lat - lat0) * 1e-7) * EARTH_RADIUS_M
        east = math.radians((lon - lon0) * 1e-7) * EARTH_RADIUS_M * math.cos(math.radians(lat0 * 1e-7))
        reported_W = self._start_W + (east, north, (alt - alt0) * 1e-3)
        self.v_W = np.array(ned((vn, ve, vd))) * 1e-2
        step_s = stamp_s - self.stamp_s
        if 0.0 <= step_s < STATE_AGE_MAX_S:
            predicted_W = self.p_W + self.v_W * step_s
            self.p_W = predicted_W + (1.0 - math.exp(-step_s / SMOOTHING_S)) * (reported_W - predicted_W)
        else:
            self.p_W = reported_W
        self.q_WB = quat_normalized(q_enu((w, x, y, z)))
        self.omega_B = np.array(frd((p, q, r)))
        self.stamp_s = stamp_s


class SihWorld:
    """Camera and truth around PX4's own aircraft.

    With ``camera_mode = "corners"`` there are no pixels; a tracker here then gets the corners, as in `sitl.realtime`.
    """

    def __init__(self, loaded: LoadedScenario, seed: int) -> None:
        scenario = loaded.scenario
        images = scenario.camera_mode == "images"
        self.motion = ReportedMotion(scenario.start.p_W)
        self.camera = SceneCamera(scenario.camera, scenario.scene, loaded.site, 1000 * seed + 4, draw=images)
        self._corners = None if images else CornerCamera(self.camera)
        self._tracker = None
        if self._corners is not None:
            self._tracker = build_node(ProcessName.TRACKER, loaded, NodeOptions(detector=self._corners))
        self._bundles = {
            placed.name: (placed.p_W, tuple(quat_from_rpy(*placed.rpy_rad).tolist()))
            for placed in scenario.scene.bundles
        }

    def expose(self) -> Image:
        """The camera's image at the newest reported motion."""
        m = self.motion
        if self._corners is not None:
            return self._corners.expose(m.stamp_s, m.p_W, m.q_WB, False)
        return self.camera.render(m.stamp_s, m.p_W, m.q_WB, m.v_W, m.omega_B)

    def request(self, messages: Iterable[Message]) -> None:
        """Photo requests among some messages; without images they are for the tracker here."""
        if self._tracker is not None:
            for message in messages:
                if isinstance(message, PhotoRequest):
                    self._tracker.handle(message, self.motion.stamp_s)

    def arrived(self, image: Image) -> Iterable[Message]:
        """The messages that an image becomes on the bus: itself, or what the tracker finds in it."""
        return [image] if self._tracker is None else self._tracker.handle(image, image.stamp_s)

    def truth(self) -> Truth:
        """The newest reported motion as `Truth`."""
        m = self.motion
        return Truth(
            stamp_s=m.stamp_s,
            p_W=tuple(m.p_W.tolist()),
            v_W=tuple(m.v_W.tolist()),
            q_WB=tuple(m.q_WB.tolist()),
            omega_B=tuple(m.omega_B.tolist()),
            disturbance_W=(0.0, 0.0, 0.0),
            gnss_bias_W=(0.0, 0.0, 0.0),
            bundles=self._bundles,
            battery_voltage_v=math.nan,
            motor_thrust_n=(),
        )


def fly_sih(
    build: Px4Build, loaded: LoadedScenario, run: Path, seed: int, instance: int, bus: ZmqBus, stop: StopFlag
) -> None:
    """Run PX4's simulator and publish images and truth until ``stop``.

    Raises `ConfigError` when the start is refused, `Px4Ended` when PX4 ends.
    """
    parameters = loaded.scenario.fcu_parameters
    etc = prepare_run(build, run, SIH_MODEL, SIH_PARAMETERS | parameters)
    world = SihWorld(loaded, seed)
    link = SideLink(SIH_PORTS, instance)
    home = dict(zip(("PX4_HOME_LAT", "PX4_HOME_LON", "PX4_HOME_ALT"), map(str, ORIGIN), strict=True))
    px4 = Px4Process(build, run, etc, SIH_MODEL, instance, home)
    try:
        _run(world, link, px4, bus, stop, lambda: check_parameters(px4, loaded.path, parameters))
    finally:
        px4.stop()
        link.close()


def _run(
    world: SihWorld, link: SideLink, px4: Px4Process, bus: ZmqBus, stop: StopFlag, check: Callable[[], None]
) -> None:
    health = HealthMonitor(SIMULATOR, STATE_HZ)
    config = world.camera.config
    next_exposure_s = next_truth_s = next_request_s = next_sticks_s = 0.0
    on_the_way: list[tuple[float, int, Image]] = []
    count = counted = 0
    while not stop:
        time.sleep(POLL_S)
        now_s = monotonic_s()
        started_s = time.perf_counter()
        states = link.receive("HIL_STATE_QUATERNION")
        world.request(bus.receive(0.0))
        if now_s >= next_request_s:
            next_request_s = now_s + REQUEST_PERIOD_S
            px4.check()
            check()
            link.heartbeat()
            if count - counted < 0.5 * STATE_HZ * REQUEST_PERIOD_S:
                link.request(STATE_ID, STATE_REQUEST_HZ)
            counted = count
        if now_s >= next_sticks_s:
            next_sticks_s = now_s + STICKS_PERIOD_S
            link.sticks_centred()
        if states:
            world.motion.put(states[-1], now_s - STATE_DELAY_S)
            count += len(states)
            if now_s >= next_truth_s:
                next_truth_s = max(next_truth_s + TRUTH_PERIOD_S, now_s)
                bus.publish(world.truth())
            if now_s >= next_exposure_s:
                next_exposure_s = max(next_exposure_s + 1.0 / config.rate_hz, now_s)
                image = world.expose()
                heapq.heappush(on_the_way, (image.stamp_s + config.latency_s, count, image))
            health.note_step(time.perf_counter() - started_s, len(states) > 2)
        while on_the_way and on_the_way[0][0] <= now_s:
            for message in world.arrived(heapq.heappop(on_the_way)[2]):
                bus.publish(message)
        if health.due(now_s):
            bus.publish(health.message(now_s, bus))
