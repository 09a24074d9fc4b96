"""The flight controller as seen from the ground, through MAVSDK 4: identity, status, parameters.

The only module of the stack that uses MAVSDK; it is imported when a preflight connects, because an aircraft need not
have MAVSDK. MAVSDK gets its bytes from the stack's own link (`raw://`): the same URLs, the same errors, the same lock on a
serial port, and the time at which an answer to TIMESYNC arrived. MAVSDK 4.1 itself would drop PX4's answers, because
PX4 1.17 leaves their target fields unset.

Every call here returns: MAVSDK's own calls have timeouts except for a few, and those run in a thread that is abandoned
when it does not return.
"""

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, TypeVar

from mavsdk.connection_result import ConnectionResult
from mavsdk.exceptions import MavsdkError
from mavsdk.logging import log_subscribe
from mavsdk.mavsdk import Configuration, Mavsdk
from mavsdk.plugins.info import Info
from mavsdk.plugins.param import Param, ParamError, ParamResult
from mavsdk.plugins.telemetry import FixType, Telemetry
from pymavlink.dialects.v20 import common

from companion.core.clock import monotonic_s
from companion.fcu.batteries import Batteries
from companion.fcu.guards.plausible import Plausibility
from companion.fcu.link.link import Link, open_link
from companion.fcu.link.sender import Sender
from companion.fcu.status import VehicleStatus
from companion.fcu.timesync import TimeSync
from companion.preflight.imu import ImuWatch
from companion.preflight.observation import LinkFailed, Number, Observation, Unfit, within

T = TypeVar("T")

# MAV_COMP_ID_USER1 of a separate system. Not the companion's ids, because PX4 and the stack watch their heartbeat, and
# not a ground station's, because PX4 would take its end for a lost data link.
SYSTEM_ID, COMPONENT_ID = 245, 25
AUTOPILOT = common.MAV_COMP_ID_AUTOPILOT1
POLL_S = 0.05  # also between two requests of a time synchronisation
TURN_S = 0.005  # longest wait of bytes that are to be sent
VERSION_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 10.0  # of one parameter; MAVSDK asks six times, 0.5 s apart
LIST_TIMEOUT_S = 40.0  # of all parameters, over a slow line
CLOSE_TIMEOUT_S = 5.0


class GroundConnection:
    """A connection to one autopilot. Use it as a context manager; `stuck` is True when a call of MAVSDK hangs."""

    def __init__(
        self, url: str, autopilot_system_id: int, timeout_s: float, reference_voltage_v: float | None = None
    ) -> None:
        """Connect and wait for the autopilot's heartbeat.

        reference_voltage_v: of the thrust model; battery modules that cannot be this aircraft's are then left out, as in
        flight. None: every module counts.

        Raises `ConfigError` for a link that cannot be opened, and `LinkFailed` when no autopilot is there.
        """
        self.stuck = False
        self._types: dict[str, type[Number]] = {}
        link = open_link(url, sender=Sender(autopilot_system_id, AUTOPILOT))
        log_subscribe(lambda *_: True)  # MAVSDK's own log is for its developers
        self._mavsdk = Mavsdk(Configuration.create_manual(SYSTEM_ID, COMPONENT_ID, False))
        self._pump = _Pump(link, self._mavsdk, autopilot_system_id, reference_voltage_v)
        try:
            self.system = self._find(url, autopilot_system_id, timeout_s)
            self._param = Param(self.system)
            self._telemetry = Telemetry(self.system)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "GroundConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the device; calls that hang are abandoned."""
        self._pump.stop()
        if not self.stuck:
            self._guarded(CLOSE_TIMEOUT_S, self._mavsdk.destroy)

    def _guarded(self, timeout_s: float, work: Callable[[], T]) -> T | None:
        try:
            return within(timeout_s, work)
        except TimeoutError:
            self.stuck = True
            return None

    def _find(self, url: str, system_id: int, timeout_s: float) -> Any:
        until_s = monotonic_s() + timeout_s
        others: set[int] = set()
        while monotonic_s() < until_s:
            for system in self._mavsdk.get_systems():
                if system.get_system_id() == system_id and system.has_autopilot():
                    return system
                others.add(system.get_system_id())
            time.sleep(POLL_S)
        if others:
            seen = ", ".join(map(str, sorted(others)))
            raise LinkFailed(
                f"{url}: received system {seen}, but no autopilot of system {system_id} (fcu.autopilot_system_id)"
            )
        if self._pump.received:
            raise LinkFailed(
                f"{self._pump.received} bytes received on {url}, but no autopilot: is it MAVLink, and this baud rate?"
            )
        trouble = f": {self._pump.trouble}" if self._pump.trouble else ""
        raise LinkFailed(f"nothing received on {url} in {timeout_s:g} s{trouble}")

    # --- status ------------------------------------------------------------------------------------------------

    def observe(self, duration_s: float, imu_rate_hz: float = 0.0) -> Observation:
        """Listen for a while, with a round trip of TIMESYNC twenty times a second.

        imu_rate_hz: at which HIGHRES_IMU is requested, as the stack does it in flight; 0: it is not.
        """
        texts = self._telemetry.subscribe_status_text(self._pump.take_text)
        if imu_rate_hz > 0.0:
            self._pump.request_imu(imu_rate_hz)
        self._pump.synchronise(True)
        time.sleep(duration_s)
        self._pump.synchronise(False)
        self._telemetry.unsubscribe_status_text(texts)
        seen = self._pump.observation(monotonic_s())
        self._add_telemetry(seen)
        self._add_version(seen)
        return seen

    def _add_telemetry(self, seen: Observation) -> None:
        health = self._telemetry.health()
        seen.health = {name: value for name, value in vars(health).items() if isinstance(value, bool)}
        gnss = self._telemetry.gps_info()
        seen.satellites, seen.gnss_fix = gnss.num_satellites, FixType(gnss.fix_type).name
        seen.gnss_uncertainty_m = self._telemetry.raw_gps().horizontal_uncertainty_m

    def _add_version(self, seen: Observation) -> None:
        info, until_s = Info(self.system), monotonic_s() + VERSION_TIMEOUT_S
        while seen.firmware is None and monotonic_s() < until_s:
            with contextlib.suppress(MavsdkError):  # "not received yet": MAVSDK requests it by itself
                version = info.get_version()
                seen.hardware = info.get_identification().legacy_uid
                seen.firmware = version.flight_sw_major, version.flight_sw_minor, version.flight_sw_patch
                seen.release = version.flight_sw_version_type.name

    # --- parameters -----------------------------------------------------------------------------------------------

    def armed(self) -> bool:
        """Whether the motors may turn; True when it is not known."""
        return not self.system.is_connected() or bool(self._telemetry.armed())

    def read(self, names: Iterable[str]) -> dict[str, Number]:
        """The parameters of these names, without those that the flight controller does not know.

        Raises `LinkFailed` when it does not answer.
        """
        values: dict[str, Number] = {}
        silent: list[str] = []
        for name in names:
            if silent:  # the first silence takes 3 s; the list of all parameters shows sooner whether the others exist
                silent.append(name)
                continue
            try:
                values[name] = self._read(name)
            except ParamError as error:
                if error.result not in (ParamResult.TIMEOUT, ParamResult.DOES_NOT_EXIST):
                    raise LinkFailed(f"parameter {name}: {_as_text(error.result)}") from None
                silent.append(name)
        if silent:
            listed = self._list()
            values |= {name: listed[name] for name in silent if name in listed}
        return values

    def write(self, name: str, value: Number) -> Number:
        """Set one parameter, read it back and return it; raises `LinkFailed` with one line."""
        if self.armed():
            raise LinkFailed(f"{name}: not set: the aircraft is armed")
        setter = self._param.set_param_int if isinstance(value, int) else self._param.set_param_float
        try:
            within(READ_TIMEOUT_S, lambda: setter(name, value))
            return self._read(name)
        except TimeoutError as error:
            self.stuck = True
            raise LinkFailed(f"{name}: not set: {error}") from None
        except ParamError as error:
            raise LinkFailed(f"{name}: not set: {_as_text(error.result)}") from None

    def _read(self, name: str) -> Number:
        def read() -> Number:
            kind = self._types.get(name, int)
            try:
                return self._get(name, kind)
            except ParamError as error:
                if error.result != ParamResult.WRONG_TYPE:
                    raise
            self._types[name] = other = float if kind is int else int
            return self._get(name, other)

        if self.stuck:
            raise LinkFailed("the flight controller stopped answering")
        try:
            return within(READ_TIMEOUT_S, read)
        except TimeoutError as error:
            self.stuck = True
            raise LinkFailed(f"parameter {name}: {error}") from None

    def _get(self, name: str, kind: type[Number]) -> Number:
        return int(self._param.get_param_int(name)) if kind is int else float(self._param.get_param_float(name))

    def _list(self) -> dict[str, Number]:
        """All parameters. After a list that was cut short MAVSDK 4.1 does not answer again: then this link is `stuck`."""
        listed = None if self.stuck else self._guarded(LIST_TIMEOUT_S, self._param.get_all_params)
        if listed is None or not (listed.int_params or listed.float_params):
            self.stuck = True
            raise LinkFailed("the flight controller does not send its parameters")
        return {param.name: param.value for param in (*listed.int_params, *listed.float_params)}


class _Pump:
    """Moves bytes between the link and MAVSDK in a thread of its own, and reads the messages on the way."""

    def __init__(self, link: Link, mavsdk: Mavsdk, autopilot_system_id: int, reference_voltage_v: float | None) -> None:
        self.trouble = ""
        self.received = 0  # bytes
        self._link, self._mavsdk, self._system_id = link, mavsdk, autopilot_system_id
        self._vehicle, self._sync = VehicleStatus(), TimeSync()
        if reference_voltage_v is not None:
            self._vehicle.batteries = Batteries(Plausibility(reference_voltage_v).is_battery)
        self._type, self._autopilot = 0, 0
        self._clock_offset_s: float | None = None
        self._imu = ImuWatch()
        self._texts: dict[str, None] = {}
        self._rtts_s: list[float] = []
        self._offsets_s: list[float] = []
        self._parser = common.MAVLink(None, SYSTEM_ID, COMPONENT_ID)
        self._parser.robust_parsing = True
        self._waiting: deque[bytes] = deque()
        self._synchronising = False
        self._stop = threading.Event()
        if mavsdk.add_any_connection("raw://") != ConnectionResult.SUCCESS:
            raise LinkFailed("MAVSDK does not accept a raw connection")
        mavsdk.subscribe_raw_bytes_to_be_sent(self._waiting.append)
        self._thread = threading.Thread(target=self._run, name="preflight link", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; it closes the link."""
        self._stop.set()
        self._thread.join(1.0)

    def synchronise(self, on: bool) -> None:
        """Begin or end sending TIMESYNC requests."""
        self._synchronising = on

    def take_text(self, text: Any, _user: Any) -> None:
        """Keep a text of the flight controller; MAVSDK's callback."""
        self._texts[text.text.strip()] = None

    def request_imu(self, rate_hz: float) -> None:
        """Request HIGHRES_IMU, and compare it with the attitude from now on."""
        self._imu = ImuWatch()
        command, kind = common.MAV_CMD_SET_MESSAGE_INTERVAL, common.MAVLINK_MSG_ID_HIGHRES_IMU
        request = common.MAVLink_command_long_message(
            self._system_id, AUTOPILOT, command, 0, kind, 1e6 / rate_hz, 0, 0, 0, 0, 0
        )
        self._waiting.append(request.pack(self._parser))

    def _run(self) -> None:
        request_s = -math.inf
        while not self._stop.is_set():
            while self._waiting:
                self._link.write(self._waiting.popleft())
            now_s = monotonic_s()
            if self._synchronising and now_s - request_s >= POLL_S:
                request_s = now_s
                self._link.write(common.MAVLink_timesync_message(0, self._sync.request(now_s)).pack(self._parser))
            data = self._link.read(TURN_S)
            self.trouble = self._link.trouble
            self.received += len(data)
            if data:
                self._read_messages(data, monotonic_s())
                self._mavsdk.pass_received_raw_bytes(data)
        self._link.close()

    def _read_messages(self, data: bytes, now_s: float) -> None:
        try:
            messages = self._parser.parse_buffer(data) or []
        except Exception:  # noqa: BLE001 (any failure of the parser on corrupted bytes; MAVSDK parses them by itself)
            return
        for message in messages:
            if message.get_srcSystem() == self._system_id and message.get_srcComponent() == AUTOPILOT:
                self._take(message, now_s)

    def _take(self, m: Any, now_s: float) -> None:
        match m.get_type():
            case "TIMESYNC":
                if m.tc1 and self._sync.answer(m.tc1, m.ts1, now_s):
                    self._rtts_s.append(now_s - m.ts1 * 1e-9)
                    self._offsets_s.append(0.5 * (now_s + m.ts1 * 1e-9) - m.tc1 * 1e-9)
            case "HIGHRES_IMU":
                self._imu.take_imu(m)
            case "ATTITUDE_QUATERNION":
                self._imu.take_attitude(m)
            case "HEARTBEAT":
                self._vehicle.put_heartbeat(m, now_s)
                self._type, self._autopilot = m.type, m.autopilot
            case "SYSTEM_TIME":
                if m.time_unix_usec > 0:
                    self._clock_offset_s = time.time() - m.time_unix_usec * 1e-6
            case "SYS_STATUS":
                self._vehicle.put_sys_status(m, now_s)
            case "BATTERY_STATUS":
                self._vehicle.put_battery_status(m, now_s)
            case "EXTENDED_SYS_STATE":
                self._vehicle.put_extended_sys_state(m, now_s)
            case "RC_CHANNELS":
                self._vehicle.put_rc_channels(m, now_s)

    def _unfit(self) -> Unfit:
        return Unfit.VEHICLE if self._autopilot == common.MAV_AUTOPILOT_PX4 else Unfit.AUTOPILOT

    def observation(self, now_s: float) -> Observation:
        """What the messages so far say."""
        vehicle = self._vehicle
        battery = vehicle.batteries.lowest(now_s)
        return Observation(
            armed=vehicle.armed,
            landed=vehicle.landed(now_s),
            mode=vehicle.mode,
            rc_ok=vehicle.rc_ok(now_s),
            battery_voltage_v=battery.voltage_v,
            battery_remaining=battery.remaining,
            wrong=vehicle.wrong,
            unfit=self._unfit() if vehicle.wrong else None,
            unhealthy=vehicle.unhealthy(now_s),
            vehicle_type=self._type,
            clock_offset_s=self._clock_offset_s,
            imu_rate_hz=self._imu.rate_hz,
            imu_fault=self._imu.fault,
            imu_problem=self._imu.problem,
            texts=list(self._texts),
            rtts_s=self._rtts_s,
            offsets_s=self._offsets_s,
        )


def _as_text(result: IntEnum) -> str:
    return str(result.name).lower().replace("_", " ")
