"""The replay of measurements that the filter explains, as one call of compiled code: the Python interface of replay.c.

A late measurement makes the filter run again from its stamp, so that of ten updates about nine are repetitions. What needs a
decision ends the call (a rejected measurement, a bundle, a gap in the inertial samples): `companion.estimation.estimator` takes
that measurement by `Eskf`, and the call goes on after it.
"""

import ctypes
import struct
from collections.abc import Sequence
from math import inf, nan
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.enums import Sensor
from companion.core.kernel import address_of, short_calls
from companion.estimation.adaptation import GROUPS, Window
from companion.estimation.filter import OUT_OF_SIGHT_S, UNAIDED_STD, UNUSED_AXIS_M_S2, Eskf
from companion.estimation.filter_state import FilterState
from companion.estimation.imu import FIRST_S, GAP_MAX_S, HOLD_S, SHORTEST_S
from companion.estimation.innovation_monitor import RejectionRun
from companion.estimation.inputs import ActingThrust, Inputs
from companion.estimation.layout import PARAMETER_SIZE, require_eskf
from companion.estimation.noise import Propagation
from companion.estimation.runaway import PRIOR, WITHIN

AIDS = (Sensor.ATTITUDE, Sensor.VELOCITY, Sensor.POSITION, Sensor.SPECIFIC_FORCE)  # as in replay.c
NOTHING = -1  # in place of a sensor: only moves the state to its time
TAKEN = (None, *AIDS)  # sensors of a history that a replay takes
SIZE = 3  # of the residual of each of them
ENTRIES_MAX = 256  # in one call

_ENTRY = struct.Struct("@dq4dddPq")  # entry_t
_RECORD_SIZE = 2 + len(AIDS)  # record_t: time_s, by_imu, accepted_s
_D, _I, _P, _PER_AID = ctypes.c_double, ctypes.c_int64, ctypes.c_void_p, len(AIDS)


_CALL = struct.Struct(f"@qPqqPPPPqPddq{len(AIDS)}q{len(AIDS)}q")  # the first part of replay_t


class _Settings(ctypes.Structure):
    """Mirror of replay_t: `_CALL`, then what is the same in all calls."""

    _fields_ = (
        ("call", ctypes.c_char * _CALL.size),
        ("rates", _P),
        ("noise", _P),
        ("accel_2", _P),
        ("out_of_sight_s", _D * 2),
        ("limit", _D * _PER_AID),
        ("variance", _D * SIZE * _PER_AID),
        ("unused", _D),
        ("unaided", _D),
        ("parameters", _P),
        ("gain", _P),
        ("prior", _P),
        ("within", _P),
        ("gap_max_s", _D),
        ("hold_s", _D),
        ("first_s", _D),
        ("shortest_s", _D),
    )


def pack(stamp_s: float, sensor: Sensor, y: Array, lost: bool = False) -> bytes:
    """An entry of the flight controller's sensors, (3,) or (4,); lost: it has lost its satellites, see `Eskf.measure`."""
    a, b, c, d = (*y.tolist(), 0.0)[:4]
    return _ENTRY.pack(stamp_s, AIDS.index(sensor), a, b, c, d, nan, inf, 0, lost)


def pack_force(stamp_s: float, f_B: Sequence[float], acting: ActingThrust | None, period_s: float) -> bytes:
    """A mean specific force [m/s²] over period_s [s]; acting: along the thrust, whose parameters must outlive the replay."""
    thrust, parameters = (nan, 0) if acting is None else (acting.mean, address_of(acting.parameters))
    return _ENTRY.pack(stamp_s, AIDS.index(Sensor.SPECIFIC_FORCE), *f_B, 0.0, thrust, period_s, parameters, False)


def pack_nothing(stamp_s: float) -> bytes:
    """An entry that only moves the filter state to its time."""
    return _ENTRY.pack(stamp_s, NOTHING, 0.0, 0.0, 0.0, 0.0, nan, inf, 0, False)


class ReplayedState:
    """The filter state after an entry of a replay: its numbers, and the state before the replay for all that did not change."""

    __slots__ = ("before", "row", "address", "places", "sight_s", "_filter_state")

    def __init__(self, before: FilterState, row: Array, address: int, places: list[int], sight_s: float) -> None:
        """row: numbers, record and windows; address: of it; places: where each window begins, and the end; sight_s: as in replay.c."""
        self.before, self.row, self.address, self.places, self.sight_s = before, row, address, places, sight_s
        self._filter_state: FilterState | None = None

    @property
    def time_s(self) -> float:
        """Of the filter state."""
        return float(self.row[self.places[0] - _RECORD_SIZE])

    @property
    def rejection_runs(self) -> dict[Sensor, RejectionRun]:
        """Of the filter state: a rejection ends a replay."""
        return self.before.rejection_runs

    def refused(self) -> list[str]:
        """See `FilterState`; no replay takes a bundle."""
        return self.before.refused()

    def filter_state(self) -> FilterState:
        """The filter state; its numbers are a view on this row."""
        if self._filter_state is None:
            self._filter_state = self._unpacked()
        return self._filter_state

    def _unpacked(self) -> FilterState:
        row, places, before = self.row, self.places, self.before
        numbers = places[0] - _RECORD_SIZE
        time_s, by_imu, *accepted_s = row[numbers : places[0]].tolist()
        windows, accepted = before.windows.copy(), before.accepted_s.copy()
        for i, (sensor, at_s) in enumerate(zip(AIDS, accepted_s, strict=True)):
            windows[sensor] = Window(GROUPS[sensor], row[places[i] : places[i + 1]])
            if at_s > -inf:
                accepted[sensor] = at_s
        return before.with_numbers(time_s, row[:numbers], windows, accepted, Propagation.IMU if by_imu else before.by)


class Replayed(NamedTuple):
    """What a replay found, one item for each entry that was taken."""

    states: list[ReplayedState]
    nis: list[float]  # NaN without a measurement
    scales: list[list[float]]  # of the adapted noise before it, both groups


class Replay:
    """Runs entries on the filter states of one `Eskf`, whose settings and noise it shares."""

    def __init__(self, eskf: Eskf) -> None:
        library = short_calls(require_eskf())
        library.eskf_replay_sizes.restype = _I
        sizes = [library.eskf_replay_sizes(_I(i)) for i in range(3)]
        if sizes != [ctypes.sizeof(_Settings), _ENTRY.size, 8 * _RECORD_SIZE]:
            raise RuntimeError(f"replay.c: structs of {sizes} bytes, which differ from replay.py's mirrors")
        self._call = library.eskf_replay
        self._call.argtypes, self._call.restype = [_P], _I
        self._eskf = eskf
        self._settings = c = _Settings()
        self._address = ctypes.addressof(c)
        c.rates, c.noise = eskf.imu_rates.ctypes.data, eskf.imu_noise.ctypes.data
        c.accel_2 = eskf.accel_2.ctypes.data
        self._nis, self._scales = np.empty(ENTRIES_MAX), np.empty((ENTRIES_MAX, 2))
        self._entries = bytearray(ENTRIES_MAX * _ENTRY.size)
        self._entries_address = ctypes.addressof(ctypes.c_char.from_buffer(self._entries))
        self._results = self._nis.ctypes.data, self._scales.ctypes.data
        c.parameters, c.gain = eskf.force_parameters.ctypes.data, eskf.gain.ctypes.data
        c.prior, c.within = PRIOR.ctypes.data, WITHIN.ctypes.data
        c.out_of_sight_s[:] = OUT_OF_SIGHT_S
        c.unused, c.unaided = UNUSED_AXIS_M_S2**2, UNAIDED_STD**2
        c.gap_max_s, c.hold_s, c.first_s, c.shortest_s = GAP_MAX_S, HOLD_S, FIRST_S, SHORTEST_S
        for i, sensor in enumerate(AIDS):
            c.limit[i] = eskf.gates[sensor].limit
            c.variance[i][:] = eskf.nominal[sensor].diagonal().tolist()
        if eskf.force_parameters.size != PARAMETER_SIZE:
            raise RuntimeError("replay.c: the flight model has another number of parameters")

    def run(self, start: FilterState | ReplayedState, entries: list[bytes], inputs: Inputs) -> Replayed:
        """Take entries in their order until one needs a decision, or other noise applies to it; at most ENTRIES_MAX."""
        if not isinstance(start, ReplayedState):
            start = _packed(start)
        before, places, sight_s = start.before, start.places, start.sight_s
        numbers, row, count = places[0] - _RECORD_SIZE, places[-1], len(entries)
        time_s = start.time_s
        out_of_sight = OUT_OF_SIGHT_S[0] < time_s - sight_s < OUT_OF_SIGHT_S[1]
        shape = before.covariance.shape
        covariance = start.row[numbers - shape[0] ** 2 : numbers].reshape(shape)  # the last numbers
        self._eskf.begin(time_s, out_of_sight, covariance, inputs)
        rows, packed, runs = np.empty((count, row)), b"".join(entries), before.rejection_runs
        self._entries[: len(packed)] = packed
        address = address_of(rows)
        _CALL.pack_into(
            self._settings,
            0,
            count,
            self._entries_address,
            numbers,
            row,
            start.address,
            address,
            *self._results,
            len(inputs.imu),
            inputs.imu.address,
            inputs.noise_changes_s(time_s),
            sight_s,
            out_of_sight,
            *places[:-1],
            Sensor.ATTITUDE in runs,
            Sensor.VELOCITY in runs,
            Sensor.POSITION in runs or before.bias_before is not None,
            Sensor.SPECIFIC_FORCE in runs,
        )
        taken = self._call(self._address)
        states = [ReplayedState(before, rows[i], address + 8 * row * i, places, sight_s) for i in range(taken)]
        return Replayed(states, self._nis[:taken].tolist(), self._scales[:taken].tolist())


def _packed(state: FilterState) -> ReplayedState:
    """A filter state as the beginning of a replay."""
    windows = [state.windows[sensor].numbers for sensor in AIDS]
    accepted_s = [state.accepted_s.get(sensor, -inf) for sensor in AIDS]
    row = np.concatenate([state.numbers, (state.time_s, state.by is Propagation.IMU, *accepted_s), *windows])
    sight = None if state.contradiction.refused else state.last_sight()
    places = [len(state.numbers) + _RECORD_SIZE]
    for window in windows:
        places.append(places[-1] + len(window))
    return ReplayedState(state, row, address_of(row), places, nan if sight is None else sight[0])
