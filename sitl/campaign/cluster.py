"""Flies the missing flights of a campaign on a Dask cluster.

A worker flies as many flights at a time as it has threads, each in a process of its own. It needs this version of the project with
the same configuration, and no file of the campaign: a flight carries the tables of its files. The rows come back as JSON. Dask gives a
flight of a worker that was lost to another one; when several were lost with it, it has no row and the campaign can be resumed.
"""

import contextlib
import logging
import queue
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import distributed
import msgspec

from companion.core.errors import UserError
from sitl.campaign.flights import Flight
from sitl.campaign.fly import Row
from sitl.campaign.project import project_here

CONNECT_S = 10.0
WORKERS_S = 30.0  # until the first worker has connected
LOST_S = 30.0  # without a connection until the scheduler counts as lost
LOOK_EVERY_S = 0.5
Client = Any  # of `distributed`, which has few types
Future = Any
LOST_WORKER = "KilledWorker"  # Dask's error for a task whose worker was lost several times


def fly_on_cluster(flights: list[Flight], address: str) -> Iterator[Row]:
    """The rows of the flights in the order in which they finish. Raises `UserError` with one line when there is no such
    scheduler, or when a worker cannot fly these flights; in the end, when some were lost with their workers."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # its warnings come in many lines
    client = _connected(address)
    try:
        _check_workers(client, address)
        yield from _as_finished(client, flights, address)
    finally:
        with contextlib.suppress(Exception):
            client.close(timeout=CONNECT_S)


def _connected(address: str) -> Client:
    try:
        client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TypeError) as error:
        reason = "no scheduler answers there" if isinstance(error, OSError) else str(error)
        raise UserError(f"--scheduler {address}: {reason}") from None
    try:
        client.wait_for_workers(1, timeout=WORKERS_S)
    except TimeoutError:
        client.close()  # type: ignore[no-untyped-call]
        raise UserError(f"--scheduler {address}: the scheduler has no workers") from None
    return client


def _check_workers(client: Client, address: str) -> None:
    """Raise `UserError` unless each worker has this Python and this version of the project."""
    here = "{}.{}".format(*sys.version_info[:2])
    versions: dict[str, Any] = client.get_versions()["workers"]
    for worker, found in versions.items():
        python = ".".join(str(found["host"]["python"]).split(".")[:2])
        if python != here:
            raise UserError(f"--scheduler {address}: worker {worker} has Python {python}, and this is {here}")
    project = msgspec.json.encode(project_here(everything=True))
    for worker, problem in client.run(_task_check(), project, on_error="return").items():
        if problem:
            raise UserError(f"--scheduler {address}: worker {worker}: {problem}")


def _as_finished(client: Client, flights: list[Flight], address: str) -> Iterator[Row]:
    finished: queue.SimpleQueue[Future] = queue.SimpleQueue()
    task, project, run = _task_fly(), msgspec.json.encode(project_here(everything=True)), uuid.uuid4().hex[:8]
    lost: list[str] = []
    waiting: dict[str, tuple[Future, Flight]] = {}
    for flight in flights:
        key = f"flight-{flight.number}-{run}"
        future = client.submit(task, msgspec.json.encode(flight), project, key=key, pure=False)
        waiting[key] = future, flight
        future.add_done_callback(finished.put)
    connected_s = time.monotonic()
    while waiting:
        try:
            future = finished.get(timeout=LOOK_EVERY_S)
        except queue.Empty:
            if client.status == "running":
                connected_s = time.monotonic()
            elif time.monotonic() - connected_s > LOST_S or client.status == "closed":
                raise _lost(address) from None
            continue
        _, flight = waiting.pop(future.key)
        if future.status == "error":
            lost.append(f"flight {flight.number}: {_failure(future.exception())}")
        else:
            yield _row(future, address)
    if lost:
        raise UserError(f"--scheduler {address}: {len(lost)} flights were not flown, the first of them {lost[0]}")


def _failure(error: BaseException) -> str:
    name = type(error).__name__
    return "its workers were lost" if name == LOST_WORKER else f"on its worker: {name}: {error}"


def _row(future: Future, address: str) -> Row:
    if future.status == "finished":
        answer: Row = msgspec.json.decode(future.result())
        if "refused" in answer:
            raise UserError(f"--scheduler {address}: worker {answer['worker']}: {answer['refused']}")
        return answer
    raise _lost(address)


def _lost(address: str) -> UserError:
    return UserError(f"--scheduler {address}: the scheduler is lost")


# Functions inside of functions go to a worker as code, not as the name of a module: so they can say that the project is not there.


def _task_check() -> Callable[[bytes], str]:
    def check(project: bytes) -> str:
        try:
            from sitl.campaign.worker import problem_here
        except ImportError as error:
            return f"the project cannot be imported there: {error}"
        return problem_here(project)

    return check


def _task_fly() -> Callable[[bytes, bytes], bytes]:
    def fly(flight: bytes, project: bytes) -> bytes:
        try:
            from sitl.campaign.worker import fly_on_worker
        except ImportError as error:
            import json
            import socket

            refused = {"refused": f"the project cannot be imported there: {error}", "worker": socket.gethostname()}
            return json.dumps(refused).encode()
        return fly_on_worker(flight, project)

    return fly
