"""The table `[control]` of a camera file: how the payload camera is reached and triggered, and when it may expose."""

from typing import Annotated, Literal

from msgspec import Meta

from companion.core.config import Section, integer, number

BY_FLIGHT_CONTROLLER = "fcu"  # the link by which the stack reaches PX4; PX4 forwards to the camera
Component = Annotated[int, integer(1, 255)]
Seconds = Annotated[float, number(0.05, 60, "s")]
Angle = Annotated[float, number(0, 0.2, "rad")]


class CameraControl(Section, frozen=True, kw_only=True):
    """How the camera is commanded.

    trigger: "mavlink": MAV_CMD_IMAGE_START_CAPTURE to a camera that speaks MAVLink's camera protocol; "px4":
    MAV_CMD_DO_DIGICAM_CONTROL to PX4, whose output triggers the camera; "still": a picture of a local camera.
    """

    trigger: Literal["mavlink", "px4", "still"]
    # "fcu", or "udpin:host:port", "udpout:host:port", "serial:device:baud" of the camera's own link; none for a still
    link: Annotated[str, Meta(min_length=1)] | None = None
    component_id: Component | None = None  # of the camera, with "mavlink": 100 to 105
    device: Annotated[str, Meta(min_length=1)] | None = None  # of a still: /dev/video2
    gimbal_component_id: Component | None = None  # of the gimbal's manager: 1 (PX4) or 154; none: fixed to the body
    gimbal_settle_s: Annotated[float, number(0, 10, "s that the gimbal must have been at its pitch")] | None = None
    gimbal_std_rad: Angle | None = None  # of the attitude that it reports
    mount_std_rad: Angle  # of q_BC
    blur_max_px: Annotated[float, number(0.1, 50, "px of motion during the exposure")]
    still_time_s: Seconds  # waits this long for less motion, then takes the photograph and marks it blurred
    answer_time_s: Seconds  # from the command to the camera's answer, then it counts as lost
    shutter_delay_s: Annotated[float, number(0, 5, "s from the command (px4: from the trigger) to mid-exposure")]
    shutter_delay_std_s: Annotated[float, number(1e-4, 1, "s")]

    def contradiction(self) -> str:
        needed = {"mavlink": ("link", "component_id"), "px4": ("link",), "still": ("device",)}[self.trigger]
        for key in ("link", "component_id", "device"):
            if (getattr(self, key) is not None) != (key in needed):
                return (
                    f"control.{key}: {'missing key' if key in needed else 'has no use'} with trigger = {self.trigger!r}"
                )
        if self.trigger == "px4" and self.link != BY_FLIGHT_CONTROLLER:
            return f"control.link = {self.link!r}: PX4 triggers over link = {BY_FLIGHT_CONTROLLER!r} only"
        gimbal = [key for key in ("gimbal_settle_s", "gimbal_std_rad") if getattr(self, key) is None]
        if self.gimbal_component_id is not None and gimbal:
            return f"control.{gimbal[0]}: missing key with gimbal_component_id"
        if self.gimbal_component_id is not None and self.trigger == "still":
            return "control.gimbal_component_id: has no use with trigger = 'still': there is no link to a gimbal"
        return ""
