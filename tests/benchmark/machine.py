"""The machine a figure was measured on."""

import os
import platform
from datetime import date
from pathlib import Path

import psutil


def processor() -> str:
    """The processor's name as the kernel reports it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):  # x86, ARM
            return value.strip()
    return platform.processor() or platform.machine()


def load() -> str:
    """Load of the machine: number of processes that can run, mean over the last minute."""
    return f"{os.getloadavg()[0]:.1f}"


def description() -> str:
    """One line: processor, cores, memory, kernel, Python, day."""
    memory_gb = psutil.virtual_memory().total / 1e9
    return (
        f"{processor()}, {os.cpu_count()} cores, {memory_gb:.0f} GB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, {date.today().isoformat()}"
    )
