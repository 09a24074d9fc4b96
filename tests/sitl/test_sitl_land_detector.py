"""The emulated land detector: what counts as no vertical motion."""

import pytest

from sitl.autopilot.land_detector import LandDetector

PARAMETERS = {
    "LNDMC_TRIG_TIME": 1.0, "LNDMC_Z_VEL_MAX": 0.25, "LNDMC_XY_VEL_MAX": 1.5, "LNDMC_ROT_MAX": 20.0,
    "MPC_THR_MIN": 0.12, "MPC_MANTHR_MIN": 0.08,
}  # fmt: skip
STEP_S = 0.02


@pytest.mark.parametrize(
    ("v_m_s", "rate_m_s", "lands"),
    [(0.0, 0.0, True), (-0.6, 0.0, True), (0.0, -0.6, True), (-0.6, -0.6, False)],
    ids=["stands", "biased velocity", "drifting height", "sinks"],
)
def test_a_small_velocity_or_a_height_that_stays_is_no_vertical_motion(v_m_s, rate_m_s, lands):
    detector = LandDetector(PARAMETERS)
    in_air = dict(thrust=0.5, hover=0.5, hover_is_valid=True, gyro_B=(0.0, 0.0, 0.0), climb_rate_control=True)
    down = in_air | {"thrust": 0.12}
    for i in range(200):
        t = STEP_S * i
        detector.update(
            t,
            True,
            v=(0.0, 0.0, -0.7),
            z=5.0 - 0.7 * t,
            v_sp_z=-0.7,
            vertical_valid=True,
            horizontal_valid=True,
            **in_air,
        )
    assert not detector.landed
    for i in range(200, 400):
        t = STEP_S * (i - 200)
        detector.update(
            4.0 + t,
            True,
            v=(0.0, 0.0, v_m_s),
            z=2.2 + rate_m_s * t,
            v_sp_z=-0.7,
            vertical_valid=True,
            horizontal_valid=True,
            **down,
        )
    assert detector.landed is lands
