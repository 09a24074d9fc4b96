"""A vehicle file that the commands alone have produced flies as well as the one written by hand.

One test, so that its flights and fits are made once however many processes share the tests.
"""

import numpy as np
import pytest
from calibrated_vehicle import HAND_WRITTEN, WRONG, Owner, true_camera, value

from companion.core.config import load, read_layered
from companion.core.frames import quat_normalized, rotation_matrix
from companion.core.vehicle import Vehicle

WITHIN = 1.2  # times the error with the hand-written file


@pytest.mark.verify
def test_bench_pictures_and_two_flights_make_a_file_that_flies_as_the_one_written_by_hand(monkeypatch, tmp_path):
    owner = Owner(monkeypatch, tmp_path)
    owner.calibrate()
    every_number_was_found(owner)
    mine, by_hand = owner.hover_wind(owner.file), owner.hover_wind(HAND_WRITTEN)
    assert mine["completed"] and by_hand["completed"]
    assert mine["position_rms_m"] <= WITHIN * by_hand["position_rms_m"]


def every_number_was_found(owner: Owner) -> None:
    tables, text = read_layered(owner.file), owner.file.read_text(encoding="utf-8")
    assert not [key for key, wrong in WRONG.items() if value(tables, key) == wrong]
    for source in ("raw.csv: ", "photographs: ", "identification.mcap: ", "calibration.mcap: "):
        assert source in text  # each command has noted the source of its numbers; two of the bench were replaced
    found, true = load(owner.file, Vehicle), true_camera()
    for key in ("fx", "fy", "cx", "cy"):
        assert getattr(found.camera, f"{key}_px") == pytest.approx(true[key], abs=1.0), key
    assert found.camera.p_BC == pytest.approx(true["p_BC"], abs=0.005)
    turned = rotation_matrix(quat_normalized(true["q_BC"])).T @ rotation_matrix(quat_normalized(found.camera.q_BC))
    assert np.degrees(np.arccos(np.clip((np.trace(turned) - 1) / 2, -1, 1))) < 0.5
    assert found.latency.camera_s == pytest.approx(true["latency_s"], abs=0.005)
