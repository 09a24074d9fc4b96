"""What each scenario must achieve with every one of five seeds that no parameter was tuned with.

Figures are those of `companion.recording.metrics`, mean over the seeds; lengths in metres, angles in degrees.
"""

FIRST_SEED, SEEDS = 101, 5

LIMITS: dict[str, dict[str, float]] = {
    "bridge_hover": {"position_rms_m": 0.05},
    "hover_marker": {"estimate_rms_m": 0.02},
    "hover_wind": {"position_rms_m": 0.035},
    "line_headwind": {"position_rms_m": 0.03},
    "line_sidegust": {"position_rms_m": 0.03},
    "spiral_calm": {"position_rms_m": 0.03, "yaw_rms_deg": 1.0},
    "spiral_side": {"position_rms_m": 0.03, "yaw_rms_deg": 1.0},
    "spiral_up": {"position_rms_m": 0.03, "yaw_rms_deg": 1.0},
    "spiral_down": {"position_rms_m": 0.03, "yaw_rms_deg": 1.0},
    "bridge_field": {"position_rms_m": 0.05},
    "figure8_wind_0": {"position_rms_m": 0.02},
    "figure8_wind_4": {"position_rms_m": 0.025},
    "figure8_wind_8": {"position_rms_m": 0.04},
    "figure8_wind_12": {"position_rms_m": 0.06},
    "run_5": {"position_rms_m": 0.15},
    "run_10": {"position_rms_m": 0.30},
    "figure_eight_pier": {"position_rms_m": 0.15},
}
