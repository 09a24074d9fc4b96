"""A simple aircraft that differs from the model on purpose, and the loop that flies a ControllerNode on it.

Differences to the vehicle file: 8 % less thrust, motors lag by 40 ms, commands act after 30 ms, 40 % more drag, 15 %
slower attitude. The disturbance estimate comes from an observer with 0.3 s lag, similar to a filter's.
"""

from collections import deque

import numpy as np

from companion.control.controller import ControllerNode
from companion.core.clock import SimulatedStopwatch
from companion.core.enums import FcuMode
from companion.core.frames import GRAVITY_M_S2, quat_from_rpy, rotation_matrix, wrap_angle
from companion.core.messages import (
    WORLD,
    ControlStatus,
    FcuAttitude,
    FcuStatus,
    Reference,
    SentSetpoint,
    Setpoint,
    State,
)
from companion.core.trajectory_messages import Hold, Move

PLANT_STEP_S = 0.002
ESTIMATE_PERIOD_S = 0.01
COMMAND_DELAY_S = 0.03
STATE_AGE_S = 0.01


class Plant:
    """Point mass with first-order attitude and thrust, in W (ENU)."""

    def __init__(self, vehicle, p=(0.0, 0.0, 2.0), yaw=0.0, heading_error=0.0, thrust_gain=0.92, tilt_error=(0.0, 0.0)):
        self.vehicle = vehicle
        self.parameters = np.array(vehicle.model_parameters())
        self.p, self.v, self.rpy = np.array(p, float), np.zeros(3), np.array([0.0, 0.0, yaw])
        self.heading_error = heading_error  # FCU's yaw minus true yaw
        self.tilt_error = tilt_error  # FCU's roll and pitch minus the true ones
        self.thrust_gain = thrust_gain
        self.thrust = GRAVITY_M_S2 / (self.parameters[0] * thrust_gain)
        self.disturbance_W = np.zeros(3)
        self.observed_W = np.zeros(3)
        self.command = (self.thrust, 0.0, 0.0, wrap_angle(yaw + heading_error), 0.0)
        self.rate = np.zeros(3)  # of roll, pitch and yaw
        self.pending = deque()

    def send(self, now_s, setpoint):
        self.pending.append(
            (
                now_s + COMMAND_DELAY_S,
                (setpoint.thrust, setpoint.roll_rad, setpoint.pitch_rad, setpoint.yaw_rad, setpoint.yaw_rate_rad_s),
            )
        )

    @property
    def q(self):
        return quat_from_rpy(*self.rpy)

    @property
    def fcu_yaw(self):
        return wrap_angle(self.rpy[2] + self.heading_error)

    def step(self, now_s, dt):
        while self.pending and self.pending[0][0] <= now_s:
            self.command = self.pending.popleft()[1]
        thrust_c, roll_c, pitch_c, yaw_c, yaw_rate = self.command
        tau_r, k_r, tau_p, k_p = self.parameters[4:8]
        self.thrust += dt / 0.04 * (thrust_c - self.thrust)
        rate = np.array(
            [
                (k_r * roll_c - self.rpy[0] - self.tilt_error[0]) / (1.15 * tau_r),
                (k_p * pitch_c - self.rpy[1] - self.tilt_error[1]) / (1.15 * tau_p),
                0.8 * yaw_rate + 2.8 * wrap_angle(yaw_c - self.fcu_yaw),
            ]
        )
        axis = rotation_matrix(self.q)[:, 2]
        a = (
            self.thrust_gain * self.parameters[0] * self.thrust * axis
            - [0, 0, GRAVITY_M_S2]
            - (1.4 * self.parameters[1:4] + 0.05) * self.v
            + self.disturbance_W
        )
        model = self.parameters[0] * thrust_c * axis - [0, 0, GRAVITY_M_S2] - self.parameters[1:4] * self.v
        self.observed_W = self.observed_W + dt / 0.3 * (a - model - self.observed_W)
        self.v = self.v + dt * a
        self.p = self.p + dt * self.v
        self.rate = rate
        self.rpy = self.rpy + dt * rate


class Loop:
    """Advances plant and node through simulated time and records positions, setpoints and statuses."""

    def __init__(self, vehicle, nmpc=None, stopwatch=None, observe=True, **plant):
        self.plant = Plant(vehicle, **plant)
        self.stopwatch = stopwatch or SimulatedStopwatch()
        self.node = ControllerNode(vehicle, nmpc, self.stopwatch)
        self.observe = observe
        self.now_s = 10.0
        self.reference = None
        self.bundle = ("", (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))
        self.mode = FcuMode.OFFBOARD
        self.edit_state = lambda state: state
        self.times, self.positions, self.yaws = [], [], []
        self.setpoints: list[Setpoint] = []
        self.statuses: list[ControlStatus] = []
        self.estimates = deque()

    def hold(self, p, yaw=0.0, frame=WORLD):
        self.reference = Reference(
            stamp_s=self.now_s, id=1, frame=frame, start_s=self.now_s, trajectory=Hold(p=tuple(p), yaw_rad=yaw)
        )

    def move(self, start, end, yaw_start=0.0, yaw_end=0.0, speed=1.0, acceleration=1.0, yaw_rate=0.5):
        trajectory = Move(
            p_start=tuple(start),
            yaw_start_rad=yaw_start,
            p_end=tuple(end),
            yaw_end_rad=yaw_end,
            speed_m_s=speed,
            acceleration_m_s2=acceleration,
            yaw_rate_rad_s=yaw_rate,
        )
        self.reference = Reference(stamp_s=self.now_s, id=2, frame=WORLD, start_s=self.now_s, trajectory=trajectory)

    def noise(self):
        """Of any estimate: too small to change a command, and so that no two messages are the same, (3,)."""
        return np.full(3, 1e-12 * (round(self.now_s / PLANT_STEP_S) % 1000))

    def state(self):
        plant = self.plant
        bundle, p_WM, q_WM = self.bundle
        return State(
            stamp_s=self.now_s,
            p_W=tuple((plant.p + self.noise()).tolist()),
            v_W=tuple(plant.v.tolist()),
            q_WB=tuple(plant.q.tolist()),
            disturbance_W=tuple((plant.observed_W if self.observe else np.zeros(3)).tolist()),
            gnss_bias_W=(0.0, 0.0, 0.0),
            velocity_bias_W=(0.0, 0.0, 0.0),
            bundle=bundle,
            p_WM=p_WM,
            q_WM=q_WM,
            marker_age_s=0.0,
            position_std_m=0.02,
            relative_std_m=0.02,
            covariance_diag=(1e-4,) * 24,
            battery_voltage_v=self.plant.vehicle.thrust.reference_voltage_v,
            reset_count=0,
        )

    def fcu_status(self):
        return FcuStatus(
            stamp_s=self.now_s,
            connected=True,
            armed=True,
            mode=self.mode,
            landed=False,
            battery_voltage_v=15.0,
            battery_remaining=0.8,
            rc_ok=True,
            rc_channels_us=(),
            gnss_ok=True,
            home_W=None,
            timesync_offset_s=0.0,
            timesync_rtt_s=0.002,
            link_errors=0,
        )

    def run(self, duration_s, before_step=None):
        """Continue the flight; before_step(loop) may change the loop before each controller cycle."""
        per_cycle = round(1.0 / (self.node.rate_hz * PLANT_STEP_S))
        per_estimate = round(ESTIMATE_PERIOD_S / PLANT_STEP_S)
        for _ in range(round(duration_s * self.node.rate_hz)):
            if before_step:
                before_step(self)
            self.cycle()
            for i in range(per_cycle):
                if i % per_estimate == 0:
                    self.estimates.append(self.edit_state(self.state()))
                self.plant.step(self.now_s, PLANT_STEP_S)
                self.now_s += PLANT_STEP_S
        return self

    def cycle(self):
        """One controller cycle: the arrived messages, then a step; its setpoint leaves at once."""
        node, now_s, plant = self.node, self.now_s, self.plant
        while self.estimates and self.estimates[0].stamp_s <= now_s - STATE_AGE_S + 1e-9:
            node.handle(self.estimates.popleft(), now_s)
        if self.reference:
            self.reference.stamp_s = now_s
            node.handle(self.reference, now_s)
        roll, pitch = plant.rpy[:2] + plant.tilt_error
        q_fcu = tuple(quat_from_rpy(roll, pitch, plant.fcu_yaw).tolist())
        node.handle(FcuAttitude(stamp_s=now_s, q_WB=q_fcu, omega_B=tuple((plant.rate + self.noise()).tolist())), now_s)
        node.handle(self.fcu_status(), now_s)
        messages = list(node.step(now_s))
        for message in messages:
            if isinstance(message, Setpoint):
                self.setpoints.append(message)
                plant.send(now_s, message)
                sent = {
                    f: getattr(message, f) for f in ("roll_rad", "pitch_rad", "yaw_rad", "yaw_rate_rad_s", "thrust")
                }
                node.handle(SentSetpoint(stamp_s=now_s, **sent), now_s)
            else:
                self.statuses.append(message)
        self.times.append(now_s)
        self.positions.append(plant.p.copy())
        self.yaws.append(plant.rpy[2])
        return messages

    def commands(self):
        """(n, 3): thrust, roll, pitch that were sent."""
        return np.array([(s.thrust, s.roll_rad, s.pitch_rad) for s in self.setpoints])
