"""Flies the missing flights of a campaign on this machine."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from companion.runtime.end_requests import interrupts_ignored
from sitl.campaign.flights import Flight
from sitl.campaign.fly import Row
from sitl.campaign.project import project_here
from sitl.campaign.slot import Slot


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def fly_here(flights: list[Flight], jobs: int) -> Iterator[Row]:
    """The rows of the flights in the order in which they finish. Ending the iteration early ends all processes."""
    project = project_here()
    free = [Slot(project) for _ in range(min(jobs, len(flights)))]
    slots, lock = list(free), threading.Lock()

    def fly(flight: Flight) -> Row:
        with lock:
            slot = free.pop()
        try:
            return slot.fly(flight)
        finally:
            with lock:
                free.append(slot)

    pool = ThreadPoolExecutor(max(1, len(slots)))
    try:
        yield from _as_finished(flights, pool, fly, len(slots))
    finally:
        with interrupts_ignored():
            for slot in slots:
                slot.close()
            pool.shutdown(wait=True, cancel_futures=True)


def _as_finished(
    flights: list[Flight], pool: ThreadPoolExecutor, fly: Callable[[Flight], Row], at_a_time: int
) -> Iterator[Row]:
    waiting = iter(flights)
    running: set[Future[Row]] = set()
    while True:
        for flight in waiting:
            running.add(pool.submit(fly, flight))
            if len(running) >= at_a_time:
                break
        if not running:
            return
        finished, running = wait(running, return_when=FIRST_COMPLETED)
        done = [future for future in finished if future.exception() is None]
        for future in (*done, *(finished - set(done))):  # the rows first, then the error that ends the campaign
            yield future.result()
