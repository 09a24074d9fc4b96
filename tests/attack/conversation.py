"""Attacks on the bytes from the flight controller: corrupted, repeated, withheld or forged frames, from a seed."""

import math
from typing import Protocol

import msgspec
import numpy as np
from pymavlink.dialects.v20 import common

from companion.core.messages import LinkRx


class Conversation(Protocol):
    """Changes the bytes of one reading of the link."""

    def change(self, message: LinkRx) -> LinkRx: ...


class Corrupted:
    """Loses, repeats, delays, cuts and flips readings. share: of the readings that are changed."""

    def __init__(self, seed: int, share: float) -> None:
        self._rng = np.random.default_rng(seed)
        self._share = share
        self._withheld = b""

    def change(self, message: LinkRx) -> LinkRx:
        rng, data = self._rng, message.data
        if rng.random() >= self._share or not data:
            return message
        match int(rng.integers(6)):
            case 0:  # lost
                data = b""
            case 1:  # repeated
                data = data + data
            case 2:  # delayed to a later reading
                data, self._withheld = self._withheld, data
            case 3:  # cut
                data = data[: int(rng.integers(len(data)))]
            case 4:  # flipped
                changed = bytearray(data)
                for index in rng.integers(len(data), size=int(rng.integers(1, 4))):
                    changed[index] ^= 1 << int(rng.integers(8))
                data = bytes(changed)
            case _:  # noise before it, with start bytes of frames
                data = rng.choice([0xFD, 0xFE, 0x00, 0x55], size=40).astype(np.uint8).tobytes() + data
        return msgspec.structs.replace(message, data=data)


class Forged:
    """Adds whole frames with the flight controller's ids and extreme content. rate_hz: of such frames."""

    def __init__(self, seed: int, rate_hz: float) -> None:
        self._rng = np.random.default_rng(seed)
        self._rate_hz = rate_hz
        self._last_s = math.nan
        self._mavlink = common.MAVLink(None, srcSystem=1, srcComponent=common.MAV_COMP_ID_AUTOPILOT1)
        self.sent: list[str] = []

    def change(self, message: LinkRx) -> LinkRx:
        elapsed_s = 0.0 if math.isnan(self._last_s) else message.stamp_s - self._last_s
        self._last_s = message.stamp_s
        if self._rng.random() >= 1.0 - math.exp(-self._rate_hz * elapsed_s):
            return message
        frame = self._frame(message.stamp_s)
        self.sent.append(frame.get_type())
        return msgspec.structs.replace(message, data=message.data + bytes(frame.pack(self._mavlink)))

    def _frame(self, now_s: float) -> common.MAVLink_message:
        rng = self._rng
        self._mavlink.seq = int(rng.integers(256))
        boot_ms = int(rng.choice([now_s * 1e3, 0, 1, rng.integers(2**31), 2**32 - 1]))
        far = [float(v) for v in rng.choice([0.0, 5.0, -20.0, 1e3, 1e9, math.nan, math.inf], size=6)]
        match int(rng.integers(12)):
            case 0:
                armed = int(rng.choice([0, common.MAV_MODE_FLAG_SAFETY_ARMED]))
                mode = int(rng.choice([0, 6 << 16, 4 << 16 | 3 << 24, 2**32 - 1]))
                return common.MAVLink_heartbeat_message(2, common.MAV_AUTOPILOT_PX4, armed | 1, mode, 4, 3)
            case 1:
                return common.MAVLink_local_position_ned_message(boot_ms, *far)
            case 2:
                q = rng.normal(size=4)
                q = [float(v) for v in q / np.linalg.norm(q)]
                return common.MAVLink_attitude_quaternion_message(boot_ms, *q, *far[:3])
            case 3:
                volt = int(rng.choice([0, 1000, 65000, 65535, 14800]))
                return common.MAVLink_sys_status_message(*[int(v) for v in rng.integers(2**31, size=3)],
                    500, volt, 100, int(rng.integers(-1, 101)), 0, 0, 0, 0, 0, 0)  # fmt: skip
            case 4:
                cells = [int(rng.choice([65535, 0, 65000, 1000]))] + [65535] * 9
                return common.MAVLink_battery_status_message(0, 0, 0, 0, cells, 100, 0, 0, int(rng.integers(-1, 101)))
            case 5:
                return common.MAVLink_timesync_message(int(rng.integers(2**60)), int(now_s * 1e9))
            case 6:
                altitude = int(rng.choice([0, 20_000, 2**31 - 1, 508_000]))
                return common.MAVLink_home_position_message(0, 0, altitude, *far[:3], [1.0, 0, 0, 0], 0, 0, 0)
            case 7:
                name = rng.choice(["COM_OF_LOSS_T", "COM_OBL_RC_ACT", "NAV_RCL_ACT", "COM_RCL_EXCEPT"])
                return common.MAVLink_param_value_message(str(name).encode(), far[0], int(rng.integers(12)), 900, 5)
            case 8:
                command = int(rng.choice([176, 400, 21, 22, 511, 512]))
                return common.MAVLink_command_ack_message(command, int(rng.integers(6)))
            case 9:
                text = b"\x1b[2J[/]" + bytes(int(v) for v in rng.integers(256, size=20))
                return _text(int(rng.integers(8)), text)
            case 10:
                return common.MAVLink_extended_sys_state_message(0, int(rng.integers(5)))
            case _:
                us, fix = int(rng.integers(2**40)), int(rng.integers(9))
                return common.MAVLink_gps_raw_int_message(us, fix, 0, 0, 0, 0, 65535, 65535, 65535, 255)


def _text(severity: int, text: bytes) -> common.MAVLink_message:
    return common.MAVLink_statustext_message(severity, text)
