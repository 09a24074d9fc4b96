"""Real PX4 with the interface of the PX4 emulator: sensor frames in, motor commands out.

PX4 runs in lockstep with the world: each frame is one step of its clock, and the world waits for the motor commands
that PX4 computes from it. MAVLink goes between PX4 and the companion by UDP; in simulated time (`sitl.lockstep`) this
object carries the bytes, in real time the companion's process has the port itself.
"""

import math
import time
from pathlib import Path

import numpy as np

from companion.core.arrays import Array
from companion.core.config import ConfigError
from sitl.airframe import load_airframe
from sitl.autopilot.conversion import ORIGIN, frd
from sitl.autopilot.observer import GPS_POSITION
from sitl.autopilot.parameters import load_parameters
from sitl.autopilot.rc import rc_setup
from sitl.autopilot.udp import ONBOARD_PORTS, UdpEndpoint
from sitl.imu_faults import ImuFault
from sitl.px4.build import Px4Build, external_model, prepare_run
from sitl.px4.hil import CONNECT_S, HilLink, hil_sensor, rc_channels
from sitl.px4.process import Px4Ended, Px4Process
from sitl.px4.sensors import claimed_accuracy_m, hil_gps, magnetic_field, pressure_hpa
from sitl.px4.setpoint_delay import SetpointDelay
from sitl.px4.side_link import PAYLOAD_PORTS, SideLink
from sitl.scenario import IMU_FAULTS, LoadedScenario
from sitl.sensors import FRAME_S, SensorFrame
from sitl.wind import NormalNoise

# PX4 boots and its estimator settles in this time of the world before time 0, as fast as the machine allows.
WARM_UP_S = 20.0
# PX4's local frame begins where its estimator started, 17 cm above the ground at the centre of gravity, and wherever GNSS
# was then. Until this time before time 0 it is moved to the world's origin, so that its positions can be compared with
# the truth.
ORIGIN_UNTIL_S = 5.0
MAG_EVERY = 4  # frames: 62.5 Hz
RC_EVERY = 5
BATTERY_EVERY = 50
HEARTBEAT_EVERY = 250
ROTORS = 6
REFUSED_M = 60.0  # more than the 50 m to which PX4 1.17 uses a fix in flight (`GnssChecks::runSimplifiedChecks`)


def check_parameters(process: Px4Process, source: Path, requested: dict[str, int | float]) -> None:
    """Raises `ConfigError` when PX4's start-up script has reported one of these names as unknown."""
    for name in process.unknown_parameters():
        if name in requested:
            raise ConfigError(f"{source}: fcu_parameters.{name}: this PX4 has no such parameter")


class Px4Autopilot:
    """PX4 as the flight controller of a simulated world.

    run: the folder it runs in, with its own log afterwards; carry_mavlink: `receive` and `take_output` move the
    companion's bytes, setpoints after the scenario's ``command_delay_s``; speed: from time 0 on the world moves at most this many times as fast as the clock. Raises
    `ConfigError` for a mistake of the user, `Px4Ended` from `step` when PX4 ends.
    """

    def __init__(
        self,
        build: Px4Build,
        loaded: LoadedScenario,
        run: Path,
        seed: int,
        instance: int = 0,
        carry_mavlink: bool = False,
        speed: float = math.inf,
    ) -> None:
        scenario = loaded.scenario
        if wrong := next((fault.kind for fault in scenario.fault if fault.kind in IMU_FAULTS), None):
            raise ConfigError(f"{loaded.path}: fault '{wrong}' needs the PX4 emulator")
        model = external_model(scenario.airframe)
        self._clock = scenario.fcu_clock
        self._gnss = scenario.sensors.gnss
        self._accuracy_m = claimed_accuracy_m(self._gnss)
        self._noise = NormalNoise(np.random.default_rng(seed))
        self._cells = load_airframe(scenario.airframe, scenario.airframe_changes).battery.cells
        delay_ms = {"EKF2_GPS_DELAY": float(round(1000 * scenario.sensors.gnss.delay_s))}
        etc = prepare_run(build, run, model, delay_ms | scenario.fcu_parameters)
        self._source, self._requested = loaded.path, scenario.fcu_parameters
        self._has_position = int(scenario.fcu_parameters.get("EKF2_GPS_CTRL", GPS_POSITION)) & GPS_POSITION != 0
        self._hil = HilLink(instance)
        self._side = SideLink(PAYLOAD_PORTS, instance)
        px4_port, companion_port = ONBOARD_PORTS
        self._mavlink = UdpEndpoint(companion_port + instance, px4_port + instance) if carry_mavlink else None
        self._setpoints = SetpointDelay(scenario.command_delay_s)
        self._process = Px4Process(build, run, etc, model, instance)
        self._frames = 0
        self._speed, self._due_s = speed, -math.inf
        self._motors: Array = np.zeros(ROTORS)
        self.armed = False
        rc = rc_setup(load_parameters(scenario.airframe))
        self.rc_mode_channel, self.rc_mode_positions_us = rc.mode_channel, rc.mode_positions_us
        self.rc_neutral_us = rc.neutral_us
        self.rc_us: list[int] | None = list(rc.neutral_us)
        try:
            self._wait_for_connection()
        except Px4Ended:
            self.close()
            raise

    def _wait_for_connection(self) -> None:
        for _ in range(round(CONNECT_S / 0.2)):
            if self._hil.connected(0.2):
                return
            self._process.check()
        raise Px4Ended(f"PX4 has not connected to the simulator within {CONNECT_S:g} s: {self._process.last_line()}")

    def check_parameters(self) -> None:
        """Raises `ConfigError` for a name in the scenario's fcu_parameters that this PX4 does not have."""
        check_parameters(self._process, self._source, self._requested)

    def boot_us(self, now_s: float) -> int:
        """PX4's clock at a time of the world [µs]."""
        since_s = (now_s + WARM_UP_S) * (1.0 + self._clock.drift_ppm * 1e-6)
        return round((self._clock.boot_offset_s + since_s) * 1e6)

    def set_rc(self, channels_us: list[int] | None) -> None:
        """Set the RC channels from now on; None: RC is lost."""
        self.rc_us = None if channels_us is None else list(channels_us)

    def set_gnss_refused(self, refused: bool) -> None:
        """Let the receiver state an accuracy that EKF2 refuses in flight."""
        self._accuracy_m = (REFUSED_M, REFUSED_M) if refused else claimed_accuracy_m(self._gnss)

    def set_imu_fault(self, fault: ImuFault | None) -> None:
        """Real PX4 sends what it measures: raises `ConfigError` for a fault of its stream."""
        if fault is not None:
            raise ConfigError("faults of HIGHRES_IMU need the PX4 emulator")

    def receive(self, data: bytes, now_s: float, instance: int = 0) -> None:
        """Bytes of the companion for PX4."""
        if self._mavlink is not None and (passed := self._setpoints.put(data, now_s)):
            self._mavlink.send(passed)

    def take_output(self) -> bytes:
        """Bytes of PX4 for the companion."""
        return self._mavlink.receive() if self._mavlink is not None else b""

    def step(self, frame: SensorFrame) -> Array:
        """One sensor frame to six motor commands 0..1; raises `Px4Ended`."""
        if self._mavlink is not None and (due := self._setpoints.due(frame.stamp_s)):
            self._mavlink.send(due)
        time_us = self.boot_us(frame.stamp_s)
        count, writer = self._frames, self._hil.writer
        if frame.gnss is not None:
            writer.send("HIL_GPS", *hil_gps(time_us, frame.gnss, self._accuracy_m))
        if count % RC_EVERY == 0 and self.rc_us is not None:
            writer.send("RC_CHANNELS", *rc_channels(time_us // 1000 & 0xFFFFFFFF, self.rc_us))
        mag = magnetic_field(frame.q_WB, self._noise) if count % MAG_EVERY == 0 else None
        height_m = frame.baro_height_m
        pressure = None if height_m is None else pressure_hpa(ORIGIN[2] + height_m)
        writer.send("HIL_SENSOR", *hil_sensor(time_us, frd(frame.accel_B), frd(frame.gyro_B), mag, pressure))
        if count % BATTERY_EVERY == 0:
            self._side.battery(frame.battery_voltage_v, 0.0, frame.battery_remaining, self._cells)
        if count % HEARTBEAT_EVERY == 0:
            self._side.heartbeat()
            if self._has_position and frame.stamp_s < -ORIGIN_UNTIL_S:
                self._side.origin(*ORIGIN)
            self._process.check()
        self._frames += 1
        if frame.stamp_s >= 0.0:
            self._wait()
        controls = self._hil.step()
        if controls is not None:
            self.armed = controls.armed
            self._motors = np.clip(np.nan_to_num(controls.motors, nan=0.0), 0.0, 1.0)
        return self._motors

    def _wait(self) -> None:
        """Limit the speed: PX4's MAVLink threads run by the wall clock and need a part of each step."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            time.sleep(self._due_s - now_s)
        self._due_s = max(self._due_s, now_s) + FRAME_S / self._speed

    def close(self) -> None:
        """End PX4 and release the ports."""
        self._process.stop()
        for end in (self._hil, self._side, self._mavlink):
            if end is not None:
                end.close()
