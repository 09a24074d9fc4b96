"""Checks of the companion computer: disk, temperature, throttling, clock. Linux's own files are the source."""

import ctypes
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from companion.core.clock import monotonic_s
from companion.core.messages import HostStatus
from companion.core.text import plain
from companion.core.vehicle import Safety
from companion.preflight.report import PreflightCheck, failed, ok, skipped, warning
from companion.recording.host import SYSTEM, THROTTLED_FILES, Host

# Before the limits of the safety table, so that a whole flight fits in between.
DISK_SPARE_MB = 2000.0  # some MB a minute, and photographs
MEMORY_SPARE_MB = 300.0  # all processes together need less
TEMPERATURE_SPARE_C = 10.0
LOAD_HIGH = 0.7  # of all cores, over the last minute: the stack needs about one core of a Pi 5 itself
BUSY_S = 0.5  # over which the processor time of programs is measured
BUSY_SHOWN, BUSY_SHARE = 3, 0.1  # programs in the line, each with at least this share of a core
DAY_S = 86400
CLOCK_ERROR_S = 2.0  # against GNSS time
NTP_ERROR = 5  # TIME_ERROR of ntp_gettime(3): the kernel's clock is not synchronised
# Throttle flags of the Raspberry Pi's firmware (documentation of `vcgencmd get_throttled`): now, and since power-on.
UNDER_VOLTAGE, CAPPED, THROTTLED, SOFT_LIMIT = 1, 2, 4, 8
SINCE_BOOT = 16
THROTTLE_TEXTS = {
    UNDER_VOLTAGE: "under-voltage",
    CAPPED: "clock capped",
    THROTTLED: "throttled",
    SOFT_LIMIT: "at its soft temperature limit",
}


def computer_checks(
    safety: Safety | None, folder: Path, clock_offset_s: float | None, system: Path = SYSTEM
) -> list[PreflightCheck]:
    """All checks of this computer.

    safety: limits of the vehicle file, None without one; folder: of the logs; clock_offset_s: this clock minus GNSS
    time, if known; system: sysfs, for tests.
    """
    host = Host(_existing(folder), system)(monotonic_s())
    return [
        *_limited(safety, host, folder),
        throttling(host.throttled, _throttle_flags(system)),
        load(os.getloadavg()[0], os.cpu_count() or 1, busiest_programs),
        clock(clock_offset_s, _ntp_synchronised(), time.time(), newest_source_s()),
    ]


def _limited(safety: Safety | None, host: HostStatus, folder: Path) -> list[PreflightCheck]:
    if safety is None:
        return [skipped(name, "no vehicle file") for name in ("disk", "memory", "cpu temperature")]
    return [
        disk(host.disk_free_mb, safety.disk_free_mb, folder),
        memory(host.memory_free_mb, safety.memory_free_mb),
        temperature(host.cpu_temperature_c, safety.cpu_temperature_c),
    ]


def disk(free_mb: float, limit_mb: float, folder: Path) -> PreflightCheck:
    """Free space for the logs."""
    detail = f"{free_mb / 1e3:.1f} GB free for {folder}"
    if not free_mb > limit_mb:
        return failed("disk", f"{detail}, must be above {limit_mb / 1e3:g} GB (safety.disk_free_mb)")
    return warning("disk", f"{detail}: not much") if free_mb < limit_mb + DISK_SPARE_MB else ok("disk", detail)


def memory(free_mb: float, limit_mb: float) -> PreflightCheck:
    """Free memory."""
    detail = f"{free_mb:.0f} MB free"
    if not free_mb > limit_mb:
        return failed("memory", f"{detail}, must be above {limit_mb:g} MB (safety.memory_free_mb)")
    return warning("memory", f"{detail}: not much") if free_mb < limit_mb + MEMORY_SPARE_MB else ok("memory", detail)


def temperature(now_c: float, limit_c: float) -> PreflightCheck:
    """Temperature of the processor."""
    name = "cpu temperature"
    if math.isnan(now_c):
        return skipped(name, "this machine does not report it")
    detail = f"{now_c:.0f} °C"
    if now_c >= limit_c:
        return failed(name, f"{detail}, must be below {limit_c:g} °C (safety.cpu_temperature_c)")
    return warning(name, f"{detail} on the ground") if now_c >= limit_c - TEMPERATURE_SPARE_C else ok(name, detail)


def throttling(throttled: bool, flags: int | None) -> PreflightCheck:
    """flags: of the Raspberry Pi's firmware, also since power-on; None on other machines."""
    since = [] if flags is None else [text for bit, text in THROTTLE_TEXTS.items() if flags >> SINCE_BOOT & bit]
    if throttled:
        now = [] if flags is None else [text for bit, text in THROTTLE_TEXTS.items() if flags & bit]
        return failed("cpu throttling", f"now: {', '.join(now) or 'under-voltage'}")
    if flags is None:
        return skipped("cpu throttling", "this machine does not report it")
    if since:
        return warning("cpu throttling", f"since power-on: {', '.join(since)}; is the 5 V supply strong enough?")
    return ok("cpu throttling", "never since power-on")


def load(load_1min: float, cores: int, busiest: Callable[[], str] = lambda: "") -> PreflightCheck:
    """Load of the computer before the flight: programs that compute or wait for the disk, mean of the last minute.

    busiest: names the programs that use most of the processor; asked only when the load is high.
    """
    detail = f"load {load_1min:.1f} on {cores} {'core' if cores == 1 else 'cores'}, mean of the last minute"
    if not load_1min > LOAD_HIGH * cores:
        return ok("cpu load", detail)
    found = busiest()
    who = f"most by {found}" if found else "no program uses much at this moment: wait a minute"
    return warning("cpu load", f"{detail}, more than {LOAD_HIGH * cores:.1f}: {who}")


def busiest_programs() -> str:
    """The programs that used most of the processor while this waited a moment, without this one; "": none did."""
    before = _processor_times()
    time.sleep(BUSY_S)
    after = _processor_times()
    shares = {name: (used_s - before[name]) / BUSY_S for name, used_s in after.items() if name in before}
    most = sorted(shares, key=lambda name: -shares[name])[:BUSY_SHOWN]
    return ", ".join(
        f"{plain(text)} (process {pid}) {shares[pid, text]:.0%}"
        for pid, text in most
        if shares[pid, text] >= BUSY_SHARE
    )


def _processor_times() -> dict[tuple[int, str], float]:
    """Seconds that each other process has used, by process number and name."""
    found = {}
    for process in psutil.process_iter(["pid", "name", "cpu_times"]):
        times = process.info["cpu_times"]
        if times is not None and process.info["pid"] != os.getpid():
            found[process.info["pid"], process.info["name"] or "?"] = times.user + times.system
    return found


def clock(offset_s: float | None, ntp: bool | None, now_s: float, not_before_s: float) -> PreflightCheck:
    """The wall clock. The stack uses the monotonic clock, so that a wrong date only affects names and logs."""
    if now_s < not_before_s:
        return warning("clock", "earlier than this program's own files: logs will have a wrong date")
    if offset_s is not None and abs(offset_s) > CLOCK_ERROR_S:
        days = f" ({offset_s / DAY_S:+.0f} days)" if abs(offset_s) > DAY_S else ""
        return warning("clock", f"{offset_s:+.0f} s{days} from GNSS time: logs will have a wrong date")
    if offset_s is not None:
        return ok("clock", f"{offset_s:+.1f} s from GNSS time")
    if ntp is None:
        return skipped("clock", "neither GNSS nor the kernel reports its error")
    return ok("clock", "set by NTP") if ntp else warning("clock", "not synchronised, and no GNSS time to compare with")


def newest_source_s() -> float:
    """When this program was last changed [s since 1970]; a clock that is before this time is wrong."""
    return Path(__file__).stat().st_mtime


def _existing(folder: Path) -> Path:
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if path.exists())


def _throttle_flags(system: Path) -> int | None:
    for file in (file for name in THROTTLED_FILES for file in system.glob(name)):
        try:
            return int(file.read_text(), 16)
        except (OSError, ValueError):
            continue
    return None


def _ntp_synchronised() -> bool | None:
    """Whether the kernel's clock is synchronised (ntp_gettime(3)); None where this is not known."""
    try:
        state = ctypes.CDLL(None).ntp_gettime(ctypes.create_string_buffer(256))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != NTP_ERROR
