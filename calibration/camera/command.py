"""``companion calibrate camera``: intrinsics of a camera from pictures of a board."""

import sys
from pathlib import Path

import click
import msgspec
import numpy as np
from msgspec.structs import replace
from rich.progress import track

from calibration.camera.board import Board, load_board
from calibration.camera.board_detection import HINT_IMAGES, BoardDetector, View, hint
from calibration.camera.fit import COEFFICIENTS, NAMES, Lens, LensModel, board_shapes
from calibration.camera.images import image_files, read_all
from calibration.camera.problem import Problem
from calibration.camera.views import Calibration, calibrate, projection_std
from calibration.results import DataError, Result, result, write_json
from calibration.vehicle_file import Change, confirm_and_write
from companion.core.arrays import Image8
from companion.core.command_line import HELP, ConfigFile, OutputFile, OutputFolder, WritableVehicle, one_line_errors
from companion.core.config import ConfigError, parse, read_layered
from companion.core.config_files import ConfigKind
from companion.core.vehicle import Vehicle

SAME_SHAPE = 0.005  # of the ratio of width to height: pictures that differ by more are not the same picture rescaled


@click.command(context_settings=HELP)
@click.argument("images", nargs=-1, type=click.Path(path_type=Path))
@click.option("--board", "board_file", type=ConfigFile(ConfigKind.BOARD), required=True, help="config/boards/*.toml")
@click.option(
    "--live", "device", default=None, help="Take the pictures with a device (0, /dev/video0) or from a video file."
)
@click.option(
    "--save", type=click.Path(path_type=Path), default=None, help="With --live: folder for the pictures that are taken."
)
@click.option("--vehicle", type=WritableVehicle(), default=None, help="Vehicle file to write into.")
@click.option("--model", type=click.Choice(["pinhole", "fisheye"]), default="pinhole", show_default=True)
@click.option("--coefficients", type=int, default=None, help="Of the distortion: 4, 5 (default) or 8; fisheye 4.")
@click.option("--fit-board", is_flag=True, help="Fit stretch, marker size and bend of the printed board, too.")
@click.option(
    "--rescale", is_flag=True, help="The vehicle's images are these pictures, reduced or enlarged as a whole."
)
@click.option("--plots", type=OutputFolder(), default=None, help="Folder for coverage.png, residuals.png.")
@click.option("--json", "json_file", type=OutputFile(), default=None, help="Write the result here.")
@click.option("--yes", is_flag=True, help="Write into the vehicle file without asking.")
@one_line_errors
def command(
    images: tuple[Path, ...],
    board_file: Path,
    device: str | None,
    save: Path | None,
    vehicle: Path | None,
    model: LensModel,
    coefficients: int | None,
    fit_board: bool,
    rescale: bool,
    plots: Path | None,
    json_file: Path | None,
    yes: bool,
) -> None:
    """Intrinsics of a camera from IMAGES of a board: files, folders, or --live from the camera itself.

    --vehicle names the file to write into; without it nothing is written.
    """
    coefficients = coefficients or (4 if model == "fisheye" else 5)
    if coefficients not in COEFFICIENTS[model]:
        allowed = ", ".join(str(n) for n in COEFFICIENTS[model])
        raise ConfigError(f"--coefficients {coefficients}: a {model} camera has {allowed}")
    board = load_board(board_file)
    target = _target(vehicle) if vehicle else None
    if device is not None:
        images = (*images, _take(device, board, target, save))
    if not images:
        raise ConfigError("no images: name files or folders, or take them with --live DEVICE")
    views, size, rejected, tip = _views(images, board, None if rescale or target is None else target)
    try:
        calibration = calibrate(board, views, size, model, coefficients, fit_board, rejected, tip)
    except DataError as error:
        if device is None:
            raise
        taken = images[-1]
        raise DataError(
            f"{error}; the pictures are in {taken}: take more (--live {device} --save DIR), and give both folders:"
            f" companion calibrate camera {taken} DIR --board {board_file}"
        ) from None
    lens, flown_size = calibration.fit.lens, calibration.size
    if target is not None:
        flown_size = (target.camera.width_px, target.camera.height_px)
        lens = _rescaled(lens, size, flown_size)
    content = _result(images, board, calibration, lens, flown_size)
    _show(calibration, content)
    if plots:
        from calibration.camera.plots import write_plots

        click.echo("plots: " + ", ".join(str(p) for p in write_plots(plots, calibration)))
    if json_file:
        write_json(json_file, content)
    if vehicle:
        source = f"{images[0].resolve().name}{' …' if len(images) > 1 else ''}"
        merit = f"{source}: {len(calibration.views)} views, rms {calibration.fit.rms_px:.2f} px"
        std = dict(zip(("fx_px", "fy_px", "cx_px", "cy_px"), calibration.fit.std[:4], strict=True))
        notes = {f"camera.{key}": f"{merit}, ± {value:.2g} px" for key, value in std.items()}
        changes = [Change(key, value, notes.get(key, merit)) for key, value in content["values"].items()]
        confirm_and_write(vehicle, changes, yes)


def _target(path: Path) -> Vehicle:
    """The vehicle to write into; its lens, which may be that of another size of the picture, is not asked: it is replaced."""
    vehicle = parse(read_layered(path), Vehicle, str(path))
    camera = vehicle.camera
    centred = replace(camera, cx_px=(camera.width_px - 1) / 2, cy_px=(camera.height_px - 1) / 2)
    if problem := replace(vehicle, camera=centred).contradiction():
        raise ConfigError(f"{path}: {problem}")
    return vehicle


def _views(
    images: tuple[Path, ...], board: Board, target: Vehicle | None
) -> tuple[list[View], tuple[int, int], dict[str, Problem], str]:
    """The views of all images, their size, the unreadable files, and a hint if no view is usable.

    target: the vehicle whose image size these must have; None: any.
    """
    files = image_files(images)
    detector = BoardDetector(board)
    rejected: dict[str, Problem] = {}
    views: list[View] = []
    samples: list[Image8] = []
    size: tuple[int, int] | None = None
    names = _names(files)
    shown = track(
        read_all(files, rejected), "looking for the board", len(files), transient=True, disable=not sys.stderr.isatty()
    )
    for path, gray in shown:
        if size is None:
            size = gray.shape[1], gray.shape[0]
            if target is not None:
                _same_size(size, target, path)
        views.append(detector.view(gray, names[path]))
        if views[-1].problem and len(samples) < HINT_IMAGES:
            samples.append(gray)
    if size is None:
        raise DataError(f"{files[0]}: cannot be read as an image" + (", nor any other" if len(files) > 1 else ""))
    wrong = sum(bool(v.problem) for v in views) > len(views) / 2
    return views, size, rejected, hint(board, samples, views) if wrong else ""


def _names(files: list[Path]) -> dict[Path, str]:
    """A name for each file: with its folder if two have the same name."""
    names = [path.name for path in files]
    return {path: path.name if names.count(path.name) == 1 else str(path) for path in files}


def _same_size(size: tuple[int, int], target: Vehicle, path: Path) -> None:
    camera = target.camera
    if size != (camera.width_px, camera.height_px):
        raise DataError(
            f"{path}: {size[0]} x {size[1]} px, the vehicle file's camera {camera.width_px} x {camera.height_px} px: "
            "take pictures of that size, or use --rescale if the camera only reduces or enlarges the whole picture"
        )


def _rescaled(lens: Lens, size: tuple[int, int], to: tuple[int, int]) -> Lens:
    """The lens in a picture reduced or enlarged as a whole; pixel centres are whole numbers."""
    if size == to:
        return lens
    x, y = to[0] / size[0], to[1] / size[1]
    if abs(x / y - 1) > SAME_SHAPE:
        raise DataError(
            f"{size[0]} x {size[1]} px cannot be rescaled to {to[0]} x {to[1]} px: the ratio of width to height "
            "differs, so the images show another part of the picture"
        )
    fx, fy, cx, cy = lens.numbers[:4]
    scaled = [fx * x, fy * y, (cx + 0.5) * x - 0.5, (cy + 0.5) * y - 0.5]
    return Lens(lens.model, np.concatenate([scaled, lens.distortion]))


def _take(device: str, board: Board, target: Vehicle | None, save: Path | None) -> Path:
    if target is None:
        raise ConfigError("--live needs --vehicle: the device is set to its camera.width_px, height_px and rate_hz")
    from calibration.camera.live import take_pictures

    return take_pictures(device, board, target, save)


def _result(images: tuple[Path, ...], board: Board, c: Calibration, lens: Lens, size: tuple[int, int]) -> Result:
    numbers = [float(n) for n in lens.numbers]
    keys = ("camera.fx_px", "camera.fy_px", "camera.cx_px", "camera.cy_px")
    values = {"camera.model": lens.model, **dict(zip(keys, numbers, strict=False)), "camera.distortion": numbers[4:]}
    std = projection_std(c.fit.lens, c.fit.covariance, c.size)
    names = ["fx_px", "fy_px", "cx_px", "cy_px", *NAMES[lens.model][: len(numbers) - 4]]
    merit = {
        "rms_px": c.fit.rms_px,
        "views": len(c.views),
        "corners": c.corners,
        "coverage": c.coverage,
        "reach": c.radius,
        "largest_angle_deg": np.degrees(c.angle_rad),
        "projection_std_px": float(np.sqrt(np.nanmean(std**2))),
        "projection_std_max_px": float(np.nanmax(std)),
        **{f"{name}_std": float(value) for name, value in zip(names, c.fit.std, strict=True)},
    }
    details = {
        "image_size_px": c.size,
        "values_are_for_px": size,
        "board": {"name": board.name, **msgspec.to_builtins(board.layout)},
        "views": [
            {"name": v.name, "corners": len(v.numbers), "rms_px": float(e), "blur_px": v.blur_px}
            for v, e in zip(c.views, c.fit.view_rms_px, strict=True)
        ],
        "rejected": {name: str(problem) for name, problem in c.rejected.items()},
        "covariance": c.fit.covariance,
    }
    if len(c.fit.board):
        fitted = zip(board_shapes(board)[0], c.fit.board, c.fit.board_std, strict=True)
        details["board_fitted"] = {name: {"value": float(b), "std": float(s)} for name, b, s in fitted}
    return result("calibrate camera", images, values, merit, c.warnings, details)


def _show(c: Calibration, content: Result) -> None:
    merit, lens = content["merit"], c.fit.lens
    for name, reason in c.rejected.items():
        click.echo(f"left out  {name}: {reason}")
    click.echo(
        f"{merit['views']} views, {merit['corners']} corners, error {merit['rms_px']:.3f} px RMS, "
        f"{100 * merit['coverage']:.0f} % of the picture covered"
    )
    for name, value in zip(("fx", "fy", "cx", "cy"), ("fx_px", "fy_px", "cx_px", "cy_px"), strict=True):
        click.echo(f"  {name:4} {content['values'][f'camera.{value}']:10.2f} ± {merit[f'{value}_std']:.2f} px")
    for name, value in zip(NAMES[lens.model], lens.distortion, strict=False):
        click.echo(f"  {name:4} {value:10.5f} ± {merit[f'{name}_std']:.5f}")
    click.echo(
        f"  projection ± {merit['projection_std_px']:.2f} px over the picture, "
        f"at most {merit['projection_std_max_px']:.2f} px"
    )
    for name, fitted in content["details"].get("board_fitted", {}).items():
        click.echo(f"  board {name:8} {fitted['value']:9.5f} ± {fitted['std']:.5f}")
    for warning in c.warnings:
        click.echo(f"warning: {warning}")
