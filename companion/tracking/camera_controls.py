"""Exposure, gain, white balance and focus of a V4L2 camera, fixed as the vehicle file says and read back.

Automatic exposure makes blur and brightness change in flight, automatic focus changes the lens that was calibrated.
"""

from typing import NamedTuple, Protocol

import cv2

from companion.core.vehicle import CameraControls

MANUAL_EXPOSURE = 1.0  # V4L2_EXPOSURE_MANUAL
EXPOSURE_UNIT_S = 1e-4  # of V4L2_CID_EXPOSURE_ABSOLUTE
EXPOSURE_TOLERANCE = 0.1  # share: a driver rounds to lines of its sensor
TOLERANCE, LEAST_STEP = 0.02, 1.0  # share, and steps of the device's own unit, of all others


class Device(Protocol):
    """What sets and reads a property of OpenCV's (`cv2.VideoCapture`)."""

    def set(self, propId: int, value: float, /) -> bool: ...

    def get(self, propId: int, /) -> float: ...


class _Control(NamedTuple):
    name: str  # of the vehicle file
    property: int
    wanted: float
    tolerance: float
    unit: float = 1.0  # of the vehicle file's number for one of the device's


def fix(device: Device, controls: CameraControls) -> str:
    """Set the controls and read them back; a sentence that names those that the device did not take, "" if it took all."""
    if controls.exposure_s is not None:
        device.set(cv2.CAP_PROP_AUTO_EXPOSURE, MANUAL_EXPOSURE)
    if controls.white_balance_k is not None:
        device.set(cv2.CAP_PROP_AUTO_WB, 0.0)
    if controls.focus is not None:
        device.set(cv2.CAP_PROP_AUTOFOCUS, 0.0)
    wanted = _wanted(controls)
    for control in wanted:
        device.set(control.property, control.wanted)
    refused = []
    for control in wanted:
        real = device.get(control.property)
        if not abs(real - control.wanted) <= control.tolerance:
            asked, has = control.wanted * control.unit, real * control.unit
            refused.append(f"{control.name} = {asked:g} (it has {has:g})")
    return f"did not take camera.controls: {', '.join(refused)}" if refused else ""


def _wanted(controls: CameraControls) -> list[_Control]:
    found = []
    if controls.exposure_s is not None:
        steps = max(1.0, round(controls.exposure_s / EXPOSURE_UNIT_S))
        found.append(
            _Control("exposure_s", cv2.CAP_PROP_EXPOSURE, steps, max(EXPOSURE_TOLERANCE * steps, 0.5), EXPOSURE_UNIT_S)
        )
    for name, number, value in (
        ("gain", cv2.CAP_PROP_GAIN, controls.gain),
        ("white_balance_k", cv2.CAP_PROP_WB_TEMPERATURE, controls.white_balance_k),
        ("focus", cv2.CAP_PROP_FOCUS, controls.focus),
    ):
        if value is not None:
            found.append(_Control(name, number, value, max(TOLERANCE * value, LEAST_STEP)))
    return found
