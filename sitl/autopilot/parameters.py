"""The parameter store, by PX4's names: whole numbers are INT32, numbers with a point REAL32, as in PX4."""

import math
import struct
import zlib
from pathlib import Path

from companion.core.config import ConfigError, read_layered, read_toml
from companion.core.config_files import folder_of
from sitl.airframe import airframe_file

FOLDER = "autopilots"  # of the configuration
DEFAULTS = "px4_1_17.toml"
NAME_MAX = 16  # characters of a MAVLink parameter id
INT32_MAX = 2**31 - 1


class Parameters:
    """Named values; the type of a parameter never changes after loading.

    ``parameters["MC_ROLL_P"]`` and ``parameters.integer("MAV_TYPE")`` read, `set` writes. ``version`` counts the
    writes: values computed from parameters are computed again when it changes.
    """

    def __init__(self, values: dict[str, int | float]) -> None:
        self._values: dict[str, int | float] = {}
        self.version = 0
        for name in sorted(values):
            value = values[name]
            if isinstance(value, bool) or not isinstance(value, (int, float)) or len(name) > NAME_MAX:
                raise ConfigError(f"parameter {name}: must be a number with a name of at most {NAME_MAX} characters")
            self._values[name] = value if isinstance(value, int) else _float32(value)
        self.names = tuple(self._values)

    def __getitem__(self, name: str) -> int | float:
        return self._values[name]

    def integer(self, name: str) -> int:
        """The value of an INT32 parameter; of a REAL32 its whole part."""
        return int(self._values[name])

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __len__(self) -> int:
        return len(self.names)

    def is_integer(self, name: str) -> bool:
        """Whether the type of a parameter is INT32."""
        return isinstance(self._values[name], int)

    def set(self, name: str, value: int | float) -> bool:
        """Change a parameter without changing its type; False for an unknown name, another type or an invalid value."""
        old = self._values.get(name)
        if old is None or not math.isfinite(value) or isinstance(old, int) != isinstance(value, int):
            return False
        if isinstance(value, int) and not -INT32_MAX - 1 <= value <= INT32_MAX:
            return False
        self._values[name] = value if isinstance(value, int) else _float32(value)
        self.version += 1
        return True

    def as_bytes(self, name: str) -> bytes:
        """The four bytes of the float field of PARAM_VALUE: the value's own bits, as PX4 sends them."""
        value = self._values[name]
        return struct.pack("<i" if isinstance(value, int) else "<f", value)

    def hash(self) -> int:
        """CRC-32 over names and values; PX4's parameter _HASH_CHECK."""
        crc = 0
        for name in self.names:
            crc = zlib.crc32(self.as_bytes(name), zlib.crc32(name.encode(), crc))
        return crc


def parameter_file(airframe: str) -> Path:
    """The parameter file that an airframe names, given by its own name or path; raises `ConfigError`."""
    file = airframe_file(airframe)
    named = read_layered(file).get("autopilot")
    if not isinstance(named, str):
        raise ConfigError(f"{file}: autopilot: the name of a parameter file is missing")
    return file.parent / named


def defaults_file() -> Path:
    """The file with PX4's defaults of all parameters."""
    return folder_of(FOLDER) / DEFAULTS


def load_parameters(airframe: str) -> Parameters:
    """PX4's defaults, replaced by those of the file that an airframe names; raises `ConfigError`."""
    path = parameter_file(airframe)
    common, own = read_toml(defaults_file()), read_toml(path)
    if unknown := sorted(set(own) - set(common)):
        raise ConfigError(f"{path}: {unknown[0]}: not a known parameter ({DEFAULTS} has them all)")
    if wrong := sorted(name for name in own if type(own[name]) is not type(common[name])):
        raise ConfigError(f"{path}: {wrong[0]}: must be a {type(common[wrong[0]]).__name__}")
    return Parameters({**common, **own})


def _float32(value: float) -> float:
    (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    return float(rounded)
