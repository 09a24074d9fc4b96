"""Raw data of a bench: a CSV that is written line by line, before it is used.

The steps that are still to be measured are read from it, so an interrupted run continues where it stopped.
"""

import csv
import errno
import fcntl
import math
import os
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from calibration.results import DataError
from calibration.thrust.bench.bench_file import Bench
from calibration.thrust.bench.sweep import Reading, Step, plan
from companion.core.config import ConfigError

COLUMNS = (
    "run", "battery", "step", "direction", "reading", "time_s", "target_us", "pwm_us", "thrust_n", "voltage_v",
    "current_a", "tare_n",
)  # fmt: skip
_PLAN, _BENCH = "# sweep: ", "# bench: "
CLOSE_S = 5.0  # for the disk at the end


@dataclass
class Progress:
    """The content of a file so far."""

    run: int = 0  # the newest
    measured: dict[int, set[int]] = field(default_factory=dict)  # battery → numbers of the steps that are complete
    thrust_n: dict[int, dict[float, float]] = field(default_factory=dict)  # battery → pulse width → thrust

    def missing(self, bench: Bench, battery: int) -> list[Step]:
        """Steps of a battery, counted from 1, that are not measured yet."""
        return [step for step in plan(bench.sweep) if step.number not in self.measured.get(battery, set())]


def _signature(bench: Bench) -> str:
    s = bench.sweep
    way = "up and down" if s.down else "up"
    return f"{s.lowest_us:g} to {s.highest_us:g} us in steps of {s.step_us:g}, {way}, {s.readings} readings each"


def _identity(bench: Bench) -> str:
    """Motor, output and stand, as the bench file states them: another one of these is another measurement."""
    motor, scale = bench.motor, bench.scale
    return (
        f"{bench.name}; motor {motor.number}, output {motor.output} of port {motor.port}, {motor.pwm_min_us:g} to "
        f"{motor.pwm_max_us:g} us ({motor.read_back}); scale in {scale.unit}, sign {scale.sign}"
    )


def read_progress(path: Path, bench: Bench) -> Progress:
    """The measured steps; raises `DataError` with one line if the file is of another sweep or not of a bench."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    sweep = next((line.removeprefix(_PLAN) for line in lines if line.startswith(_PLAN)), None)
    if sweep is None:
        raise DataError(f"{path}: not raw data of a thrust bench")
    if sweep != _signature(bench):
        raise DataError(
            f"{path}: was begun with another sweep ({sweep}); the bench file has {_signature(bench)}: "
            "use the former bench file, or another file with --save"
        )
    begun = next((line.removeprefix(_BENCH) for line in lines if line.startswith(_BENCH)), None)
    if begun is not None and begun != _identity(bench):
        raise DataError(
            f"{path}: was begun on another bench or with another motor ({begun}); the bench file has "
            f"{_identity(bench)}: name another file with --save"
        )
    progress = Progress()
    counts: dict[tuple[int, int], int] = {}  # (battery, step) → readings
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        try:  # the last line may have been cut off
            battery, step, run = int(row["battery"]), int(row["step"]), int(row["run"])
            target, thrust, tare = float(row["target_us"]), float(row["thrust_n"]), row["tare_n"]
        except (KeyError, TypeError, ValueError):
            continue
        if tare:
            progress.run = max(progress.run, run)
            counts[battery, step] = max(counts.get((battery, step), 0), int(row["reading"]))
            progress.thrust_n.setdefault(battery, {})[target] = thrust
    for (battery, step), count in counts.items():
        if count >= bench.sweep.readings:
            progress.measured.setdefault(battery, set()).add(step)
    return progress


class RawFile:
    """Appends readings; every line is flushed, every step is synchronised to the disk, by a thread.

    A slow disk must not hold up the cycle: the motor stops if the commands stay away.
    """

    def __init__(self, path: Path, bench: Bench) -> None:
        """Opens for appending, with a head if it is new; raises `ConfigError` with one line."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and (whole := path.read_bytes().rfind(b"\n") + 1) < path.stat().st_size:
                os.truncate(path, whole)  # an incomplete line is not a reading
            self._file = open(path, "a", encoding="utf-8", newline="")  # noqa: SIM115 - closed by `close`
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"{path}: another run of the bench writes into it") from None
            if self._file.tell() == 0:
                self._line(f"# thrust bench: {bench.name}, {datetime.now().isoformat(timespec='seconds')}")
                self._line(_PLAN + _signature(bench))
                self._line(_BENCH + _identity(bench))
                self._line(",".join(COLUMNS))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from None
        self._due, self._ends, self._error = threading.Event(), False, ""
        self._thread = threading.Thread(target=self._synchronise, name="raw file", daemon=True)
        self._thread.start()

    def write(self, run: int, battery: int, tare_n: float, reading: Reading) -> None:
        """Append one reading; OSError if the disk is full or the file was removed."""
        if self._error:
            raise OSError(self._error)
        if os.fstat(self._file.fileno()).st_nlink == 0:  # it can be written to, and is lost at the end
            raise OSError(errno.ENOENT, "the file was removed during the run: its readings are lost")
        numbers = (reading.pwm_us, reading.thrust_n, reading.voltage_v, reading.current_a, tare_n)
        digits = (0, 5, 4, 3, 5)
        cells = ["" if math.isnan(n) else f"{n:.{d}f}" for n, d in zip(numbers, digits, strict=True)]
        step = reading.step
        head = (run, battery, step.number, step.direction, reading.number, f"{reading.time_s:.3f}", f"{step.pwm_us:g}")
        self._line(",".join([*map(str, head), *cells]))
        if reading.number == 1:
            self._due.set()

    def remark(self, text: str) -> None:
        """Append a line that is no reading: why the run ended, for the case that the terminal is gone."""
        with suppress(OSError, ValueError):
            self._line("# " + " ".join(text.split()))

    def close(self) -> None:
        self._ends = True
        self._due.set()
        self._thread.join(CLOSE_S)
        with suppress(OSError):
            self._file.close()

    def _synchronise(self) -> None:
        while not self._ends:
            self._due.wait()
            self._due.clear()
            try:
                os.fsync(self._file.fileno())
            except (OSError, ValueError) as error:
                self._error = getattr(error, "strerror", None) or str(error)

    def _line(self, text: str) -> None:
        self._file.write(text + "\n")
        self._file.flush()
