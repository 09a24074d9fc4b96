"""A load cell on a serial port: lines of text to newtons."""

import math
import re

from calibration.thrust.bench.bench_file import ScaleConfig
from companion.fcu.link.link import Link

LINE_MAX = 200  # bytes without an end of line: not a scale, or a wrong baud rate
SHOWN = 40  # characters of a line that is shown


def port_trouble(link: Link) -> str:
    """The fault of a port in words that stay true after the end of the run, "" without one."""
    if link.trouble and link.losses:
        return f"{link.url}: the connection broke (unplugged, or switched off)"
    return link.trouble


class Scale:
    """Reads whole lines; a line that does not match the pattern is kept as text."""

    def __init__(self, link: Link, config: ScaleConfig) -> None:
        self._link, self._newtons = link, config.newtons
        self._pattern = re.compile(config.pattern)
        self._rest = b""
        self.value_s = float("-inf")  # time of the newest reading
        self.text = ""  # the newest line after it that was not a reading

    @property
    def trouble(self) -> str:
        """The fault of the port, "" without one."""
        return port_trouble(self._link)

    def poll(self, now_s: float) -> list[float]:
        """Readings since the last call [N], with the sign, without tare; never raises."""
        lines = (self._rest + self._link.read()).replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > LINE_MAX:
            lines, self._rest = [*lines, self._rest], b""
        values = []
        for line in lines:
            text = line.decode("ascii", "replace").strip()
            if not text:
                continue
            value = self._value(text)
            if value is None:
                self.text = "".join(c if c.isprintable() else "?" for c in text[:SHOWN])
            else:
                values.append(value * self._newtons)
                self.value_s, self.text = now_s, ""
        return values

    def _value(self, text: str) -> float | None:
        found = self._pattern.fullmatch(text)
        try:
            value = float(found[1].replace(" ", "").replace(",", ".")) if found else math.nan
        except (ValueError, AttributeError, TypeError):
            return None
        return value if math.isfinite(value) else None  # with "nan" no limit would hold
