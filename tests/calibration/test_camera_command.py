"""``companion calibrate camera`` from end to end: what it writes, and one clear line for what a user gets wrong."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from board_views import BoardCamera, poses
from calibration_paths import BOARDS, F550
from click.testing import CliRunner

from calibration.camera.board import load_board
from calibration.camera.command import command
from companion.core.config import load
from companion.core.vehicle import Vehicle

BOARD = BOARDS / "grid_a4.toml"
K = np.array([[305.0, 0, 161.0], [0, 306.0, 118.5], [0, 0, 1]])
BARREL = [-0.12, 0.05, 0.0005, -0.0003, 0.0]
SIZE = (320, 240)


@pytest.fixture(scope="module")
def photographs(tmp_path_factory) -> Path:
    """A folder of ten pictures of the board, one of something else, and one that is no picture."""
    folder = tmp_path_factory.mktemp("photographs")
    camera = BoardCamera(load_board(BOARD), K, BARREL, SIZE)
    for i, pose in enumerate(poses(camera, 0.25, 0.42, seed=5, count=10)):
        cv2.imwrite(str(folder / f"{i}.png"), camera.picture(*pose, blur_px=0.4))
    noise = np.random.default_rng(1).normal(120, 20, SIZE[::-1]).clip(0, 255).astype(np.uint8)
    cv2.imwrite(str(folder / "ceiling.png"), cv2.GaussianBlur(noise, (0, 0), 3))
    (folder / "broken.jpg").write_bytes(b"\xff\xd8 not a picture")
    (folder / "notes.txt").write_text("not looked at")
    return folder


@pytest.fixture
def vehicle(tmp_path) -> Path:
    text = F550.read_text()
    text = text.replace("width_px = 640", "width_px = 320").replace("height_px = 480", "height_px = 240")
    file = tmp_path / "mine.toml"
    file.write_text(text)
    return file


def run(*arguments):
    return CliRunner().invoke(command, [str(a) for a in arguments])


def refused(*arguments) -> str:
    """The one line with which a call is refused."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    (line,) = [line for line in result.output.splitlines() if line.startswith("companion: ")]
    return line.removeprefix("companion: ")


def test_numbers_plots_and_result_are_written_and_bad_pictures_named(photographs, vehicle, tmp_path):
    before = vehicle.read_text()
    out = tmp_path / "out"
    arguments = (photographs, "--board", BOARD, "--vehicle", vehicle, "--json", out / "r.json", "--plots", out, "--yes")
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert "left out  ceiling.png: board not found" in result.output
    assert "left out  broken.jpg: cannot be read as an image" in result.output
    assert "+fx_px = 30" in result.output

    camera = load(vehicle, Vehicle).camera
    assert camera.fx_px == pytest.approx(305, rel=4e-3) and camera.cy_px == pytest.approx(118.5, abs=1.0)
    assert len(camera.distortion) == 5 and camera.model == "pinhole"
    changed = [a for a, b in zip(vehicle.read_text().splitlines(), before.splitlines(), strict=True) if a != b]
    assert len(changed) == 6 and all(photographs.name in line and "rms 0." in line for line in changed)

    content = json.loads((out / "r.json").read_text())
    assert content["command"] == "calibrate camera" and content["merit"]["views"] == 10
    assert content["values"]["camera.fx_px"] == pytest.approx(camera.fx_px, rel=1e-6)
    assert content["merit"]["fx_px_std"] < 2 and content["merit"]["rms_px"] < 0.2
    assert set(content["details"]["rejected"]) == {"ceiling.png", "broken.jpg"}
    for name in ("coverage.png", "residuals.png"):
        assert cv2.imread(str(out / name)).shape[0] > 400


def test_without_consent_nothing_is_written(photographs, vehicle):
    before = vehicle.read_bytes()
    result = CliRunner().invoke(
        command, [str(photographs), "--board", str(BOARD), "--vehicle", str(vehicle)], input="n\n"
    )
    assert result.exit_code == 0 and "nothing written" in result.output
    assert vehicle.read_bytes() == before


def test_pictures_of_another_size_than_the_vehicles_are_refused_or_rescaled(photographs, tmp_path):
    file = tmp_path / "f550.toml"
    file.write_text(F550.read_text())
    said = refused(photographs, "--board", BOARD, "--vehicle", file, "--yes")
    assert "0.png: 320 x 240 px, the vehicle file's camera 640 x 480 px" in said and "--rescale" in said
    result = run(photographs, "--board", BOARD, "--vehicle", file, "--yes", "--rescale")
    assert result.exit_code == 0, result.output
    camera = load(file, Vehicle).camera
    assert camera.fx_px == pytest.approx(610, rel=4e-3)
    assert camera.cx_px == pytest.approx(2 * 161.5 - 0.5, abs=2.0)
    wide = tmp_path / "wide.toml"
    wide.write_text(file.read_text().replace("height_px = 480", "height_px = 360"))
    assert "cannot be rescaled to 640 x 360 px" in refused(
        photographs, "--board", BOARD, "--vehicle", wide, "--rescale"
    )


def test_a_phones_turned_pictures_are_those_of_its_sensor(photographs, tmp_path):
    """EXIF orientation 6 on half of them: the pixels are the same, and so is the calibration."""
    import PIL.Image

    for i in range(10):
        picture = PIL.Image.open(photographs / f"{i}.png")
        exif = PIL.Image.Exif()
        exif[274] = 6 if i % 2 else 1
        picture.save(tmp_path / f"{i}.jpg", quality=97, exif=exif)
    result = run(tmp_path, "--board", BOARD, "--json", tmp_path / "r.json")
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "r.json").read_text())
    assert content["details"]["image_size_px"] == [320, 240]
    assert content["values"]["camera.fx_px"] == pytest.approx(305, rel=4e-3)


def test_pictures_of_mixed_sizes_are_refused(photographs, tmp_path):
    for i in range(4):
        picture = cv2.imread(str(photographs / f"{i}.png"))
        cv2.imwrite(str(tmp_path / f"{i}.png"), picture if i else cv2.resize(picture, (160, 120)))
    said = refused(tmp_path, "--board", BOARD)
    assert said == "images of mixed sizes: 320 x 240 px (1.png, 2.png, 3.png); 160 x 120 px (0.png)"


def test_the_wrong_board_is_refused_with_the_visible_markers(photographs, tmp_path):
    board = tmp_path / "board.toml"
    board.write_text(BOARD.read_text().replace("columns = 4", "columns = 5").replace("rows = 5", "rows = 4"))
    said = refused(photographs, "--board", board)
    assert "4 columns and 5 rows would fit: exchange them in the board file" in said and "10 x not this board" in said
    board.write_text(BOARD.read_text().replace("aruco_6x6_1000", "aruco_5x5_100"))
    said = refused(photographs, "--board", board)
    assert "0 usable views of 12" in said and "markers of aruco_6x6_1000 are visible, ids 0 to 19" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no images: name files or folders, or take them with --live DEVICE"),
        (["gone"], "gone: no such file or folder"),
        (["empty"], "empty: the folder holds no images (.png .jpg"),
        (["empty/text.png"], "text.png: cannot be read as an image"),
        (["few"], "2 usable views of 2, at least 8 are needed"),
        (["few", "--coefficients", "6"], "--coefficients 6: a pinhole camera has 4, 5, 8"),
        (["few", "--model", "fisheye", "--coefficients", "5"], "--coefficients 5: a fisheye camera has 4"),
        (["--live", "0"], "--live needs --vehicle"),
        (["few", "--vehicle", "gone.toml"], "gone.toml: no such file"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(photographs, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    if arguments[:1] == ["empty/text.png"]:
        Path("empty/text.png").write_text("not a picture")
    Path("few").mkdir()
    for i in range(2):
        Path(f"few/{i}.png").write_bytes((photographs / f"{i}.png").read_bytes())
    assert said in refused(*arguments, "--board", BOARD)


def test_pictures_taken_live_are_kept_when_they_show_something_new(vehicle, tmp_path):
    """A video stands for the camera: the board rests at places all over the picture, moving in between."""
    camera = BoardCamera(load_board(BOARD), K, BARREL, SIZE, seed=4)
    frames = tmp_path / "frames"
    frames.mkdir()
    count = 0
    for pose in poses(camera, 0.25, 0.42, seed=5, count=12):
        for picture in (camera.picture(*pose, blur_px=0.4), camera.picture(*pose, blur_px=0.4)):
            cv2.imwrite(str(frames / f"{count}.png"), picture)
            count += 1
    vehicle.write_text(vehicle.read_text().replace("rate_hz = 30\n", "rate_hz = 240\n"))
    out = tmp_path / "taken"
    result = run("--live", frames, "--save", out, "--board", BOARD, "--vehicle", vehicle, "--yes")
    assert result.exit_code == 0, result.output
    taken = sorted(out.iterdir())
    assert 8 <= len(taken) <= 12  # one of each place, not two
    assert load(vehicle, Vehicle).camera.fx_px == pytest.approx(305, rel=6e-3)
    assert f"{len(taken)} pictures in {out} (another folder: --save DIR)" in result.output
    said = refused("--live", frames, "--save", out, "--board", BOARD, "--vehicle", vehicle)
    assert "is not empty; name another folder with --save" in said


def test_too_few_pictures_taken_live_are_kept_and_the_command_goes_on_from_them(photographs, vehicle, tmp_path):
    frames = tmp_path / "frames"
    frames.mkdir()
    for i in range(6):
        (frames / f"{i}.png").write_bytes((photographs / f"{i // 2}.png").read_bytes())
    vehicle.write_text(vehicle.read_text().replace("rate_hz = 30\n", "rate_hz = 240\n"))
    out = tmp_path / "taken"
    said = refused("--live", frames, "--save", out, "--board", BOARD, "--vehicle", vehicle)
    assert "at least 8 are needed" in said
    assert f"the pictures are in {out}: take more (--live {frames} --save DIR), and give both folders" in said
    assert f"companion calibrate camera {out} DIR --board {BOARD}" in said and list(out.iterdir())
