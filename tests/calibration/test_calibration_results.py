"""The result file of a calibration command: one schema, plain JSON, whole or not there."""

import json

import numpy as np
import pytest

from calibration.results import result, write_json
from companion.core.config import ConfigError


def test_numpy_and_what_is_not_finite_become_json(tmp_path):
    content = result(
        "calibrate thrust",
        [tmp_path / "a.csv"],
        {"thrust.voltage_exponent": np.float64(1.5), "camera.width_px": np.int32(640)},
        {"r2": np.nan, "residuals_n": np.array([[1.0, np.inf]])},
        details={"ok": np.bool_(True), "both": (1, "two", None)},
    )
    write_json(tmp_path / "new" / "result.json", content)
    read = json.loads((tmp_path / "new" / "result.json").read_text())
    assert list(read) == ["schema", "command", "date", "inputs", "values", "merit", "warnings", "details"]
    assert read["values"] == {"thrust.voltage_exponent": 1.5, "camera.width_px": 640}
    assert read["merit"] == {"r2": None, "residuals_n": [[1.0, None]]}
    assert read["details"] == {"ok": True, "both": [1, "two", None]}


def test_a_folder_in_its_place_is_one_line(tmp_path):
    (tmp_path / "result.json").mkdir()
    with pytest.raises(ConfigError, match="result.json: cannot be written"):
        write_json(tmp_path / "result.json", {})
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
