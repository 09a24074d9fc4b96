"""Campaigns of short flights that are killed, resumed, and flown on a cluster whose worker is killed; and their speed."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import distributed
import pyarrow.parquet as pq

from sitl.campaign.store import FLIGHTS, RESULTS
from tests.campaign.small_campaigns import MASS, campaign, draw

WAIT_S = 600.0
LOOK_EVERY_S = 0.05


class Flown(NamedTuple):
    """What came of a campaign that was disturbed."""

    before: list[int]  # numbers of the flights that were finished when it was disturbed
    after: list[int]  # of those that were flown then
    rows: list[int]  # of the table
    unchanged: bool  # the files of the flights before are as they were

    @property
    def complete(self) -> bool:
        """No flight twice, none missing."""
        return self.rows == sorted(self.before + self.after) == list(range(1, len(self.rows) + 1)) and self.unchanged


def file_of(folder: Path, flights: int, duration_s: float) -> Path:
    """A campaign of short flights with unkind sensors."""
    short = draw("scenario.duration_max_s", distribution="fixed", value=duration_s)
    return campaign(folder, short, MASS, sensors='"unkind"', seeds=f"{{ first = 1, count = {flights} }}")


def command(file: Path, out: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "companion.cli", "campaign", str(file), "--out", str(out), *words]


def finished(out: Path) -> list[int]:
    return sorted(int(path.stem) for path in (out / FLIGHTS).glob("*.json"))


def wait_for(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not there():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(LOOK_EVERY_S)


def flown_numbers(text: str) -> list[int]:
    """The flights that a command says it has flown."""
    return sorted(int(number) for number in re.findall(r"^ *\d+/\d+ +flight (\d+) ", text, flags=re.M))


def states(out: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in (out / FLIGHTS).glob("*.json")}


def result_of(out: Path, before: dict[str, tuple[int, bytes]], after: list[int]) -> Flown:
    rows = sorted(pq.read_table(out / RESULTS, columns=["flight"]).column("flight").to_pylist())
    now = states(out)
    same = all(now.get(name) == state for name, state in before.items())
    return Flown(sorted(int(name[:5]) for name in before), after, rows, same)


def killed_and_resumed(folder: Path, flights: int, duration_s: float, jobs: int, kill_after: int) -> Flown:
    """kill -9 of the campaign after some flights, then --resume."""
    file, out = file_of(folder, flights, duration_s), folder / "killed"
    words = command(file, out, "--jobs", str(jobs))
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        wait_for(lambda: len(finished(out)) >= kill_after or first.poll() is not None)
        first.kill()
    before = states(out)
    again = subprocess.run([*words, "--resume"], capture_output=True, text=True, check=False)
    return result_of(out, before, flown_numbers(again.stderr))


class Cluster:
    """A Dask scheduler and workers of one thread each on this machine."""

    def __init__(self, folder: Path, workers: int, environment: dict[str, str] | None = None) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        self._folder, self._environment = folder, environment
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
        local = ("--nthreads", "1", "--no-dashboard", "--no-nanny", "--local-directory", str(folder))
        self.workers = [self._start("worker", self.address, *local) for _ in range(workers)]
        try:
            if workers:
                with distributed.Client(self.address, timeout=WAIT_S, set_as_default=False) as client:
                    client.wait_for_workers(workers, timeout=WAIT_S)
        except BaseException:
            self.__exit__()
            raise

    def _start(self, *words: str) -> "subprocess.Popen[bytes]":
        quiet = subprocess.DEVNULL
        return subprocess.Popen(
            [sys.executable, "-m", "dask", *words], stdout=quiet, stderr=quiet, cwd=self._folder,
            env=self._environment or os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


def on_cluster_with_a_lost_worker(folder: Path, flights: int, duration_s: float, kill_after: int) -> Flown:
    """Two workers, one killed during the campaign."""
    file, out = file_of(folder, flights, duration_s), folder / "cluster"
    with Cluster(folder, 2) as cluster:
        words = command(file, out, "--scheduler", cluster.address)
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as flying:
            wait_for(lambda: len(finished(out)) >= kill_after or flying.poll() is not None)
            cluster.workers[0].kill()
            before = states(out)
            text = flying.communicate()[1]
    numbers = flown_numbers(text)
    after = [number for number in numbers if f"{number:05d}.json" not in before]
    return result_of(out, before, after) if len(set(numbers)) == len(numbers) else Flown(numbers, after, [], False)


class Speed(NamedTuple):
    """wall_s: of the whole campaign without the start of its command. cpu_s: processor time of a flight, mean."""

    wall_s: float
    cpu_s: float


def speed(folder: Path, flights: int, duration_s: float, jobs: int) -> Speed:
    """Fly a campaign, and measure from its first to its last flight."""
    file, out = file_of(folder, flights, duration_s), folder / f"jobs_{jobs}"
    with subprocess.Popen(
        command(file, out, "--jobs", str(jobs)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        wait_for(lambda: len(finished(out)) >= jobs or process.poll() is not None)
        began_s, first = time.monotonic(), len(finished(out))
        wait_for(lambda: len(finished(out)) == flights or process.poll() is not None)
        taken_s = time.monotonic() - began_s
        process.wait()
    used = pq.read_table(out / RESULTS, columns=["cpu_s"]).column("cpu_s").to_pylist()
    return Speed(taken_s * flights / (flights - first), sum(used) / len(used))
