"""A scripted PX4 for the tests of the FCU node; it uses pymavlink only, a decoder independent of the one under test."""

import math
import random

from pymavlink.dialects.v20 import common

from companion.core.messages import LinkRx, LinkTx
from companion.fcu.link import params
from companion.fcu.link.framing import CURRENT_MODE, checksum

GOOD_PARAMETERS = {
    "COM_OF_LOSS_T": 0.5, "COM_OBL_RC_ACT": 0, "NAV_RCL_ACT": 3, "COM_RCL_EXCEPT": 0, "CBRK_SUPPLY_CHK": 0,
    "COM_RC_OVERRIDE": 3, "COM_RC_IN_MODE": 0, "RC_MAP_KILL_SW": 7, "NAV_DLL_ACT": 0, "COM_LOW_BAT_ACT": 2,
    "COM_FLTMODE1": 8, "COM_FLTMODE2": 8, "COM_FLTMODE3": 1, "COM_FLTMODE4": 1, "COM_FLTMODE5": 4, "COM_FLTMODE6": 2,
    "GF_ACTION": 2, "GF_PREDICT": 0, "FD_FAIL_R": 60, "FD_FAIL_P": 60, "THR_MDL_FAC": 0.0, "RTL_RETURN_ALT": 60.0,
    "COM_ARM_WO_GPS": 1, "EKF2_EV_CTRL": 1, "COM_FLT_TIME_MAX": -1, "COM_FLTT_LOW_ACT": 0, "COM_WIND_MAX_ACT": 0,
    "COM_ACT_FAIL_ACT": 0, "COM_IMB_PROP_ACT": 0, "RC_MAP_OFFB_SW": 0, "RC_MAP_RETURN_SW": 0, "RC_MAP_LOITER_SW": 0,
    "RC_MAP_ARM_SW": 0, "RC_MAP_TERM_SW": 0, "RC_MAP_FLTM_BTN": 0,
}  # fmt: skip
SYS_STATUS = common.MAVLINK_MSG_ID_SYS_STATUS
GLOBAL_POSITION = common.MAVLINK_MSG_ID_GLOBAL_POSITION_INT
ODOMETRY = common.MAVLINK_MSG_ID_ODOMETRY
ALTITUDE = common.MAVLINK_MSG_ID_ALTITUDE
GPS_RAW_INT = common.MAVLINK_MSG_ID_GPS_RAW_INT
ATTITUDE = common.MAVLINK_MSG_ID_ATTITUDE_QUATERNION
POSITION = common.MAVLINK_MSG_ID_LOCAL_POSITION_NED
RC_CHANNELS = common.MAVLINK_MSG_ID_RC_CHANNELS
BATTERY = common.MAVLINK_MSG_ID_BATTERY_STATUS
HOME = common.MAVLINK_MSG_ID_HOME_POSITION
IMU = common.MAVLINK_MSG_ID_HIGHRES_IMU
LANDED = common.MAVLINK_MSG_ID_EXTENDED_SYS_STATE
HEXAROTOR, PX4 = common.MAV_TYPE_HEXAROTOR, common.MAV_AUTOPILOT_PX4


def imu(ms, force=(0.1, 0.2, -9.8), rates=(0.01, 0.02, 0.03), updated=0x3F):
    """HIGHRES_IMU of a hover, FRD."""
    return common.MAVLink_highres_imu_message(ms * 1000, *force, *rates, 0, 0, 0, 0, 0, 0, 0, updated)


class Peer:
    """Moves an FcuNode through simulated time and answers as the flight controller.

    received: every message that the node sent, decoded, as (time, message); out: every message that it published, as
    (time, message). `results` maps a MAV_CMD to the MAV_RESULT of its answer; a list has one entry per answer (None: no
    answer).
    """

    def __init__(self, node, system=1, boot_s=90.0, delay_s=0.001):
        self.node = node
        self.now_s = 100.0
        self.boot_at_s = self.now_s - boot_s
        self.delay_s = delay_s
        self.mav = common.MAVLink(None, srcSystem=system, srcComponent=1)
        self.parser = common.MAVLink(None)
        self.parser.robust_parsing = True
        self.received, self.out = [], []
        self.results = {}
        self.streams = {}  # message id: interval s
        self.stream_due_s = {}
        self.grant_streams = True
        self.answer_timesync = True
        self.answers_with_heartbeat = False  # at once; else the next is up to a second away
        self.silent = False
        self.armed, self.custom_mode = False, 3 << 16
        self.autopilot, self.type = PX4, HEXAROTOR
        self.content = {}  # message id: function of boot ms
        self.parameters = dict(GOOD_PARAMETERS)  # a request for a missing one gets no answer, as with PX4
        self.heartbeat_due_s = self.now_s
        self.random = random.Random(1)

    @property
    def boot_ms(self):
        return int((self.now_s - self.boot_at_s) * 1000 + 1e-6)

    def frame(self, message):
        data = message.pack(self.mav)
        self.mav.seq = (self.mav.seq + 1) % 256
        return data

    def deliver(self, *messages):
        """Deliver MAVLink messages to the node now; returns the messages that the node published."""
        if self.silent:
            return []
        return self.feed(b"".join(self.frame(m) for m in messages))

    def feed(self, data):
        return self.collect(self.node.handle(LinkRx(stamp_s=self.now_s, data=data), self.now_s))

    def deliver_current_mode(self, number, intended=0):
        """CURRENT_MODE, which this version of pymavlink does not have."""
        payload = number.to_bytes(4, "little") + intended.to_bytes(4, "little") + bytes(1)
        head = bytes((len(payload), 0, 0, self.mav.seq, 1, 1, CURRENT_MODE & 0xFF, CURRENT_MODE >> 8, 0))
        self.mav.seq = (self.mav.seq + 1) % 256
        return self.feed(b"\xfd" + head + payload + checksum(head + payload, 193).to_bytes(2, "little"))

    def publish(self, message):
        """Deliver a bus message (Setpoint, FcuCommand) to the node; returns the messages that it published."""
        return self.collect(self.node.handle(message, self.now_s))

    def collect(self, published):
        published = list(published)
        self.out += [(self.now_s, m) for m in published]
        for m in published:
            if type(m) is LinkTx:
                for decoded in self.parser.parse_buffer(m.data) or []:
                    assert decoded.get_type() != "BAD_DATA", decoded
                    self.received.append((self.now_s, decoded))
                    published += self.react(decoded)
        return published

    def react(self, m):
        if m.get_type() == "COMMAND_LONG":
            if m.command == common.MAV_CMD_SET_MESSAGE_INTERVAL and self.grant_streams and not self.silent:
                if m.param2 < 0:
                    self.streams.pop(int(m.param1), None)
                else:
                    self.streams[int(m.param1)] = m.param2 * 1e-6
            result = self.results.get(m.command, common.MAV_RESULT_ACCEPTED)
            if isinstance(result, list):
                result = result.pop(0) if result else None
            if result is not None:
                beat = self.answers_with_heartbeat and m.command == common.MAV_CMD_REQUEST_MESSAGE and m.param1 == 0
                return self.deliver(self.ack(m.command, result), *([self.heartbeat()] if beat else []))
        if m.get_type() == "PARAM_REQUEST_READ" and m.param_id in self.parameters:
            value = self.parameters[m.param_id]
            kind = params.REAL32 if isinstance(value, float) else params.INT32
            field = params.encode_value(value, kind)
            return self.deliver(common.MAVLink_param_value_message(m.param_id.encode(), field, kind, 1000, 1))
        if m.get_type() == "TIMESYNC" and m.tc1 == 0 and self.answer_timesync:
            fcu_ns = round((self.now_s + self.delay_s - self.boot_at_s) * 1e9)
            answer = self.frame(common.MAVLink_timesync_message(fcu_ns, m.ts1))
            if not self.silent:
                arrival_s = self.now_s + 2 * self.delay_s
                return self.collect(self.node.handle(LinkRx(stamp_s=arrival_s, data=answer), arrival_s))
        return []

    def ack(self, command, result):
        return common.MAVLink_command_ack_message(command, result, 0, 0, 1, 191)

    def heartbeat(self):
        base = 1 | (128 if self.armed else 0)
        return common.MAVLink_heartbeat_message(self.type, self.autopilot, base, self.custom_mode, 4, 3)

    def run(self, seconds, step_s=0.01):
        """Advance: heartbeats at 1 Hz, granted streams, node steps at 100 Hz; returns the published messages."""
        begin = len(self.out)
        for _ in range(round(seconds / step_s)):
            self.now_s = round(self.now_s + step_s, 6)
            if self.now_s >= self.heartbeat_due_s:
                self.heartbeat_due_s += 1.0
                self.deliver(self.heartbeat())
            for number, interval_s in list(self.streams.items()):
                if self.now_s >= self.stream_due_s.get(number, 0.0) - 1e-9:
                    self.stream_due_s[number] = max(self.stream_due_s.get(number, 0.0) + interval_s, self.now_s)
                    if message := self.make(number):
                        self.deliver(message)
            self.collect(self.node.step(self.now_s))
        return [m for _, m in self.out[begin:]]

    def make(self, number):
        if number in self.content:
            return self.content[number](self.boot_ms)
        if number == ATTITUDE:
            return common.MAVLink_attitude_quaternion_message(self.boot_ms, 1, 0, 0, 0, 0.1, 0.2, 0.3)
        if number == POSITION:
            return common.MAVLink_local_position_ned_message(self.boot_ms, 1, 2, -3, 4, 5, -6)
        if number == HOME:
            q = [1.0, 0, 0, 0]
            return common.MAVLink_home_position_message(0, 0, 150_250, 1.0, 2.0, -0.5, q, 0, 0, 0)
        if number == LANDED:
            return common.MAVLink_extended_sys_state_message(0, 1)
        if number == RC_CHANNELS:
            return common.MAVLink_rc_channels_message(self.boot_ms, 8, *([1500] * 8), *([65535] * 10), 80)
        if number == BATTERY:
            return common.MAVLink_battery_status_message(
                0, 0, 0, 2500, [3900, 3900, 3900, 3900] + [65535] * 6, 1000, 0, 0, 73
            )
        if number == SYS_STATUS:
            return common.MAVLink_sys_status_message(0x10000, 0x10000, 0x10000, 0, 15600, 0, 73, 0, 0, 0, 0, 0, 0)
        if number == GLOBAL_POSITION:
            return common.MAVLink_global_position_int_message(self.boot_ms, 0, 0, 152_750, 0, 0, 0, 0, 0)
        if number == ODOMETRY:
            zeros = [math.nan] * 21
            return common.MAVLink_odometry_message(
                self.boot_ms * 1000, 1, 1, 1, 2, -3, [1.0, 0, 0, 0], 4, 5, -6, 0, 0, 0, zeros, zeros, 7, 8
            )
        if number == ALTITUDE:
            return common.MAVLink_altitude_message(0, 148.5, 152.75, 3.0, 2.5, math.nan, math.nan)
        if number == GPS_RAW_INT:
            return common.MAVLink_gps_raw_int_message(0, 3, 0, 0, 0, 100, 100, 0, 0, 12)
        return None

    def reboot(self):
        """The flight controller restarts: its clock is at zero, its streams have stopped."""
        self.boot_at_s = self.now_s
        self.streams.clear()
        self.mav.seq = 0

    def sent(self, kind):
        """Messages of one type that the node has sent."""
        return [m for _, m in self.received if m.get_type() == kind]

    def commands(self, command):
        return [(t, m) for t, m in self.received if m.get_type() == "COMMAND_LONG" and m.command == command]
