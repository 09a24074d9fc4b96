"""A Raspberry Pi's own camera, with a program in the place of ``rpicam-vid``."""

import os
import sys
import time

import pytest
from synthetic_view import vehicle

from companion.core.clock import monotonic_s
from companion.core.config import ConfigError
from companion.core.vehicle import CameraControls
from companion.tracking import rpicam
from companion.tracking.cameras import open_source

# Frames of rising brightness as YUV 4:2:0; metadata like those of the program; what it does wrong comes from the environment.
PROGRAM = """#!{python}
import json, os, sys, time
a = dict(zip(sys.argv[1::1], sys.argv[2::1]))
open(os.environ["FAKE_ARGUMENTS"], "a").write(" ".join(sys.argv[1:]) + "\\n")
fault = os.environ.get("FAKE_FAULT", "")
if fault == "absent":
    sys.exit("ERROR: *** no cameras available ***")
w, h = int(a["--width"]), int(a["--height"])
exposure = 33000 if fault == "exposure" else int(a.get("--shutter", 10000)) + 7
metadata = open(a["--metadata"], "w")
for i in range(5 if fault == "ends" else 100000):
    metadata.write(json.dumps({{"ExposureTime": exposure, "AnalogueGain": float(a.get("--gain", 1.0)), "Lux": 400.0}}) + ",\\n")
    metadata.flush()
    sys.stdout.buffer.write(bytes([i % 256]) * (w * h) + bytes([128]) * (w * h // 2))
    sys.stdout.buffer.flush()
    if fault == "hangs" and i == 5:
        time.sleep(60)
    time.sleep(0.005)
"""
FIXED = CameraControls(exposure_s=0.003, gain=4.0, focus=1.5)


@pytest.fixture
def started(tmp_path, monkeypatch):
    """The command lines with which the program was started; its fault is given to `with_fault`."""
    program = tmp_path / rpicam.PROGRAM
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_ARGUMENTS", str(tmp_path / "arguments"))
    return lambda: (tmp_path / "arguments").read_text().splitlines()


def pi(**changes):
    return vehicle(**{"device": "rpicam", "width_px": 192, "height_px": 160, "rate_hz": 100.0, **changes})


def test_the_brightness_of_its_frames_is_the_image(started):
    source = open_source(None, pi(controls=FIXED))
    try:
        images = [image for _ in range(5) if (image := source.read())]
        assert len(images) == 5
        assert [(i.width, i.height, len(set(i.data))) for i in images] == [(192, 160, 1)] * 5
        assert all(b.data[0] > a.data[0] and b.stamp_s > a.stamp_s for a, b in zip(images, images[1:], strict=False))
    finally:
        source.close()
    (line,) = started()
    for part in (
        "--camera 0",
        "--width 192 --height 160 --framerate 100",
        "--shutter 3000",
        "--gain 4",
        "--lens-position 1.5",
    ):
        assert part in line


def test_a_camera_that_did_not_take_its_exposure_is_refused(started, monkeypatch):
    monkeypatch.setenv("FAKE_FAULT", "exposure")
    with pytest.raises(
        ConfigError, match=r"^camera rpicam:1: did not take camera.controls: exposure_s = 0.003 \(it has 0.033\)$"
    ):
        open_source("rpicam:1", pi(controls=FIXED))


def test_a_camera_that_did_not_take_its_exposure_is_used_in_flight_and_reported(started, monkeypatch):
    monkeypatch.setenv("FAKE_FAULT", "exposure")
    reported = []
    capture = rpicam.open_rpicam(pi(controls=FIXED).camera, "rpicam", reported.append)
    assert capture.read()[0]
    capture.release()
    assert reported == ["did not take camera.controls: exposure_s = 0.003 (it has 0.033)"]


def test_what_the_program_says_is_the_users_line(started, monkeypatch):
    monkeypatch.setenv("FAKE_FAULT", "absent")
    with pytest.raises(
        ConfigError, match=r"^camera rpicam: rpicam-vid delivers no image: ERROR: \*\*\* no cameras available"
    ):
        open_source(None, pi())


@pytest.mark.parametrize("fault", ["ends", "hangs"])
def test_a_program_that_ends_or_hangs_is_started_again(started, monkeypatch, fault):
    monkeypatch.setenv("FAKE_FAULT", fault)
    monkeypatch.setattr(rpicam, "FRAME_TIMEOUT_S", 0.2)
    monkeypatch.setattr(rpicam.RpicamCapture.read, "__defaults__", (0.2,))
    monkeypatch.setattr("companion.tracking.cameras.REOPEN_PAUSE_S", 0.01)
    source = open_source(None, pi())
    until_s = monotonic_s() + 10.0
    while not source.reopened and monotonic_s() < until_s:
        source.read()
    assert source.reopened and source.last_error == "camera rpicam: stopped delivering"
    source.close()
    time.sleep(0.3)


def test_a_program_that_is_not_installed_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ConfigError, match=r"^camera rpicam: rpicam-vid cannot be started \(No such file.*install rpicam-apps"
    ):
        open_source(None, pi())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"width_px": 200}, "camera.width_px = 200, camera.height_px = 160: the width must be a multiple of 64"),
        ({"controls": CameraControls(white_balance_k=4600.0)}, "white_balance_k: not for this camera"),
    ],
)
def test_what_it_cannot_deliver_is_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        open_source(None, pi(**changes))


def test_descriptors_are_closed(started):
    before = len(os.listdir("/dev/fd"))
    for _ in range(3):
        rpicam.RpicamCapture(pi().camera, "rpicam").release()
    assert len(os.listdir("/dev/fd")) <= before
