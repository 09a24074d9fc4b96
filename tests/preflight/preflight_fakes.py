"""Emulations of what a preflight examines: a good flight controller, its parameters, a camera."""

from companion.core.clock import monotonic_s
from companion.core.messages import Image
from companion.preflight.observation import LinkFailed, Observation


def healthy(**changes) -> Observation:
    """A flight controller that passes every check, except for the changes."""
    fields = {
        "landed": True,
        "mode": "POSCTL",
        "rc_ok": True,
        "battery_voltage_v": 16.4,
        "battery_remaining": 0.95,
        "gnss_fix": "FIX_3D",
        "vehicle_type": 13,
        "firmware": (1, 17, 0),
        "release": "RELEASE",
        "health": dict.fromkeys(
            (
                "is_gyrometer_calibration_ok",
                "is_accelerometer_calibration_ok",
                "is_magnetometer_calibration_ok",
                "is_local_position_ok",
                "is_global_position_ok",
                "is_home_position_ok",
                "is_armable",
            ),
            True,
        ),
        "satellites": 14,
        "gnss_uncertainty_m": 0.8,
        "clock_offset_s": 0.1,
        "imu_rate_hz": 199.0,
        "rtts_s": [0.002] * 40,
        "offsets_s": [1000.0 + 1e-4 * (i % 3) for i in range(40)],
    }
    return Observation(**(fields | changes))


class ParameterServer:
    """Parameters of a flight controller; ``deaf`` names cannot be written, ``stubborn`` ones keep their value."""

    def __init__(self, values, armed=False, deaf=(), stubborn=()) -> None:
        self.values, self.is_armed, self.deaf, self.stubborn = dict(values), armed, deaf, stubborn
        self.written: list[str] = []

    def armed(self) -> bool:
        return self.is_armed

    def read(self, names):
        return {name: self.values[name] for name in names if name in self.values}

    def write(self, name, value):
        if name in self.deaf:
            raise LinkFailed(f"{name}: not set: timeout")
        self.written.append(name)
        if name not in self.stubborn:
            assert type(value) is type(self.values[name])
            self.values[name] = value
        return self.values[name]


class ListSource:
    """A camera that delivers the given pictures at once, then ends."""

    def __init__(self, pictures, trouble="") -> None:
        self._pictures, self.finished, self.errors, self.last_error, self.closed = (
            list(pictures),
            False,
            0,
            trouble,
            False,
        )

    def read(self):
        if not self._pictures:
            self.finished = True
            return None
        gray = self._pictures.pop(0)
        return Image(stamp_s=monotonic_s(), width=gray.shape[1], height=gray.shape[0], data=gray.tobytes())

    def close(self) -> None:
        self.closed = True
