"""Numbers of many messages as columns, each compressed by pcodec, without loss.

A column of floats becomes whole numbers: multiples of a power of ten where all its values are some to the last bit, else
their bit patterns, less the zeros at the end of all. Whole numbers, less the middle one, take the fewest bits that hold
them; pcodec (https://github.com/pcodec/pcodec) finds whether they or their differences take less, and codes them. A column
that is equal to another or constant takes no bytes.
"""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from pcodec import ChunkConfig, ModeSpec
from pcodec.wrapped import FileCompressor, FileDecompressor

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

DECIMALS_MAX = 9
POWERS = np.array([10.0**decimals for decimals in range(DECIMALS_MAX + 1)])
WHOLE_MAX = 2.0**53  # up to here each whole number is a float
BY_BITS = 100  # kind of a column of floats: BY_BITS + zeros at the end of the patterns; below it a power of ten
INTEGER = 99
CONSTANT, SAME = 0, 1  # of what a column holds: one value; what another one holds. Then the types below
TYPES = (np.dtype(np.int16), np.dtype(np.int32), np.dtype(np.int64))
BOUNDS = (2**15, 2**31, 2**63)
DAMAGED = "a packed part is damaged"
SHORT = 2**31  # a column that changes, of numbers below it, stands as it is
VALUES_MAX = 8_000_000  # of one table: 64 MB

_compressor = FileCompressor()
_HEADER = _compressor.write_header()
_decompressor, _ = FileDecompressor.new(_HEADER)
_CONFIG = ChunkConfig(compression_level=4, mode_spec=ModeSpec.classic())


class Table(msgspec.Struct, array_like=True):
    """Columns of one length.

    kinds: of each column; middles: of each column; contents: of each column, `CONSTANT`, `SAME` or 2 + its place in
    `TYPES`; sources: of each `SAME` column the number of the other one; sizes: of each other one the bytes of its head and of its
    values in `data`.
    """

    rows: int
    kinds: bytes
    middles: list[int]
    contents: bytes
    sources: list[int]
    sizes: list[int]
    data: bytes


def packed(floats: Floats, integers: Ints) -> Table:
    """A table of the columns of both arrays, (n, f) and (n, i)."""
    numbers, decimals = whole(floats)
    numbers = np.concatenate((numbers, integers), axis=1)
    kinds = decimals.tobytes() + bytes([INTEGER] * integers.shape[1])
    rows = len(numbers)
    if not rows or not kinds:
        return Table(rows, kinds, [], b"", [], [], b"")
    middles = np.partition(numbers, rows // 2, axis=0)[rows // 2]
    moving = (numbers != middles).any(axis=0)
    middles[moving & ((numbers > -SHORT) & (numbers < SHORT)).all(axis=0)] = 0
    contents, sources, sizes, parts = bytearray(len(kinds)), [], [], []
    known: dict[bytes, int] = {}
    with np.errstate(over="ignore"):
        columns = np.ascontiguousarray((numbers - middles).T)  # wraps around, and back in `unpacked`
    for place in np.flatnonzero(moving).tolist():
        column = columns[place]
        source = known.setdefault(column.tobytes(), place)
        if source != place:
            contents[place] = SAME
            sources.append(source)
            continue
        least, most = int(column.min()), int(column.max())
        kind = next(i for i, bound in enumerate(BOUNDS) if -bound <= least and most < bound)
        contents[place] = 2 + kind
        chunk = _compressor.chunk_compressor(column.astype(TYPES[kind]), _CONFIG)
        head, values = chunk.write_meta(), chunk.write_page(0)
        sizes += [len(head), len(values)]
        parts += [head, values]
    return Table(rows, kinds, middles.tolist(), bytes(contents), sources, sizes, b"".join(parts))


def unpacked(table: Table) -> tuple[Floats, Ints]:
    """The columns of both kinds, as they were given to `packed`; raises ValueError for a damaged table."""
    kinds = np.frombuffer(table.kinds, np.uint8)
    count, rows = len(kinds), table.rows
    if rows < 0 or rows * count > VALUES_MAX or (np.diff(kinds == INTEGER) < 0).any():
        raise ValueError(DAMAGED)
    floats = int(np.count_nonzero(kinds != INTEGER))
    numbers = np.zeros((count, rows), np.int64)
    if rows and count:
        if not len(table.middles) == len(table.contents) == count:
            raise ValueError(DAMAGED)
        _fill(numbers, table)
        try:
            with np.errstate(over="ignore"):
                numbers += np.array(table.middles, np.int64)[:, None]
        except OverflowError:
            raise ValueError(DAMAGED) from None
    return as_floats(np.ascontiguousarray(numbers[:floats].T), kinds[:floats]), np.ascontiguousarray(numbers[floats:].T)


def _fill(numbers: Ints, table: Table) -> None:
    at, sizes, sources = 0, iter(table.sizes), iter(table.sources)
    try:
        for place, content in enumerate(table.contents):
            if content == CONSTANT:
                continue
            if content == SAME:
                source = next(sources)
                if not 0 <= source < place:
                    raise ValueError(DAMAGED)
                numbers[place] = numbers[source]
                continue
            head, size = next(sizes), next(sizes)
            if head < 0 or size < 0 or at + head + size > len(table.data):
                raise ValueError(DAMAGED)
            values = np.zeros(table.rows, TYPES[content - 2])
            chunk, _ = _decompressor.chunk_decompressor(table.data[at : at + head], _name(values.dtype))
            chunk.read_page_into(table.data[at + head : at + head + size], table.rows, values)
            numbers[place] = values
            at += head + size
    except (RuntimeError, IndexError, StopIteration, TypeError, OverflowError):
        raise ValueError(DAMAGED) from None


def _name(kind: np.dtype[Any]) -> str:
    return "i" + str(8 * kind.itemsize)


def whole(values: Floats) -> tuple[Ints, NDArray[np.uint8]]:
    """Floats, shape (n, c), as whole numbers of the same shape, and the kind of each column."""
    bits = values.view(np.int64)
    count = values.shape[1]
    kinds = np.full(count, BY_BITS, np.uint8)
    result = np.zeros_like(bits)
    left = np.arange(count)
    with np.errstate(all="ignore"):
        for decimals, power in enumerate(POWERS):
            part = values[:, left]
            scaled = np.rint(part * power) + 0.0  # a negative zero is no whole number
            good = ((scaled / power).view(np.int64) == bits[:, left]) & (np.abs(scaled) < WHOLE_MAX)
            fits = good.all(axis=0)
            result[:, left[fits]] = scaled[:, fits].astype(np.int64)
            kinds[left[fits]] = decimals
            left = left[~fits]
    used = np.bitwise_or.reduce(bits[:, left], axis=0)
    zeros = np.array([(int(u) & -int(u)).bit_length() - 1 if u else 0 for u in used], np.int64)
    kinds[left] += zeros.astype(np.uint8)
    result[:, left] = _ordered(bits[:, left] >> zeros, 63 - zeros)
    return result, kinds


def as_floats(numbers: Ints, kinds: NDArray[np.uint8]) -> Floats:
    """The inverse of `whole`; raises ValueError for a kind that it does not write."""
    by_bits = kinds >= BY_BITS
    if (kinds[~by_bits] > DECIMALS_MAX).any() or (kinds > BY_BITS + 63).any():
        raise ValueError(DAMAGED)
    shift = np.where(by_bits, kinds - np.uint8(BY_BITS), 0).astype(np.int64)
    patterns = _ordered(numbers, 63 - shift) << shift
    return np.where(by_bits, patterns.view(np.float64), numbers / POWERS[np.where(by_bits, 0, kinds)])


def _ordered(patterns: Ints, bits: Any) -> Ints:
    """Bit patterns of floats (sign, then `bits` bits) as numbers that grow with the value; its own inverse."""
    return np.asarray(patterns ^ ((patterns >> 63) & ((np.int64(1) << bits) - 1)), np.int64)


def sizes_of(table: Table) -> Ints:
    """The bytes that each column takes in `data`, (columns,)."""
    sizes = iter(table.sizes)
    return np.array([next(sizes) + next(sizes) if content > SAME else 0 for content in table.contents], np.int64)
