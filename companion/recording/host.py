"""The state of this computer for `HostStatus`: disk, processor, temperature, throttling, memory.

It reads the machine and is passed to the recorder as a function, so that the node stays pure. It never raises; a
quantity that this machine does not provide is NaN (throttling: False).
"""

import math
from collections.abc import Callable
from pathlib import Path

import psutil

from companion.core.messages import HostStatus

SYSTEM = Path("/sys")
THERMAL_ZONES = "class/thermal/thermal_zone*"
# Zones by their type, best first: Raspberry Pi and many ARM boards, then Intel's package sensor.
# Other zones (battery, wireless) do not measure the processor.
PROCESSOR_ZONES = ("cpu-thermal", "cpu_thermal", "x86_pkg_temp", "soc-thermal", "soc_thermal", "acpitz")
# Bits of the Raspberry Pi firmware (documentation of `vcgencmd get_throttled`), the present state: under-voltage,
# frequency capped, throttled, soft temperature limit. The same bits shifted by 16: since boot.
THROTTLED_NOW = 0xF
THROTTLED_FILES = ("devices/platform/soc*/soc*:firmware/get_throttled", "devices/platform/soc*:firmware/get_throttled")
# Under-voltage alone, where a kernel does not have the file above (hwmon driver "rpi_volt").
ABSENT = Path("/nonexistent")
ALARM_NAME, ALARM_FILE = "rpi_volt", "in0_lcrit_alarm"


class Host:
    """Reads this machine; call it with the time for a `HostStatus`.

    folder: where the flight log is written. system: where sysfs is mounted.
    """

    def __init__(self, folder: Path, system: Path = SYSTEM) -> None:
        self._folder = folder
        # A file that this machine does not have reads as "not a number".
        self._temperature = _temperature_file(system) or ABSENT
        self._throttled = next((file for name in THROTTLED_FILES for file in system.glob(name)), ABSENT)
        self._alarm = _alarm_file(system) or ABSENT
        psutil.cpu_percent()  # the first call only sets the reference

    def __call__(self, now_s: float) -> HostStatus:
        return HostStatus(
            stamp_s=now_s,
            disk_free_mb=_number(lambda: psutil.disk_usage(str(self._folder)).free / 1e6),
            cpu_load=_number(lambda: psutil.cpu_percent() / 100),
            cpu_temperature_c=_number(lambda: int(self._temperature.read_text()) / 1000),
            throttled=self._is_throttled(),
            memory_free_mb=_number(lambda: psutil.virtual_memory().available / 1e6),
        )

    def _is_throttled(self) -> bool:
        bits = _number(lambda: int(self._throttled.read_text(), 16))
        if not math.isnan(bits):
            return bool(int(bits) & THROTTLED_NOW)
        return _number(lambda: int(self._alarm.read_text())) == 1


def _number(read: Callable[[], float]) -> float:
    """The result of ``read``, NaN when it fails: a sensor that disappears must not stop the log."""
    try:
        return float(read())
    except (OSError, ValueError, psutil.Error):
        return math.nan


def _temperature_file(system: Path) -> Path | None:
    zones: dict[str, Path] = {}
    for zone in sorted(system.glob(THERMAL_ZONES)):
        try:
            zones.setdefault((zone / "type").read_text().strip(), zone / "temp")
        except OSError:
            continue
    return next((zones[name] for name in PROCESSOR_ZONES if name in zones), None)


def _alarm_file(system: Path) -> Path | None:
    for name in system.glob("class/hwmon/hwmon*/name"):
        try:
            if name.read_text().strip() == ALARM_NAME:
                return name.with_name(ALARM_FILE)
        except OSError:
            continue
    return None
