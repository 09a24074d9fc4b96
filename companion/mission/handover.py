"""The reference while PX4 still flies: from the aircraft's present motion to rest.

It begins with the position, velocity and acceleration of the estimate. The first setpoint that PX4 follows is therefore
about the attitude that PX4 held, whatever flew before: PX4's own position control or a pilot.

    a = (g - d_z) n / n_z + d - D v,   a_z = 0

n: direction of the thrust. Its size is not known before offboard: the aircraft counts as one that neither climbs nor
sinks faster.
"""

import math

from companion.core.frames import GRAVITY_M_S2, rotation_matrix, rpy_from_quat
from companion.core.messages import State
from companion.core.trajectories import stop_point
from companion.core.trajectory_messages import Move, Vec3
from companion.core.vehicle import Vehicle

ACCELERATION_MAX_M_S2 = 3.0  # of PX4 and of pilots in Position mode (MPC_ACC_HOR); the stack continues no larger one
UPRIGHT = 0.5  # least vertical component of the thrust's direction: 60°
SPEED_M_S = ACCELERATION_M_S2 = YAW_RATE_RAD_S = 0.5  # limits of a path of zero length


def come_to_rest(state: State, vehicle: Vehicle, now_s: float) -> Move:
    """The move from the motion of a state, continued to now_s, to rest; in the world."""
    age_s, yaw_rad = now_s - state.stamp_s, rpy_from_quat(state.q_WB)[2]
    x, y, z = (p + age_s * v for p, v in zip(state.p_W, state.v_W, strict=True))
    move = Move(
        p_start=(x, y, z),
        yaw_start_rad=yaw_rad,
        p_end=(x, y, z),
        yaw_end_rad=yaw_rad,
        speed_m_s=SPEED_M_S,
        acceleration_m_s2=ACCELERATION_M_S2,
        yaw_rate_rad_s=YAW_RATE_RAD_S,
        v_start=state.v_W,
        a_start=_acceleration(state, vehicle),
    )
    move.p_end = stop_point(move)
    return move


def _acceleration(state: State, vehicle: Vehicle) -> Vec3:
    n = rotation_matrix(state.q_WB)[:, 2]
    d, drag, v = state.disturbance_W, vehicle.drag, state.v_W
    lift = (GRAVITY_M_S2 - d[2]) / max(float(n[2]), UPRIGHT)
    along, rotor_1_s = float(n @ v), drag.rotor_1_s + drag.rotor_s_m * lift
    x, y = (
        lift * float(n[i]) + d[i] - drag.linear_1_s[i] * v[i] - rotor_1_s * (v[i] - along * float(n[i])) for i in (0, 1)
    )
    share = ACCELERATION_MAX_M_S2 / max(math.hypot(x, y), ACCELERATION_MAX_M_S2)
    return x * share, y * share, 0.0
