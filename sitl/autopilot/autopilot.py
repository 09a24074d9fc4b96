"""The PX4 emulator: sensor frames in, motor commands out, MAVLink bytes on the side.

Pure: no socket, no clock; the time is the stamp of the frames. It behaves as PX4 1.17 does on a multirotor (the modules
of this package say which parts of PX4 they follow). Inside it is ENU/FLU, on the wire NED/FRD.
"""

from companion.core.arrays import Array
from companion.core.config import ConfigError
from sitl.airframe import Airframe, load_airframe
from sitl.autopilot.flight_stack import FlightStack
from sitl.autopilot.mavlink import Receiver
from sitl.autopilot.modes import FlightMode
from sitl.autopilot.parameters import load_parameters, parameter_file
from sitl.autopilot.position import PositionSetpoint
from sitl.autopilot.streams import ONBOARD_RATES_HZ, TelemetryStreams
from sitl.autopilot.telemetry import Telemetry
from sitl.autopilot.texts import Texts
from sitl.autopilot.wire import Writer
from sitl.imu_faults import ImuFault
from sitl.sensors import SensorFrame


class Autopilot:
    """One aircraft's flight controller: a `FlightStack` and its MAVLink link.

    airframe_name: of its file, which names that of the parameters; airframe: the aircraft if it differs from its file;
    seed: not used, the emulator draws no random numbers; rate_hz: of `step`;
    boot_offset_s and clock_drift_ppm: the boot clock reads boot_offset_s + t · (1 + drift) at simulated time t;
    stream_rates_hz: telemetry in place of PX4's onboard rates. Raises `companion.core.config.ConfigError` for an
    unknown airframe, and for parameters of another number of rotors.

    RC: eighteen or fewer channels in microseconds, AETR on 1 to 4 (high: right, forward, up, right), mode switch on
    ``rc_mode_channel`` (six positions, COM_FLTMODE1 to 6), kill switch on RC_MAP_KILL_SW.
    """

    def __init__(
        self,
        airframe_name: str,
        seed: int = 0,
        rate_hz: float = 250.0,
        boot_offset_s: float = 12.0,
        clock_drift_ppm: float = 0.0,
        stream_rates_hz: dict[str, float] | None = None,
        airframe: Airframe | None = None,
    ) -> None:
        self.parameters = load_parameters(airframe_name)
        airframe = airframe or load_airframe(airframe_name)
        if (count := self.parameters.integer("CA_ROTOR_COUNT")) != (rotors := len(airframe.hubs)):
            file = parameter_file(airframe_name)
            raise ConfigError(f"{file}: CA_ROTOR_COUNT = {count}: the airframe '{airframe.name}' has {rotors} rotors")
        system_id, component_id = self.parameters.integer("MAV_SYS_ID"), self.parameters.integer("MAV_COMP_ID")
        self._writer = Writer(system_id, component_id)
        self.texts = Texts(self._writer)
        self.stack = FlightStack(
            self.parameters, 1.0 / rate_hz, boot_offset_s, clock_drift_ppm, self.texts.put, airframe
        )
        telemetry = Telemetry(self.stack, self._writer)
        self.streams = TelemetryStreams(telemetry.functions, dict(stream_rates_hz or ONBOARD_RATES_HZ))
        self.receiver = Receiver(system_id, component_id, self.stack, self._writer, self.streams, self.texts)
        self.attitude, self.commander = self.stack.attitude, self.stack.commander
        rc = self.stack.rc
        self.rc_mode_channel, self.rc_mode_positions_us = rc.mode_channel, rc.mode_positions_us
        self.rc_neutral_us = rc.neutral_us

    @property
    def armed(self) -> bool:
        """Whether the aircraft is armed."""
        return self.stack.commander.armed

    @property
    def mode(self) -> FlightMode:
        """PX4's mode that flies, which a failsafe may have chosen in place of the intended one."""
        return self.stack.commander.mode

    @property
    def position_sp(self) -> PositionSetpoint | None:
        """The setpoint of the position controller; None while attitude or rates are flown."""
        return self.stack.position_sp

    @property
    def rc_us(self) -> list[int] | None:
        """The output of the RC receiver; None: RC is lost."""
        return self.stack.rc_us

    def set_rc(self, channels_us: list[int] | None) -> None:
        """Set the output of the RC receiver from now on; None: RC is lost."""
        self.stack.set_rc(channels_us)

    def set_gnss_refused(self, refused: bool) -> None:
        """Whether the estimator uses no fix, although the receiver reports one."""
        self.stack.observer.refuses_gnss = refused

    def set_imu_fault(self, fault: ImuFault | None) -> None:
        """Set what is wrong with HIGHRES_IMU from now on; None: nothing."""
        self.stack.imu_fault = fault

    def receive(self, data: bytes, now_s: float, instance: int = 0) -> None:
        """Take bytes that reached the autopilot at simulated time now_s [s] on its MAVLink link of this number."""
        self.receiver.receive(data, now_s, instance)

    def take_output(self) -> bytes:
        """Bytes to send since the last call."""
        return self._writer.take()

    def step(self, frame: SensorFrame) -> Array:
        """One sensor frame to motor commands 0..1 (a view that the next step overwrites)."""
        motors = self.stack.step(frame)
        now_s = frame.stamp_s
        self.receiver.run(now_s)
        self.texts.run(now_s)
        self.streams.run(now_s)
        return motors
