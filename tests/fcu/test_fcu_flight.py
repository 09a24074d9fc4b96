"""The FCU node flies the PX4 emulator over the simulated plant; bytes between them, compared with the truth."""

import math

import pytest
from pymavlink.dialects.v20 import common

from companion.core.enums import CommandAction, ControlSource, FcuMode
from companion.core.frames import rpy_from_quat
from companion.core.messages import (
    FcuAttitude,
    FcuCommand,
    FcuCommandAck,
    FcuPosition,
    FcuStatus,
    LinkRx,
    LinkTx,
    Setpoint,
)
from companion.fcu.fcu_node import FcuNode
from sitl.airframe import load_airframe
from sitl.autopilot.autopilot import Autopilot
from sitl.plant import Plant
from sitl.sensors import PAPER, Sensors

STEP_S = 0.004  # of the autopilot
NODE_EVERY, SETPOINT_EVERY = 2, 5  # 125 and 50 Hz
BOOT_OFFSET_S = 37.0


class EmulatorFlight:
    """The node, the PX4 emulator and the plant in simulated time."""

    def __init__(self, vehicle):
        self.node = FcuNode(vehicle)
        self.plant = Plant(load_airframe("f550"), 1)
        self.sensors = Sensors(PAPER, 2)
        self.autopilot = Autopilot("f550", 3, boot_offset_s=BOOT_OFFSET_S, clock_drift_ppm=20.0)
        self.autopilot.parameters.set("COM_RC_OVERRIDE", 3)  # PX4's own is 1, with which no flight begins
        self.autopilot.set_rc([1500, 1500, 1500, 1500, 1000, 1000, 1000, 1000])
        self.steps = 0
        self.latest = {}
        self.acks = []
        self.setpoint = None  # function of now_s

    @property
    def now_s(self):
        return self.steps * STEP_S

    def route(self, messages):
        for m in messages:
            self.latest[type(m)] = m
            if type(m) is LinkTx:
                self.autopilot.receive(m.data, self.now_s)
            elif type(m) is FcuCommandAck:
                self.acks.append(m)

    def command(self, action, **values):
        number = len(self.acks) + 1
        self.route(self.node.handle(FcuCommand(stamp_s=self.now_s, id=number, action=action, **values), self.now_s))
        self.until(lambda: len(self.acks) == number, 3.0)
        return self.acks[-1]

    def step(self):
        self.steps += 1
        motors = self.autopilot.step(self.sensors.sample(self.now_s, self.plant))
        self.plant.step(motors, 4)
        if data := self.autopilot.take_output():
            self.route(self.node.handle(LinkRx(stamp_s=self.now_s, data=data), self.now_s))
        if self.setpoint is not None and self.steps % SETPOINT_EVERY == 0:
            self.route(self.node.handle(self.setpoint(self.now_s), self.now_s))
        if self.steps % NODE_EVERY == 0:
            self.route(self.node.step(self.now_s))

    def run(self, seconds):
        for _ in range(round(seconds / STEP_S)):
            self.step()

    def until(self, condition, limit_s):
        end_s = self.now_s + limit_s
        while not condition():
            assert self.now_s < end_s, f"not within {limit_s} s: {self.latest.get(FcuStatus)}"
            self.step()

    @property
    def status(self):
        return self.latest[FcuStatus]


def hover(roll=0.0, pitch=0.0, yaw=0.0, thrust=0.344):
    def setpoint(now_s):
        return Setpoint(
            stamp_s=now_s, expires_s=now_s + 0.1, roll_rad=roll, pitch_rad=pitch, yaw_rad=yaw, yaw_rate_rad_s=0.0,
            thrust=thrust, source=ControlSource.NMPC,
        )  # fmt: skip

    return setpoint


@pytest.fixture(scope="module")
def flight(vehicle):
    return EmulatorFlight(vehicle)


def test_arm_take_off_offboard_and_land(flight):
    flight.until(lambda: flight.latest.get(FcuStatus) and flight.status.connected and flight.status.home_W, 20.0)
    flight.run(2.0)
    assert flight.node.timesync.synced and flight.status.landed and flight.status.gnss_ok
    assert flight.status.timesync_offset_s == pytest.approx(-BOOT_OFFSET_S, abs=5e-3)
    assert flight.latest[FcuAttitude].valid and flight.latest[FcuPosition].valid
    assert flight.latest[FcuAttitude].stamp_s == pytest.approx(flight.now_s, abs=0.03)

    ack = flight.command(CommandAction.TAKEOFF, height_m=3.0)
    assert ack.accepted, ack.reason
    ack = flight.command(CommandAction.ARM)
    assert ack.accepted, ack.reason
    flight.until(lambda: flight.status.armed and not flight.status.landed, 10.0)
    flight.until(lambda: flight.plant.p_W[2] > 2.5, 15.0)
    flight.run(4.0)
    # PX4's height follows its receiver's, which walks by half a metre meanwhile.
    risen_m = flight.latest[FcuPosition].p_W[2] - flight.status.home_W[2]
    assert risen_m == pytest.approx(3.0, abs=0.4) and flight.plant.p_W[2] == pytest.approx(3.0, abs=1.2)

    ack = flight.command(CommandAction.OFFBOARD)
    assert not ack.accepted  # no setpoints yet: PX4 requires a second of them first
    flight.setpoint = hover()
    flight.run(1.5)
    ack = flight.command(CommandAction.OFFBOARD)
    assert ack.accepted, ack.reason
    flight.until(lambda: flight.status.mode == FcuMode.OFFBOARD, 2.0)

    # a nose-down setpoint facing east really tips the true aircraft forward and moves it east
    start = flight.plant.p_W.copy()
    flight.setpoint = hover(pitch=math.radians(8))
    flight.run(1.5)
    true_rpy = rpy_from_quat(flight.plant.q_WB)
    assert math.degrees(true_rpy[1]) == pytest.approx(8.0, abs=2.0)
    assert math.degrees(true_rpy[2]) == pytest.approx(0.0, abs=5.0)
    assert flight.plant.v_W[0] > 0.8 and abs(flight.plant.v_W[1]) < 0.5
    assert flight.plant.p_W[0] - start[0] > 0.5
    # and is reported back in the same frames
    reported = rpy_from_quat(flight.latest[FcuAttitude].q_WB)
    assert [math.degrees(a - b) for a, b in zip(reported, true_rpy, strict=True)] == pytest.approx([0, 0, 0], abs=3.0)
    assert flight.latest[FcuPosition].v_W[0] == pytest.approx(flight.plant.v_W[0], abs=0.4)
    flight.setpoint = hover(roll=math.radians(8))
    flight.run(1.0)
    assert flight.plant.v_W[1] < -0.3  # right wing down moves right, to the south

    # without setpoints of the controller none leave: PX4 leaves offboard by itself
    flight.setpoint = None
    flight.until(lambda: flight.status.mode != FcuMode.OFFBOARD, 4.0)

    ack = flight.command(CommandAction.LAND)
    assert ack.accepted, ack.reason
    flight.until(lambda: flight.status.landed and not flight.status.armed, 60.0)
    assert flight.plant.p_W[2] < 0.3
    assert flight.status.link_errors == 0


@pytest.mark.parametrize(
    ("station", "reason"),
    [(True, "temporarily rejected: Arming denied: kill switch engaged"), (False, "temporarily rejected")],
)
def test_px4_explains_a_refusal_only_on_a_link_with_a_ground_station(vehicle, station, reason):
    flight = EmulatorFlight(vehicle)
    ground = common.MAVLink(None, srcSystem=255, srcComponent=190)
    flight.until(lambda: flight.latest.get(FcuStatus) and flight.status.connected and flight.status.home_W, 20.0)
    flight.run(2.0)
    flight.autopilot.set_rc([1500, 1500, 1500, 1500, 1000, 1000, 2000, 1000])
    if station:  # on the forward
        heartbeat = common.MAVLink_heartbeat_message(common.MAV_TYPE_GCS, 8, 0, 0, 4, 3).pack(ground)
        flight.route(flight.node.handle(LinkRx(stamp_s=flight.now_s, data=heartbeat, ground=True), flight.now_s))
    flight.run(0.1)
    requested_s = flight.now_s
    ack = flight.command(CommandAction.ARM)
    assert (ack.accepted, ack.reason) == (False, reason)
    assert flight.now_s - requested_s < 0.1


def test_a_refusal_waits_only_a_short_time_for_a_warning(vehicle):
    flight = EmulatorFlight(vehicle)
    ground = common.MAVLink(None, srcSystem=255, srcComponent=190)
    flight.until(lambda: flight.latest.get(FcuStatus) and flight.status.connected and flight.status.home_W, 20.0)
    flight.autopilot.set_rc([1500, 1500, 1500, 1500, 1000, 1000, 2000, 1000])
    heartbeat = common.MAVLink_heartbeat_message(common.MAV_TYPE_GCS, 8, 0, 0, 4, 3).pack(ground)
    flight.route(flight.node.handle(LinkRx(stamp_s=flight.now_s, data=heartbeat, ground=True), flight.now_s))
    flight.autopilot.texts.ground_station_s = -math.inf  # it sends no texts after all
    requested_s = flight.now_s
    ack = flight.command(CommandAction.ARM)
    assert ack.reason == "temporarily rejected" and ack.temporary
    assert 0.25 < flight.now_s - requested_s < 0.5
    flight.run(1.0)
    assert len(flight.acks) == 1
