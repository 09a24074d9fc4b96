"""Takes pictures of a board, with guidance in the terminal: covered parts of the picture, and where to hold it next.

A picture is kept when the board stands still and adds information: corners in a part of the picture without any, or a
direction of tilt that is still missing. It ends when nothing is missing, or with Ctrl-C.
"""

import time
from contextlib import nullcontext
from pathlib import Path

import cv2
import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from calibration.camera.board import Board
from calibration.camera.board_detection import BoardDetector, View
from calibration.camera.fit import Lens, poses_of
from calibration.camera.views import CELLS, cell_counts
from companion.core.config import ConfigError
from companion.core.vehicle import Vehicle
from companion.tracking.cameras import open_source

STILL_OF_WIDTH = 0.004  # motion between two images below which the board stands still
NEW_OF_WIDTH = 0.012  # least mean distance of all corners from every kept picture; the opposite tilt is little farther
NEW_CELLS = 2  # new cells of the picture that one more picture must cover, unless its tilt is new
FLAT_RAD, TILTED_RAD = np.radians(12.0), np.radians(20.0)
BLUR_PX = 2.5
WANTED_COVERAGE, WANTED_PICTURES = 0.8, 15
WANTED = {"straight on": 2, "facing left": 2, "facing right": 2, "facing up": 2, "facing down": 2}
LINE_EVERY_S = 2.0  # without a terminal


class Guide:
    """Decides which views to keep, and what is missing.

    lens: a rough lens is sufficient, because only the tilt depends on it. size: of the images [px].
    """

    def __init__(self, board: Board, lens: Lens, size: tuple[int, int]) -> None:
        self._board, self._lens, self._size = board, lens, size
        self._last: View | None = None
        self.kept: list[View] = []
        self.counts = np.zeros(CELLS[::-1], int)
        self.tilts = dict.fromkeys(WANTED, 0)

    def consider(self, view: View) -> str:
        """Keeps a view and returns "", or returns the reason why it is not kept."""
        last, self._last = self._last, view
        if view.problem:
            return str(view.problem)
        if view.blur_px > BLUR_PX:
            return "blurred: more light, or hold still"
        width = self._size[0]
        if last is None or last.problem or _distance(view, last) > STILL_OF_WIDTH * width:
            return "hold still"
        if any(_distance(view, other) < NEW_OF_WIDTH * width for other in self.kept):
            return "seen already: move on"
        tilt, cells = self._tilt(view), cell_counts(view.pixels, self._size)
        fresh = int(np.count_nonzero((cells > 0) & (self.counts == 0)))
        new_tilt = tilt is not None and self.tilts[tilt] < WANTED[tilt]
        if fresh < NEW_CELLS and not new_tilt and not (len(self.kept) < WANTED_PICTURES and not self._open()):
            return "nothing new: move on"
        self.kept.append(view)
        self.counts += cells
        if tilt is not None:
            self.tilts[tilt] += 1
        return ""

    @property
    def complete(self) -> bool:
        """Whether no picture is missing."""
        return not self._open() and len(self.kept) >= WANTED_PICTURES

    def _open(self) -> bool:
        return self.coverage < WANTED_COVERAGE or any(self.tilts[t] < n for t, n in WANTED.items())

    @property
    def coverage(self) -> float:
        """Share of the cells of the picture with corners."""
        return float(np.mean(self.counts > 0))

    def advice(self) -> str:
        """The next action for the user."""
        if missing := [tilt for tilt, n in WANTED.items() if self.tilts[tilt] < n]:
            return f"hold the board {missing[0]}"
        if self.coverage < WANTED_COVERAGE:
            rows, columns = np.nonzero(self.counts == 0)
            vertical = ("top", "middle", "bottom")[int(3 * rows[0] / CELLS[1])]
            side = ("left", "middle", "right")[int(3 * columns[0] / CELLS[0])]
            return f"move it to the {vertical} {side} of the picture"
        return "take a few more, at new places" if not self.complete else "enough"

    def drawing(self, verdict: str) -> Group:
        """Cells of the picture with and without corners, tilts, and the next action."""
        here = np.zeros_like(self.counts)
        if self._last is not None and len(self._last.pixels):
            here = cell_counts(self._last.pixels, self._size)
        lines = []
        for covered, now in zip(self.counts, here, strict=True):
            line = Text("  ")
            for n, inside in zip(covered, now, strict=True):
                line.append("▓▓▓" if n else " · ", "green" if n else "dim")
                if inside:
                    line.stylize("reverse", len(line) - 3)
            lines.append(line)
        tilts = "  ".join(f"{tilt} {self.tilts[tilt]}/{n}" for tilt, n in WANTED.items())
        state = f"{len(self.kept)} pictures, {100 * self.coverage:.0f} % covered   {verdict or 'taken'}"
        return Group(*lines, Text(tilts), Text(state), Text(f"next: {self.advice()}", "bold"))

    def _tilt(self, view: View) -> str | None:
        points = self._board.points_m[view.numbers]
        pose = poses_of(self._lens, [points], [view.pixels])[0]
        R = cv2.Rodrigues(pose[:3])[0]
        sight = R @ points.mean(0) + pose[3:]
        sight /= np.linalg.norm(sight)
        facing = R[:, 2] * np.sign(R[:, 2] @ sight)  # away from the camera
        angle = np.arccos(np.clip(facing @ sight, -1, 1))
        x, y, _ = facing - (facing @ sight) * sight
        if angle < FLAT_RAD:
            return "straight on"
        if angle < TILTED_RAD:
            return None
        if abs(x) > abs(y):
            return "facing left" if x > 0 else "facing right"
        return "facing up" if y > 0 else "facing down"


def take_pictures(device: str, board: Board, vehicle: Vehicle, save: Path | None) -> Path:
    """Take pictures from a device or a video file; returns the folder that holds them.

    Raises `ConfigError` when the device cannot be opened, the folder holds images already, or none was taken.
    """
    camera = vehicle.camera
    folder = save or Path("flights") / f"camera_{time.strftime('%Y%m%d_%H%M%S')}"
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: is not empty; name another folder with --save")
    source = open_source(device, vehicle)
    folder.mkdir(parents=True, exist_ok=True)
    numbers = [camera.fx_px, camera.fy_px, camera.cx_px, camera.cy_px, *camera.distortion]
    guide = Guide(board, Lens(camera.model, np.array(numbers)), (camera.width_px, camera.height_px))
    detector, console = BoardDetector(board), Console(stderr=True)
    live = Live(console=console, refresh_per_second=8) if console.is_terminal else None
    logged_s = 0.0
    try:
        with live or nullcontext():
            while not source.finished and not guide.complete:
                image = source.read()
                if image is None:
                    continue
                gray = np.frombuffer(image.data, np.uint8).reshape(image.height, image.width)
                verdict = guide.consider(detector.view(gray, f"{len(guide.kept):03d}.png"))
                if not verdict and not cv2.imwrite(str(folder / guide.kept[-1].name), gray):
                    raise ConfigError(f"{folder}: cannot be written")
                if live is not None:
                    live.update(guide.drawing(verdict))
                elif not verdict or time.monotonic() - logged_s > LINE_EVERY_S:
                    logged_s = time.monotonic()
                    console.print(f"{len(guide.kept)} pictures; {verdict or 'taken'}; next: {guide.advice()}")
    except KeyboardInterrupt:
        pass
    finally:
        source.close()
    if not guide.kept:
        why = f" ({source.last_error})" if source.last_error else ""
        raise ConfigError(f"camera {device}: no picture of the board was taken{why}")
    console.print(f"{len(guide.kept)} pictures in {folder} (another folder: --save DIR)", markup=False, soft_wrap=True)
    return folder


def _distance(a: View, b: View) -> float:
    """Mean distance of the corners that both have [px]; infinite if they share less than half."""
    _, mine, theirs = np.intersect1d(a.numbers, b.numbers, return_indices=True)
    if len(mine) < 0.5 * max(len(a.numbers), len(b.numbers)):
        return float("inf")
    return float(np.linalg.norm(a.pixels[mine] - b.pixels[theirs], axis=1).mean())
