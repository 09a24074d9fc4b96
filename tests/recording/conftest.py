"""A made-up flight with known errors: 20 s, HOLD from 5 s to 15 s in front of bundle "pier"."""

import math

import numpy as np
import pytest

from companion.core import messages as ms
from companion.core import trajectory_messages
from companion.core.frames import quat_from_rpy, rotation_matrix

START_S = 1000.0
P_WM = (12.0, 3.0, 4.0)
RPY_WM = (math.pi / 2, 0.0, -math.pi / 2 + 0.3)  # the face looks west, turned by 0.3 rad: facing yaw is 0.3
GOAL_M = (0.0, 0.2, 3.0)
POSITION_ERROR_M = (0.03, -0.04, 0.12)  # true minus reference, in the bundle's frame
ESTIMATE_ERROR_M = (0.01, 0.02, -0.02)  # estimated minus true, in the bundle's frame
GNSS_BIAS_W = (0.6, 0.0, -0.8)
YAW_ERROR_RAD = 0.02


def made_flight(truth: bool = True) -> dict[str, list[ms.Message]]:
    q_WM = quat_from_rpy(*RPY_WM)
    R = rotation_matrix(q_WM)
    log: dict[str, list[ms.Message]] = {topic: [] for topic in ms.TOPICS}
    rng = np.random.default_rng(0)
    for i in range(2000):
        t = START_S + i * 0.01
        wave = 0.5 * math.sin(0.7 * i * 0.01) if not 500 <= i <= 1500 else 0.0  # only outside the hold
        p_MB = np.array(GOAL_M) + POSITION_ERROR_M + wave
        p_WB = np.array(P_WM) + R @ p_MB
        q_WB = tuple(quat_from_rpy(0.01, 0.02, 0.3 + YAW_ERROR_RAD).tolist())
        if truth:
            log["truth"].append(
                ms.Truth(
                    stamp_s=t,
                    seq=i,
                    p_W=tuple(p_WB.tolist()),
                    v_W=(0.0, 0.0, 0.0),
                    q_WB=q_WB,
                    omega_B=(0.0, 0.0, 0.0),
                    disturbance_W=(1.0, 0.0, 0.0),
                    gnss_bias_W=GNSS_BIAS_W,
                    bundles={"pier": (P_WM, tuple(q_WM.tolist()))},
                    battery_voltage_v=15.0,
                    motor_thrust_n=(3.0,) * 6,
                )
            )
        # the estimate drifts in the world with its marker: the error relative to the bundle stays the same
        drift = np.array([0.3, 0.4, 0.0])
        estimate_W = p_WB + R @ np.array(ESTIMATE_ERROR_M) + drift
        log["state"].append(
            ms.State(
                stamp_s=t,
                seq=i,
                valid=i > 10,
                p_W=tuple(estimate_W.tolist()),
                v_W=(0.0, 0.0, 0.1 + 1e-4 * (i % 2)),  # no estimate in the air repeats its numbers
                q_WB=q_WB,
                disturbance_W=(1.0, 0.3, 0.0),
                gnss_bias_W=(0.5, 0.0, -0.7),
                velocity_bias_W=(0.0, 0.0, 0.0),
                bundle="pier" if i > 100 else "",
                p_WM=tuple((np.array(P_WM) + drift).tolist()) if i > 100 else (0.0, 0.0, 0.0),
                q_WM=tuple(q_WM.tolist()) if i > 100 else (1.0, 0.0, 0.0, 0.0),
                marker_age_s=0.05 if i > 100 else math.inf,
                position_std_m=0.2,
                relative_std_m=0.03 if i > 100 else math.inf,
                covariance_diag=(0.01,) * 24,
                battery_voltage_v=15.0,
                reset_count=0,
            )
        )
        log["estimator"].append(
            ms.EstimatorStatus(
                stamp_s=t,
                innovations=[
                    ms.Innovation(
                        stamp_s=t - 0.06,
                        sensor="marker",
                        nis=float(rng.chisquare(6)) if i % 50 else 80.0,
                        dof=6,
                        accepted=bool(i % 50),
                        noise_scale=1.0,
                        late_s=0.06,
                    )
                ],
                rejected={"marker": i // 50 + 1},
                dropped_late=2,
                update_time_s=1e-4,
            )
        )
        if i % 2 == 0:
            if i not in (800, 802):  # a gap of 60 ms
                log["sent_setpoint"].append(
                    ms.SentSetpoint(
                        stamp_s=t, roll_rad=0.0, pitch_rad=0.01, yaw_rad=0.3, yaw_rate_rad_s=0.0, thrust=0.34
                    )
                )
            log["fcu_position"].append(
                ms.FcuPosition(stamp_s=t, p_W=tuple((p_WB + GNSS_BIAS_W).tolist()), v_W=(0.0, 0.0, 0.0))
            )
            log["fcu_attitude"].append(ms.FcuAttitude(stamp_s=t, q_WB=q_WB, omega_B=(0.0, 0.0, 0.0)))
            log["control"].append(
                ms.ControlStatus(
                    stamp_s=t,
                    active="nmpc",
                    reason="",
                    reference_id=1,
                    reference_finished=True,
                    reference_p_W=(0.0, 0.0, 0.0),
                    reference_yaw_rad=0.3,
                    position_error_m=0.1,
                    yaw_error_rad=0.0,
                    solver_status=0,
                    solve_time_s=0.001 if i % 100 else 0.004,
                    cycle_time_s=0.002,
                    fallback_cycles=3,
                    deadline_misses=1,
                    solver_failures=0,
                )
            )
        if i % 10 == 0:
            phase = "APPROACH" if i < 500 else "HOLD" if i < 1500 else "RETURN" if i < 1990 else "DONE"
            log["mission_status"].append(
                ms.MissionStatus(
                    stamp_s=t,
                    phase=phase,
                    reason=f"because of {phase}",
                    phase_time_s=0.0,
                    finished=phase == "DONE",
                    success=phase == "DONE",
                    photographs=1,
                )
            )
            goal = trajectory_messages.Hold(p=GOAL_M, yaw_rad=0.0)
            log["reference"].append(ms.Reference(stamp_s=t, id=1, frame="pier", start_s=START_S, trajectory=goal))
            log["fcu_status"].append(
                ms.FcuStatus(
                    stamp_s=t,
                    connected=True,
                    armed=True,
                    mode="OFFBOARD",
                    landed=False,
                    battery_voltage_v=15.1,
                    battery_remaining=math.nan,
                    rc_ok=True,
                    rc_channels_us=(1500,) * 8,
                    gnss_ok=True,
                    home_W=None,
                    timesync_offset_s=0.0,
                    timesync_rtt_s=0.002,
                    link_errors=0,
                )
            )
        if i % 50 == 0:
            log["health"].append(
                ms.Health(
                    stamp_s=t,
                    process="estimator",
                    pid=1,
                    steps_per_s=100.0,
                    nominal_steps_per_s=100.0,
                    late_steps=4,
                    errors=0,
                    last_error="",
                    step_time_max_s=0.001,
                    cpu_s=0.05 * i * 0.01,
                    memory_mb=60.0,
                )
            )
    log["safety"].append(
        ms.SafetyEvent(
            stamp_s=START_S + 8.0,
            monitor="marker_lost",
            active=True,
            value=3.2,
            limit=3.0,
            action="hold",
            text="marker <lost> & gone",
        )
    )
    return log


def in_order(log: dict[str, list[ms.Message]]) -> list[ms.Message]:
    return sorted((m for messages in log.values() for m in messages), key=lambda m: m.stamp_s)


@pytest.fixture(scope="session")
def flight() -> dict[str, list[ms.Message]]:
    return made_flight()


@pytest.fixture(scope="session")
def flight_without_truth() -> dict[str, list[ms.Message]]:
    return made_flight(truth=False)
