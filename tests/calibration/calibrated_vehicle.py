"""An aircraft calibrated with the user's commands alone: a wrong vehicle file, and simulated data.

Every step is one command as a user types it, run in this process. The data are of the F550 of the experiments
(config/scenarios/common/laboratory.toml); the wrong file has other numbers.
"""

import json
from pathlib import Path

import cv2
import numpy as np
import tomlkit
from bench_user import User
from board_views import BoardCamera, poses
from calibration_paths import BOARDS, SCENARIOS, VEHICLES
from click.testing import CliRunner

from calibration.camera.board import load_board
from companion.cli import main
from companion.core.config import read_layered

HAND_WRITTEN, FLOWN = VEHICLES / "f550_floor.toml", SCENARIOS / "hover_wind.toml"
BOARD = BOARDS / "charuco_a4.toml"
FACTOR = 0.6  # THR_MDL_FAC on the bench and on the aircraft: with it the simulated motor is nearly a line
PICTURES = 20

WRONG = {  # numbers at the begin, by the key of the vehicle file
    "thrust.coefficient_m_s2": 24.5,  # -14 %
    "thrust.voltage_exponent": 1.1,
    "attitude.roll.time_constant_s": 0.18,  # +28 %
    "attitude.roll.gain": 0.9,
    "attitude.pitch.time_constant_s": 0.11,  # -23 %
    "attitude.pitch.gain": 1.1,
    "drag.linear_1_s": [0.35, 0.35, 0.0],  # +34 %
    "latency.actuation_s": 0.03,
    "latency.camera_s": 0.035,  # 25 ms too little
    "camera.fx_px": 540.0,  # -12 %
    "camera.fy_px": 680.0,  # +11 %
    "camera.cx_px": 332.0,
    "camera.cy_px": 230.0,
    "camera.distortion": [-0.2, 0.1, 0.0, 0.0, 0.0],
    "camera.p_BC": [0.095, -0.015, -0.03],  # 13, 17 and 21 mm off
    "camera.q_BC": [0.01, -0.7197, 0.6937, 0.012],  # 2.8° off
}


def value(tables: dict, key: str):
    """The value of a dotted key in the tables of a vehicle file."""
    for name in key.split("."):
        tables = tables[name]
    return tables


def write_wrong(file: Path) -> None:
    """The hand-written vehicle file with every calibrated number wrong."""
    tables = read_layered(HAND_WRITTEN)
    for key, number in WRONG.items():
        *path, name = key.split(".")
        value(tables, ".".join(path))[name] = number
    file.write_text(tomlkit.dumps(tables), encoding="utf-8")


def true_camera() -> dict:
    return read_layered(FLOWN)["camera"]


class Owner:
    """The user who calibrates the aircraft of the vehicle file `file`; `output` holds the output of each command."""

    def __init__(self, monkeypatch, folder: Path) -> None:
        self.monkeypatch, self.folder, self.output = monkeypatch, folder, {}
        self.file = folder / "mine.toml"
        write_wrong(self.file)

    def run(self, *words) -> str:
        """``companion WORDS…``, which must succeed."""
        done = CliRunner().invoke(main, list(map(str, words)), catch_exceptions=False)
        self.output[" ".join(map(str, words))] = done.output
        assert done.exit_code == 0, done.output
        return done.output

    def thrust(self) -> None:
        user = User(self.monkeypatch, self.folder, charges=(0.95, 0.1), factor=FACTOR)
        done = user.call("--vehicle", self.file, "--yes", "--thr-mdl-fac", FACTOR)
        self.output["thrust"] = done.output
        assert done.exit_code == 0, done.output

    def camera(self) -> None:
        """Photographs of a printed board by the aircraft's true camera."""
        true, folder = true_camera(), self.folder / "photographs"
        folder.mkdir()
        K = np.array([[true["fx"], 0, true["cx"]], [0, true["fy"], true["cy"]], [0, 0, 1]])
        camera = BoardCamera(load_board(BOARD), K, true["distortion"], (true["width"], true["height"]))
        for i, pose in enumerate(poses(camera, 0.4, 0.35, seed=5, count=PICTURES)):
            cv2.imwrite(str(folder / f"{i}.png"), camera.picture(*pose, blur_px=true["blur_px"]))
        self.run("calibrate", "camera", folder, "--board", BOARD, "--vehicle", self.file, "--yes")

    def identification(self) -> None:
        log = self.folder / "identification.mcap"
        self.run("sim", SCENARIOS / "identification.toml", "--vehicle", self.file, "--sensors", "kind", "--log", log)
        self.run("identify", log, "--vehicle", self.file, "--yes")

    def mount(self) -> None:
        """Mount and delay of the camera, from the calibration flight in still air with the camera of hover_wind."""
        tables = read_layered(SCENARIOS / "calibration.toml")
        tables["camera"] = true_camera() | {"sway_std_rad": tables["camera"]["sway_std_rad"]}
        tables["mission"] = str((SCENARIOS / tables["mission"]).resolve())
        scenario, log = self.folder / "calibration.toml", self.folder / "calibration.mcap"
        scenario.write_text(tomlkit.dumps(tables), encoding="utf-8")
        self.run("sim", scenario, "--vehicle", self.file, "--sensors", "kind", "--log", log)
        self.run("calibrate", "extrinsics", log, "--vehicle", self.file, "--yes")
        self.run("calibrate", "latency", log, "--vehicle", self.file, "--yes")

    def calibrate(self) -> None:
        """All steps in the order of docs/calibration.md."""
        self.thrust()
        self.camera()
        self.identification()
        self.mount()

    def hover_wind(self, vehicle: Path, seed: int = 1) -> dict:
        """Figures of the flight in wind with a vehicle file."""
        out = self.folder / "flight.json"
        self.run("sim", FLOWN, "--vehicle", vehicle, "--seed", seed, "--sensors", "kind", "--json", out)
        return json.loads(out.read_text())
