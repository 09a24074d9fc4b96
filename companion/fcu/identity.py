"""Which flight controller flies, and with which parameters: for the log, so that a flight can be explained later.

After each connection the node requests AUTOPILOT_VERSION and, one at a time, the parameters of the table in
`companion.core.px4_parameters`, which preflight checks; those of `ParameterWatch` arrive by its own requests. It
requests on the ground only and at most `TRIES` times; what does not arrive is missing in `FcuInfo`. A PARAM_VALUE that
another station requested counts, too. While `fcu.hardware_id` is set the version is requested every second until it
arrives, armed or not, because without it no flight begins.
"""

import math
import struct
from collections.abc import Callable, Container

from pymavlink.dialects.v20 import common

from companion.core.messages import FcuInfo
from companion.core.px4_parameters import rules
from companion.core.vehicle import Vehicle
from companion.fcu.link.codec import AUTOPILOT_COMPONENT, OutgoingMessage
from companion.fcu.link.decoded import AutopilotVersion, ParamValue
from companion.fcu.link.params import decode_value, read_request

REQUEST_S = 0.03  # between two requests: all arrive in the second between connecting and arming
TRIES = 3  # for the version and for each parameter
VERSION_S = 1.0  # between two requests for a version without which no flight begins
COMMIT_BYTES = 5  # of flight_custom_version; PX4 puts its vendor version into the last three of the eight bytes


class Identity:
    """Collects version and parameters of one flight controller."""

    def __init__(self, vehicle: Vehicle, send: Callable[[OutgoingMessage], None], watched: Container[str] = ()) -> None:
        """send: takes a pymavlink message; watched: the parameters that `ParameterWatch` requests."""
        self._names = [rule.name for rule in rules(vehicle, None, vehicle.fcu.send_odometry)]
        self._to_request = [name for name in self._names if name not in watched]
        self._fcu = vehicle.fcu
        self._send = send
        self.reset()

    def reset(self) -> None:
        """Another flight controller, or the same one restarted: read all again."""
        self._version = ""
        self._commit = ""
        self._hardware_id = 0
        self._values: dict[str, int | float] = {}
        self._tries: dict[str, int] = {}
        self._due_s = self._version_due_s = -math.inf
        self._published: FcuInfo | None = None
        self._changed = True  # since `step` last looked

    @property
    def problem(self) -> str:
        """Why no flight may begin with this flight controller by this vehicle file, "" when one may."""
        if self._version:
            return self._fcu.other_hardware(self._hardware_id)
        return "its hardware id is not known yet" if self._fcu.hardware_id else ""

    def put_version(self, m: AutopilotVersion) -> None:
        """Take the version, e.g. "1.17.0 release", and the first digits of PX4's commit."""
        major, minor, patch, kind = struct.pack(">I", m.flight_sw_version & 0xFFFFFFFF)
        self._version = f"{major}.{minor}.{patch} {_release(kind)}"
        self._commit = bytes(reversed(m.flight_custom_version))[:COMMIT_BYTES].hex()
        self._hardware_id = m.uid
        self._changed = True

    def put_parameter(self, m: ParamValue) -> None:
        """Take the value of a parameter of the table."""
        name = m.param_id.split(b"\0", 1)[0].decode("ascii", "replace")
        if name in self._names:
            try:
                self._values[name] = decode_value(m.param_value, m.param_type)
                self._changed = True
            except (ValueError, struct.error):
                return  # counted where the watched parameters are read

    def step(self, armed: bool, now_s: float) -> FcuInfo | None:
        """Request the next missing item on the ground; returns what is known when it is complete and has changed.

        A version that the vehicle file needs is requested in flight, too.
        """
        if self._fcu.hardware_id and not self._version and now_s >= self._version_due_s:
            self._version_due_s = now_s + VERSION_S
            self._request("")
        if not armed and (missing := self._missing()):
            if now_s >= self._due_s:
                self._due_s = now_s + REQUEST_S
                self._request(missing[0])
            return None
        if not self._changed:
            return None
        self._changed = False
        info = FcuInfo(
            stamp_s=now_s,
            version=self._version,
            commit=self._commit,
            hardware_id=self._hardware_id,
            parameters={name: float(value) for name, value in sorted(self._values.items())},
        )
        if self._published is not None and _content(info) == _content(self._published):
            return None
        self._published = info
        return info

    def _missing(self) -> list[str]:
        """What is unknown and has tries left; "" stands for the version. The least requested first."""
        unknown = ([] if self._version else [""]) + [name for name in self._to_request if name not in self._values]
        return sorted((n for n in unknown if self._tries.get(n, 0) < TRIES), key=lambda n: self._tries.get(n, 0))

    def _request(self, name: str) -> None:
        self._tries[name] = self._tries.get(name, 0) + 1
        if name:
            self._send(read_request(name, self._fcu.autopilot_system_id))
            return
        number = float(common.MAVLINK_MSG_ID_AUTOPILOT_VERSION)
        self._send(
            common.MAVLink_command_long_message(
                self._fcu.autopilot_system_id,
                AUTOPILOT_COMPONENT,
                common.MAV_CMD_REQUEST_MESSAGE,
                0,
                number,
                0,
                0,
                0,
                0,
                0,
                0,
            )
        )


def _content(info: FcuInfo) -> tuple[str, str, int, dict[str, float]]:
    return info.version, info.commit, info.hardware_id, info.parameters


def _release(kind: int) -> str:
    """FIRMWARE_VERSION_TYPE as PX4 uses it."""
    return {0: "development", 64: "alpha", 128: "beta", 192: "release candidate", 255: "release"}.get(kind, "unknown")
