"""PX4's own trigger in the simulator: the emulator reports it, and the camera on its output exposes."""

import pytest
from pymavlink.dialects.v20 import common

from sitl.autopilot.autopilot import Autopilot
from sitl.payload_camera import SimulatedPayload
from tests.payload.rig import EXACT, FIXED, Body, with_control

TRIGGER = common.MAVLink_command_long_message(1, 1, common.MAV_CMD_DO_DIGICAM_CONTROL, 0, 0, 0, 0, 0, 1, 0, 0)


def answers(autopilot: Autopilot) -> dict[str, object]:
    parser = common.MAVLink(None)
    parser.robust_parsing = True
    found = parser.parse_buffer(autopilot.take_output()) or ()
    return {m.get_type(): m for m in found if m.get_type() in ("COMMAND_ACK", "CAMERA_TRIGGER")}


def test_a_trigger_is_reported_with_its_time_and_releases_the_shutter():
    autopilot = Autopilot("f550", boot_offset_s=12.0)
    camera = SimulatedPayload(with_control(FIXED, trigger="px4", component_id=None), EXACT, Body(), {}, 1)
    autopilot.stack.trigger_camera = camera.expose_after_latency
    autopilot.receive(TRIGGER.pack(common.MAVLink(None, srcSystem=1, srcComponent=192)), 5.0)
    found = answers(autopilot)
    assert found["COMMAND_ACK"].result == 0 and found["COMMAND_ACK"].target_component == 192
    assert found["CAMERA_TRIGGER"].time_usec == pytest.approx(17.0e6, abs=1e3) and found["CAMERA_TRIGGER"].seq == 1
    for step in range(200):
        camera.step(5.0 + 0.004 * step, 0.004)
    (truth,) = camera.take_captures()
    assert truth.stamp_s == pytest.approx(5.12, abs=0.1) and camera.take_output() == b""


def test_without_a_camera_on_its_output_px4_does_not_know_the_command():
    autopilot = Autopilot("f550")
    autopilot.receive(TRIGGER.pack(common.MAVLink(None, srcSystem=1, srcComponent=192)), 5.0)
    found = answers(autopilot)
    assert found["COMMAND_ACK"].result == common.MAV_RESULT_UNSUPPORTED and "CAMERA_TRIGGER" not in found
