"""Payload cameras of the made-up flights: fixed to the body, and on a gimbal."""

import msgspec

from companion.planning.camera import PayloadCamera
from companion.planning.camera_control import CameraControl

FIXED = PayloadCamera(
    name="test camera", width_px=6000, height_px=4000, focal_length_mm=35.0, pixel_pitch_um=6.0, p_BC=(0.2, 0.0, -0.1),
    q_BC=(0.5, -0.5, 0.5, -0.5), pitch_range_rad=(0.0, 0.0), exposure_s=0.002, trigger_period_s=1.0,
    nearest_focus_m=0.3, mass_kg=0.5,
)  # fmt: skip
GIMBAL = msgspec.structs.replace(
    FIXED,
    pitch_range_rad=(-1.5, 1.5),
    control=CameraControl(
        trigger="mavlink", link="fcu", component_id=100, gimbal_component_id=154, gimbal_settle_s=0.5, gimbal_std_rad=0.002,
        mount_std_rad=0.0035, blur_max_px=0.65, still_time_s=6.0, answer_time_s=3.0, shutter_delay_s=0.12,
        shutter_delay_std_s=0.03,
    ),
)  # fmt: skip
