"""A flight on a worker of a Dask cluster: in a process of the launcher of this thread."""

import threading

import msgspec
from distributed import get_worker

from companion.core.errors import UserError
from sitl.campaign.fly import Row, flight_of_json
from sitl.campaign.project import Project, check_project
from sitl.campaign.slot import Slot

LOOK_EVERY_S = 1.0  # whether the campaign still wants the flight

_thread = threading.local()  # has the slot of each thread of the worker


def problem_here(project: bytes) -> str:
    """Why no flight can be flown here, "" when it can. project: `Project` as JSON."""
    try:
        check_project(msgspec.json.decode(project, type=Project))
    except UserError as error:
        return str(error)
    return ""


def fly_on_worker(flight: bytes, project: bytes) -> bytes:
    """The row of a flight as JSON, or {"refused": why, "worker": which}. flight, project: as JSON."""
    worker = get_worker()
    key = worker.get_current_task()
    slot: Slot | None = getattr(_thread, "slot", None)
    if slot is None or slot.closed:
        slot = _thread.slot = Slot(msgspec.json.decode(project, type=Project))
    finished = threading.Event()

    def watch() -> None:
        """End the flight when its campaign has ended: Dask itself does not end a task that runs."""
        while not finished.wait(LOOK_EVERY_S):
            task = worker.state.tasks.get(key)
            if task is None or task.state == "cancelled":
                slot.close()
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        row: Row = slot.fly(flight_of_json(flight))
    except UserError as error:
        row = {"refused": str(error), "worker": str(worker.address)}
    finally:
        finished.set()
    return msgspec.json.encode(row)
