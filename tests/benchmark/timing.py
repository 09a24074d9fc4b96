"""Times of calls that are compared: measured in turns, on one core, as medians."""

import gc
import os
import statistics
import time
from collections.abc import Callable
from contextlib import contextmanager

ROUNDS = 31


@contextmanager
def one_core():
    """Keep this thread on one core and switch the garbage collector off, for comparisons of microseconds."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
        os.sched_setaffinity(0, allowed)


def in_turns(cases: dict[str, Callable[[], object]], calls: int, rounds: int = ROUNDS) -> dict[str, float]:
    """Median processor time of one call of each case [s], in turns (A B A B …), after one warm-up round of each.

    Processor time does not include other load of the machine.
    """
    times: dict[str, list[float]] = {name: [] for name in cases}
    with one_core():
        for turn in range(rounds + 1):
            for name, call in cases.items():
                begun = time.thread_time()
                for _ in range(calls):
                    call()
                if turn:
                    times[name].append((time.thread_time() - begun) / calls)
    return {name: statistics.median(values) for name, values in times.items()}
