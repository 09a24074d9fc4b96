"""A recorded folder in the EuRoC layout becomes the messages of the devices."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import cv2
import msgspec
import numpy as np
import pytest

from companion.core.bus import ZmqBus
from companion.core.config import ConfigError
from companion.core.messages import CameraImu, StereoImages, Truth
from sitl.devices.stereo import images_of
from sitl.realtime import open_bus
from sitl.recorded import RecordedFolder, play

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("COMPANION_SHARED_DATA", ROOT.parent / "shared/data")) / "euroc_v1_01"
ZERO_NS = 1403715273262142976
CALIBRATION = """#Default camera sensor yaml file
sensor_type: camera
T_BS:
  cols: 4
  rows: 4
  data: [1.0, 0.0, 0.0, {x},
         0.0, 1.0, 0.0, 0.0,
         0.0, 0.0, 1.0, 0.0,
         0.0, 0.0, 0.0, 1.0]
resolution: [64, 48]
intrinsics: [40.5, 41.5, 31.0, 23.0] #fu, fv, cu, cv
distortion_coefficients: [-0.28, 0.07, 0.0002, 1.8e-05]
"""


def recording(folder, original=True, images=3, samples=41):
    """A second of flight as the data set has it, or as it is handed on in pieces."""
    root = folder / "mav0" if original else folder
    names = ("imu0/data.csv", "{}/data", "{}/sensor.yaml") if original else ("imu0.csv", "{}", "{}.yaml")
    rows = [f"{ZERO_NS + i * 5_000_000},{i / 100},0.2,-0.3,9.5,0.0,-{i}.5" for i in range(samples)]
    write(root / names[0], ["#timestamp [ns],w,a", *rows])
    for number, camera in enumerate(("cam0", "cam1")):
        write(root / names[2].format(camera), [CALIBRATION.format(x=0.11 * number)])
        (root / names[1].format(camera)).mkdir(parents=True, exist_ok=True)
        for i in range(images):
            picture = np.full((48, 64), 10 * i + number, np.uint8)
            cv2.imwrite(str(root / names[1].format(camera) / f"{ZERO_NS + i * 50_000_000}.png"), picture)
    times = range(0, samples, 10)
    if original:
        truths = [f"{ZERO_NS + i * 5_000_000},{i / 10},2.0,3.0,1.0,0.0,0.0,0.0,0.5,0.0,0.0,0,0,0,0,0,0" for i in times]
        write(root / "state_groundtruth_estimate0/data.csv", ["#timestamp", *truths])
    else:
        lines = []
        for i in times:
            seconds, rest = divmod(ZERO_NS + i * 5_000_000, 10**9)
            lines.append(f"{seconds}.{rest:09d} {i / 10} 2.0 3.0 0.0 0.0 0.0 1.0")
        write(root / "groundtruth_test.txt", ["# timestamp(s) tx ty tz qx qy qz qw", *lines])
    return folder


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("original", [True, False], ids=["data set", "pieces"])
def test_all_streams_come_in_the_order_of_their_stamps(tmp_path, original):
    recorded = RecordedFolder(recording(tmp_path, original))
    messages = list(recorded.messages(zero_s=100.0))
    stamps = [m.stamp_s for m in messages]
    assert stamps == sorted(stamps) and stamps[0] == 100.0
    samples, truths, pairs = ([m for m in messages if isinstance(m, k)] for k in (CameraImu, Truth, StereoImages))
    assert (len(samples), len(truths), len(pairs)) == (41, 5, 3)
    assert samples[7].gyro_I == (0.07, 0.2, -0.3) and samples[7].accel_I == (9.5, 0.0, -7.5)
    assert samples[7].stamp_s == pytest.approx(100.035, abs=1e-9)
    assert truths[1].p_W == (1.0, 2.0, 3.0) and truths[1].q_WB == (1.0, 0.0, 0.0, 0.0)
    assert truths[1].v_W == pytest.approx((0.5 if original else 20.0, 0.0, 0.0))
    assert truths[1].omega_B == (0.1, 0.2, -0.3)
    left, right = images_of(pairs[2])
    assert (left.shape, left[0, 0], right[0, 0]) == ((48, 64), 20, 21)
    assert pairs[2].stamp_s == pytest.approx(100.1, abs=1e-9)
    assert recorded.baseline_m == pytest.approx(0.11)
    calibration = recorded.calibration("cam1")
    assert calibration.intrinsics == (40.5, 41.5, 31.0, 23.0) and calibration.distortion[3] == 1.8e-05


def test_images_and_truth_may_be_absent(tmp_path):
    write(tmp_path / "imu0.csv", [f"{ZERO_NS},0,0,0,9.5,0,0", f"{ZERO_NS + 5_000_000},0,0,0,9.5,0,0"])
    recorded = RecordedFolder(tmp_path)
    assert not recorded.has_images and not recorded.has_truth
    assert [type(m) for m in recorded.messages()] == [CameraImu, CameraImu]
    with pytest.raises(ConfigError, match="no calibration of cam0"):
        recorded.calibration("cam0")


def test_a_velocity_is_not_derived_across_a_gap(tmp_path):
    folder = recording(tmp_path, original=False, samples=401)
    path = folder / "groundtruth_test.txt"
    lines = path.read_text().splitlines()
    write(path, lines[:10] + lines[20:])
    velocities = [m.v_W[0] for m in RecordedFolder(folder).messages() if isinstance(m, Truth)]
    assert np.flatnonzero(np.isnan(velocities)).tolist() == [8, 9]


def break_stamp(folder):
    path = folder / "imu0.csv"
    lines = path.read_text().splitlines()
    write(path, [*lines, lines[5]])


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda f: (f / "imu0.csv").unlink(), "no imu0/data.csv or imu0.csv"),
        (lambda f: write(f / "imu0.csv", ["1,2,3"]), "line 1 has 3 columns, needs 7"),
        (lambda f: write(f / "imu0.csv", ["1,a,b,c,d,e,f"]), "line 1: not numbers"),
        (lambda f: write(f / "imu0.csv", ["1,nan,0,0,0,0,0"]), "not finite"),
        (lambda f: write(f / "imu0.csv", ["#"]), "is empty"),
        (lambda f: (f / "imu0.csv").write_bytes(b"\xff\xfe"), "cannot be read"),
        (break_stamp, "do not ascend"),
        (lambda f: write(f / "groundtruth_test.txt", ["1.5 0 0 0 0 0 0 9"]), "length 1"),
        (lambda f: write(f / "groundtruth_2.txt", ["1.5 0 0 0 0 0 0 1"]), "2 files groundtruth"),
    ],
)
def test_a_folder_that_cannot_be_played_is_refused_with_one_line(tmp_path, spoil, why):
    folder = recording(tmp_path, original=False)
    spoil(folder)
    with pytest.raises(ConfigError, match=why) as refused:
        RecordedFolder(folder)
    assert "\n" not in str(refused.value)


def test_an_image_that_cannot_be_read_ends_the_playing_with_one_line(tmp_path):
    folder = recording(tmp_path, original=False)
    (folder / "cam1" / f"{ZERO_NS}.png").write_bytes(b"no image")
    with pytest.raises(ConfigError, match="not an image"):
        list(RecordedFolder(folder).messages())


def test_a_calibration_with_a_number_missing_is_refused(tmp_path):
    folder = recording(tmp_path, original=False)
    write(folder / "cam0.yaml", [CALIBRATION.format(x=0).replace("[40.5, ", "[")])
    with pytest.raises(ConfigError, match="intrinsics: 4 numbers"):
        RecordedFolder(folder).calibration("cam0")


def test_a_recording_is_published_at_its_times_as_the_simulators_topics(tmp_path):
    recorded = RecordedFolder(recording(tmp_path / "data"))
    source, sink = open_bus(tmp_path / "bus"), ZmqBus(tmp_path / "bus", "odometry", ("stereo", "camera_imu", "truth"))
    try:
        received, connected = [], set()
        one_of_each = {type(m): msgspec.structs.replace(m, stamp_s=0.0) for m in recorded.messages()}
        for _ in range(200):  # until ZeroMQ has connected the two, each topic by itself
            for message in one_of_each.values():
                source.publish(message)
            connected |= {type(m) for m in sink.receive(0.02)}
            if connected == set(one_of_each):
                break
        thread = threading.Thread(target=play, args=(recorded, source.publish, lambda: False, 50.0))
        thread.start()
        thread.join()
        while messages := sink.receive(0.2):
            received += [m for m in messages if m.stamp_s > 0.0]
    finally:
        source.close()
        sink.close()
    assert sum(isinstance(m, StereoImages) for m in received) == 3 and sum(isinstance(m, Truth) for m in received) == 5
    samples = [m.stamp_s for m in received if isinstance(m, CameraImu)]
    assert len(samples) == 41 and samples[-1] - samples[0] == pytest.approx(0.2 / 50.0, abs=1e-9)


def test_the_player_refuses_a_wrong_start_with_one_line(tmp_path):
    command = [sys.executable, "-m", "sitl.recorded", str(tmp_path / "none"), "--bus", str(tmp_path / "bus")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (2, f"recorded: {tmp_path}/none: no such folder\n")


@pytest.mark.skipif(not SHARED.exists(), reason="no ../shared/data")
def test_the_real_recording_has_its_known_figures():
    recorded = RecordedFolder(SHARED)
    assert recorded.has_images and recorded.has_truth
    assert recorded.baseline_m == pytest.approx(0.11, abs=0.001)
    assert recorded.calibration("cam0")[:2] == (752, 480)
    for message in recorded.messages():
        if isinstance(message, StereoImages):
            break
    assert (message.width, message.height, len(message.data)) == (752, 480, 2 * 752 * 480)
