"""Many messages in few bytes: the columns of a second of messages, without loss.

A message is MessagePack. Messages of one topic whose bytes differ in numbers and truth values only have one layout, and the
same number of all of them is a column. A column of floats becomes whole numbers: multiples of a power of ten where all
values are some to the last bit, else their bit patterns (less the zeros at the end of all). Of a column of whole numbers stand here the
differences from a base, from the value before, or from the continuation of the last two, whichever takes fewest bits, in Rice's
code, as FLAC stores sound (Rice 1979; RFC 9639, 9.2). What noise leaves is near its entropy; a constant takes no bit.

`unpack` gives back the same bytes. It never takes more than `PLAIN_MAX_BYTES` of memory, whatever a damaged record states.
"""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]

PLAIN_MAX_BYTES = 64_000_000
DECIMALS_MAX = 9
POWERS = np.array([10.0**decimals for decimals in range(DECIMALS_MAX + 1)])
WHOLE_MAX = 2.0**53  # up to here each whole number is a float
BITS = 13  # kind of a column of floats by their bit patterns; below: by this power of ten; INTEGER: no floats
INTEGER = 14
CONSTANT, LEVEL, STEP, SLOPE, COPY = range(5)  # how a column is predicted; `COPY`: equal to one before it
DAMAGED = "a packed part is damaged"

# What a one-byte value may become without another layout: 0 part of the layout, 1 small number, 2 truth value.
_CLASS = np.zeros(256, np.uint8)
_CLASS[:0x80] = _CLASS[0xE0:] = 1
_CLASS[0xC2:0xC4] = 2
# First byte of a number → bytes after it.
_SIZES = {0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
FLOAT64, FLOATS = 0xCB, ">f8"
HOLE = 0xC1  # MessagePack never uses it: in a template the place of a number of one byte
LAYOUTS_KEPT = 16
_KINDS = {0xCC: ">u1", 0xCD: ">u2", 0xCE: ">u4", 0xCF: ">u8", 0xD0: ">i1", 0xD1: ">i2", 0xD2: ">i4", 0xD3: ">i8"}


class Layout(NamedTuple):
    """Where the numbers of a message are."""

    template: bytes  # a message of this layout
    fixed: Bytes  # at each byte 1 where all messages of this layout have that of the template
    small: Ints  # places of the numbers and truth values of one byte
    leaves: tuple[tuple[int, str], ...]  # place and type of each wider number


def layout_of(message: bytes, holes: bool = False) -> Layout:
    """The layout of a message; raises ValueError if it is not MessagePack of the kinds that messages use.

    holes: the message is a template, without its numbers; they are 0 in the layout.
    """
    small: list[int] = []
    leaves: list[tuple[int, str]] = []
    text = bytearray()
    at, due = 0, 1
    size = len(message)
    while due:
        if at >= size:
            raise ValueError(DAMAGED)
        due -= 1
        kind = message[at]
        begin = at
        at += 1
        count = 0  # bytes of a number
        if kind == HOLE if holes else _CLASS[kind]:
            small.append(len(text))
            text.append(0 if holes else kind)
            continue
        if kind in _SIZES:
            leaves.append((len(text) + 1, FLOATS if kind == FLOAT64 else _KINDS[kind]))
            count = _SIZES[kind]
        elif 0x80 <= kind <= 0x8F:
            due += 2 * (kind & 0x0F)
        elif 0x90 <= kind <= 0x9F:
            due += kind & 0x0F
        elif 0xA0 <= kind <= 0xBF:
            at += kind & 0x1F
        elif kind in (0xC4, 0xD9):
            at += 1 + _number(message, at, ">B")
        elif kind in (0xC5, 0xDA):
            at += 2 + _number(message, at, ">H")
        elif kind in (0xC6, 0xDB):
            at += 4 + _number(message, at, ">I")
        elif kind in (0xDC, 0xDE):
            due += _number(message, at, ">H") * (2 if kind == 0xDE else 1)
            at += 2
        elif kind != 0xC0:
            raise ValueError(DAMAGED)
        text += message[begin:at]
        text += bytes(count) if holes else message[at : at + count]
        at += 0 if holes else count
    if at != size:
        raise ValueError(DAMAGED)
    fixed = np.ones(len(text), np.uint8)
    places = np.array(small, np.int64)
    fixed[places] = 0
    for place, leaf in leaves:
        fixed[place : place + int(leaf[2])] = 0
    return Layout(bytes(text), fixed, places, tuple(leaves))


def _number(message: bytes, at: int, kind: str) -> int:
    try:
        return int(struct.unpack_from(kind, message, at)[0])
    except struct.error:
        raise ValueError(DAMAGED) from None


# --- columns of whole numbers -----------------------------------------------------------------------------------------


def whole(values: NDArray[np.float64]) -> tuple[Ints, Bytes, Bytes]:
    """Floats, shape (n, c), as whole numbers of the same shape, and for each column its kind and shift."""
    bits = values.view(np.int64)
    count = values.shape[1]
    kinds, shifts = np.full(count, BITS, np.uint8), np.zeros(count, np.uint8)
    result = np.zeros_like(bits)
    open_columns = np.arange(count)
    with np.errstate(all="ignore"):
        for decimals in range(DECIMALS_MAX + 1):
            if not open_columns.size:
                break
            part = values[:, open_columns]
            scaled = np.rint(part * POWERS[decimals]) + 0.0  # a negative zero is no whole number
            good = ((scaled / POWERS[decimals]).view(np.int64) == bits[:, open_columns]) & (np.abs(scaled) < WHOLE_MAX)
            fits = good.all(axis=0)
            found = open_columns[fits]
            result[:, found] = scaled[:, fits].astype(np.int64)
            kinds[found] = decimals
            open_columns = open_columns[~fits]
    if open_columns.size:
        used = np.bitwise_or.reduce(bits[:, open_columns], axis=0)
        zeros = np.array([(int(u) & -int(u)).bit_length() - 1 if u else 0 for u in used], np.int64)
        shifts[open_columns] = zeros
        result[:, open_columns] = ordered(bits[:, open_columns] >> zeros, 63 - zeros)
    return result, kinds, shifts


def floats(numbers: Ints, kinds: Bytes, shifts: Bytes) -> NDArray[np.float64]:
    """The inverse of `whole`; raises ValueError for a kind that it does not write."""
    by_bits = kinds == BITS
    if (kinds[~by_bits] > DECIMALS_MAX).any():
        raise ValueError(DAMAGED)
    shift = np.where(by_bits, shifts, 0).astype(np.int64)
    bits = ordered(numbers, 63 - shift) << shift
    return np.where(by_bits, bits.view(np.float64), numbers / POWERS[np.where(by_bits, 0, kinds)])


def ordered(patterns: Ints, bits: Any) -> Ints:
    """Bit patterns of floats (sign, then `bits` bits) as numbers that grow with the value; its own inverse."""
    return np.asarray(patterns ^ ((patterns >> 63) & ((np.int64(1) << bits) - 1)), np.int64)


def zigzag(numbers: Ints) -> Words:
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def unzigzag(words: Words) -> Ints:
    return (words >> np.uint64(1)).view(np.int64) ^ -(words & np.uint64(1)).view(np.int64)


class Residuals(NamedTuple):
    """What is left of a matrix of whole numbers, shape (n, c), after its prediction."""

    words: Words  # zigzag: 0, -1, 1, -2, … as 0, 1, 2, 3, …
    orders: Bytes  # `CONSTANT`, or what a value is predicted by: `LEVEL`, `STEP`, `SLOPE`
    firsts: Ints  # (c,): first value, or the level
    bases: Ints  # (c,): first step of a slope

    def of(self, columns: Ints) -> "Residuals":
        """Those of some columns."""
        return Residuals(self.words[:, columns], self.orders[columns], self.firsts[columns], self.bases[columns])


def cheapest(numbers: Ints) -> Residuals:
    """The prediction of each column that takes fewest bits: a level, the value before, the continuation of two."""
    n, count = numbers.shape
    orders, bases = np.full(count, CONSTANT, np.uint8), np.zeros(count, np.int64)
    words, firsts = np.zeros((n, count), np.uint64), numbers[0].copy()
    moving = np.flatnonzero((numbers != numbers[0]).any(axis=0))
    if not moving.size:
        return Residuals(words, orders, firsts, bases)
    part = numbers[:, moving]
    middle = np.partition(part, n // 2, axis=0)[n // 2]
    step, bend = np.zeros_like(part), np.zeros_like(part)
    step[1:] = part[1:] - part[:-1]
    bend[2:] = step[2:] - step[1:-1]
    options = [zigzag(part - middle), zigzag(step), zigzag(bend)]
    best = np.argmin([option.sum(axis=0, dtype=np.float64) for option in options], axis=0)
    orders[moving] = best + LEVEL
    words[:, moving] = np.choose(best, options)
    firsts[moving] = np.where(best == 0, middle, part[0])
    bases[moving] = np.where(best == 2, step[1], 0)
    return Residuals(words, orders, firsts, bases)


class Coder:
    """Collects columns and writes them together."""

    def __init__(self) -> None:
        self._all: list[tuple[Any, ...]] = []  # of all columns: orders, kinds, shifts, firsts
        self._columns: list[tuple[Any, ...]] = []  # of those that are not constant: lengths, bases, widths, unary
        self._words: list[Words] = []  # of these, column by column

    def add(self, numbers: Ints, kinds: Bytes, shifts: Bytes) -> None:
        """Take a matrix of whole numbers, shape (n, c), n > 0."""
        if numbers.shape[1]:
            self.add_found(cheapest(numbers), kinds, shifts)

    def add_found(self, found: Residuals, kinds: Bytes, shifts: Bytes) -> None:
        """Take a matrix of which the prediction is known."""
        moving = np.flatnonzero(found.orders)
        orders = found.orders.copy()
        self._all.append((orders, kinds, shifts, found.firsts))
        if not moving.size:
            return
        first: dict[bytes, int] = {}
        own, copies = [], found.bases.copy()
        for column in moving.tolist():  # the halves of a covariance are equal, and many an age
            text = b"%d %d " % (found.bases[column], orders[column]) + found.words[:, column].tobytes()
            source = first.setdefault(text, column)
            if source == column:
                own.append(column)
            else:
                orders[column], copies[column] = COPY, column - source
        words = np.ascontiguousarray(found.words[:, own].T)
        widths, unary = _codes(words)
        n = len(found.words)
        self._columns.append((np.full(len(own), n, np.int64), copies[moving], widths, unary))
        self._words.append(words.ravel())

    def data(self) -> tuple[bytes, bytes]:
        """The heads of all columns, and their bits."""
        if not self._all:
            return b"", b""
        orders, kinds, shifts, firsts = (np.concatenate(p) for p in zip(*self._all, strict=True))
        head = [orders | kinds << 4, shifts, _planes(firsts)]
        if not self._columns:
            return b"".join(part.tobytes() for part in head), b""
        lengths, bases, widths, unary = (np.concatenate(p) for p in zip(*self._columns, strict=True))
        words = np.concatenate(self._words)
        head += [widths | unary << 7, _planes(bases)]
        width_of = np.repeat(widths, lengths)
        parts = []
        for bit in range(int(widths.max())):
            chosen = words[width_of > bit]
            parts.append(np.packbits((chosen >> np.uint64(bit)).astype(np.uint8) & 1).tobytes())
        counted = np.repeat(unary, lengths).astype(bool)
        if counted.any():
            quotients = (words[counted] >> width_of[counted].astype(np.uint64)).astype(np.int64)
            ends = np.cumsum(quotients + 1)
            line = np.zeros(int(ends[-1]), np.uint8)
            line[ends - 1] = 1
            parts.append(np.packbits(line).tobytes())
        return b"".join(part.astype(np.uint8).tobytes() for part in head), b"".join(parts)


def _planes(numbers: Ints) -> Bytes:
    """Numbers byte by byte: the lowest of all, the next of all, …; those that are 0 in all are left out."""
    planes = zigzag(numbers).astype("<u8").view(np.uint8).reshape(-1, 8).T
    used = max((i + 1 for i in range(8) if planes[i].any()), default=0)
    return np.concatenate((np.array([used], np.uint8), planes[:used].ravel()))


def _from_planes(data: Bytes, count: int) -> tuple[Ints, Bytes]:
    """Numbers of `_planes`, and the bytes after them."""
    if not len(data) or data[0] > 8 or len(data) < 1 + int(data[0]) * count:
        raise ValueError(DAMAGED)
    used = int(data[0])
    planes = np.zeros((8, count), np.uint8)
    planes[:used] = data[1 : 1 + used * count].reshape(used, count)
    return unzigzag(np.ascontiguousarray(planes.T).view("<u8")[:, 0]), data[1 + used * count :]


def bits_needed(words: Words) -> NDArray[np.float64]:
    """About how many bits a value of each column takes."""
    mean = words.mean(axis=0, dtype=np.float64)
    return np.where(mean > 0, np.log2(mean + 1.0) + 1.5, 0.0)


def _codes(words: Words) -> tuple[Bytes, Bytes]:
    """Bits of the low part of each row (a column of the table), and 1 where a unary part goes with them."""
    n = words.shape[1]
    plain = np.array([int(w).bit_length() for w in words.max(axis=1)], np.int64)
    mean = words.mean(axis=1, dtype=np.float64)
    guess = np.clip(np.floor(np.log2(np.maximum(mean, 1e-9) * 0.6931)), 0, 62).astype(np.int64)
    widths, cost = plain.copy(), n * plain.astype(np.float64)
    for width in (guess, guess + 1):
        needed = n * (width + 1) + (words >> width.astype(np.uint64)[:, None]).sum(axis=1, dtype=np.float64)
        widths = np.where(needed < cost, width, widths)
        cost = np.minimum(needed, cost)
    return widths.astype(np.uint8), (widths < plain).astype(np.uint8)


class Decoder:
    """Reads what `Coder` wrote; raises ValueError for damaged bytes.

    lengths: of the columns, in order; together within the limit of the caller.
    """

    def __init__(self, head: bytes, data: bytes, lengths: Ints) -> None:
        count = len(lengths)
        heads = np.frombuffer(head, np.uint8)
        if len(heads) < 2 * count:
            raise ValueError(DAMAGED)
        self._orders, self._kinds = heads[:count] & np.uint8(0x0F), heads[:count] >> np.uint8(4)
        self._shifts = heads[count : 2 * count]
        self._words: Words = np.zeros(0, np.uint64)
        self._bases, self._places = np.zeros(count, np.int64), np.zeros(count, np.int64)  # place of its first word
        self._column = 0
        if (self._orders > COPY).any() or (self._shifts > 63).any() or (count == 0) != (len(heads) == 0):
            raise ValueError(DAMAGED)
        if not count:
            return
        self._firsts, heads = _from_planes(heads[2 * count :], count)
        moving = np.flatnonzero(self._orders)
        own = np.flatnonzero((self._orders > 0) & (self._orders != COPY))
        if moving.size:
            codes, heads = heads[: len(own)], heads[len(own) :]
            if len(codes) != len(own) or (codes & 0x7F > 64).any():
                raise ValueError(DAMAGED)
            self._bases[moving], heads = _from_planes(heads, len(moving))
            self._places[own] = np.cumsum(lengths[own]) - lengths[own]
            self._words = _words(
                np.frombuffer(data, np.uint8), lengths[own], codes & np.uint8(0x7F), codes >> np.uint8(7)
            )
        if len(heads):
            raise ValueError(DAMAGED)

    def kinds(self, count: int) -> tuple[Bytes, Bytes]:
        """Kinds and shifts of the next columns."""
        columns = slice(self._column, self._column + count)
        return self._kinds[columns], self._shifts[columns]

    def take(self, rows: int, count: int) -> Ints:
        """The next matrix as it was added, shape (rows, count)."""
        begin = self._column
        self._column += count
        orders, bases = self._orders[begin : begin + count].copy(), self._bases[begin : begin + count].copy()
        sources = np.arange(begin, begin + count)
        copies = np.flatnonzero(orders == COPY)
        if copies.size:
            from_columns = copies - bases[copies]
            if (
                (from_columns < 0).any()
                or (from_columns >= copies).any()
                or np.isin(orders[from_columns], (COPY, CONSTANT)).any()
            ):
                raise ValueError(DAMAGED)
            sources[copies], orders[copies] = begin + from_columns, orders[from_columns]
            bases[copies] = bases[from_columns]
        numbers = np.tile(self._firsts[begin : begin + count], (rows, 1))
        moving = np.flatnonzero(orders)
        if not moving.size:
            return numbers
        part = unzigzag(self._words[self._places[sources[moving]] + np.arange(rows)[:, None]])
        orders, bases = orders[moving], bases[moving]
        bent = orders == SLOPE
        if bent.any():
            steps = part[:, bent]
            steps[0] = 0
            if rows > 1:
                steps[1] = bases[bent]
            part[:, bent] = np.cumsum(steps, axis=0)
        stepped = orders >= STEP
        part[:, stepped] = np.cumsum(part[:, stepped], axis=0)
        numbers[:, moving] += part
        return numbers


def _words(data: Bytes, lengths: Ints, widths: Bytes, unary: Bytes) -> Words:
    width_of = np.repeat(widths, lengths)
    words = np.zeros(len(width_of), np.uint64)
    at = 0
    for bit in range(int(widths.max(initial=0))):
        chosen = width_of > bit
        count = int(np.count_nonzero(chosen))
        size = (count + 7) // 8
        if at + size > len(data):
            raise ValueError(DAMAGED)
        words[chosen] |= np.unpackbits(data[at : at + size], count=count).astype(np.uint64) << np.uint64(bit)
        at += size
    counted = np.repeat(unary, lengths).astype(bool)
    count = int(np.count_nonzero(counted))
    if count:
        ends = np.flatnonzero(np.unpackbits(data[at:]))
        if len(ends) < count:
            raise ValueError(DAMAGED)
        quotients = np.diff(ends[:count], prepend=-1) - 1
        words[counted] |= quotients.astype(np.uint64) << width_of[counted].astype(np.uint64)
    return words


# --- messages ---------------------------------------------------------------------------------------------------------


class Group(msgspec.Struct, array_like=True):
    """Messages of one layout."""

    template: bytes  # a message without its numbers
    count: int


class Packed(msgspec.Struct, array_like=True):
    """The messages of one topic. ``groups`` in the order of their numbers in ``order``."""

    groups: list[Group]
    order: bytes  # number of the group of each message, in order of arrival; 2 bytes each
    head: bytes
    data: bytes


class Packer:
    """Packs messages; remembers layouts from call to call."""

    def __init__(self) -> None:
        self._known: dict[int, list[Layout]] = {}  # by length

    def pack(self, messages: Sequence[bytes]) -> Packed:
        """Pack MessagePack messages of one topic."""
        order = np.zeros(len(messages), np.uint16)
        groups: list[Group] = []
        coder = Coder()
        by_length: dict[int, list[int]] = {}
        for i, message in enumerate(messages):
            by_length.setdefault(len(message), []).append(i)
        for length, members in by_length.items():
            rows = np.frombuffer(b"".join([messages[i] for i in members]), np.uint8).reshape(-1, length)
            left = np.array(members)
            while len(left):
                layout, matches = self._layout(rows)
                order[left[matches]] = len(groups)
                chosen = rows[matches]
                groups.append(_group(layout, chosen))
                _add(coder, layout, chosen)
                rows, left = rows[~matches], left[~matches]
        head, data = coder.data()
        return Packed(groups, order.tobytes(), head, data)

    def _layout(self, rows: Bytes) -> tuple[Layout, NDArray[np.bool_]]:
        """The layout of the first row, and which rows have it."""
        known = self._known.setdefault(rows.shape[1], [])
        for layout in known:
            if _matches(layout, rows[:1])[0]:
                break
        else:
            layout = layout_of(rows[0].tobytes())
            known.insert(0, layout)
            del known[LAYOUTS_KEPT:]
        return layout, _matches(layout, rows)


def _group(layout: Layout, rows: Bytes) -> Group:
    fixed, first = layout.fixed.astype(bool), rows[0].copy()
    fixed[layout.small], first[layout.small] = True, HOLE
    return Group(first[fixed].tobytes(), len(rows))


def template_of(message: bytes) -> bytes:
    """What all messages of the layout of this one have in common."""
    return _group(layout_of(message), np.frombuffer(message, np.uint8)[None]).template


def _matches(layout: Layout, rows: Bytes) -> NDArray[np.bool_]:
    template = np.frombuffer(layout.template, np.uint8)
    fixed = ((rows ^ template) * layout.fixed == 0).all(axis=1)
    return np.asarray(fixed & (_CLASS[rows[:, layout.small]] == _CLASS[template[layout.small]]).all(axis=1))


def _places(layout: Layout) -> list[tuple[str, Ints]]:
    """For each type of numbers their places, shape (c,)."""
    kinds: dict[str, list[int]] = {}
    for place, kind in layout.leaves:
        kinds.setdefault(kind, []).append(place)
    places = [(kind, np.array(places)) for kind, places in sorted(kinds.items())]
    return [*places, ("|u1", layout.small)] if len(layout.small) else places


def _values(rows: Bytes, places: Ints, kind: str) -> Any:
    """The numbers of one type, shape (n, c)."""
    size = int(kind[2])
    raw = np.ascontiguousarray(rows[:, places[:, None] + np.arange(size)]).view(kind)[:, :, 0]
    return np.ascontiguousarray(raw.astype(np.float64 if kind == FLOATS else np.int64))


def _add(coder: Coder, layout: Layout, rows: Bytes) -> None:
    for kind, places in _places(layout):
        values = _values(rows, places, kind)
        if kind == FLOATS:
            coder.add(*whole(values))
        else:
            coder.add(values, np.full(len(places), INTEGER, np.uint8), np.zeros(len(places), np.uint8))


def unpack(packed: Packed) -> list[bytes]:
    """The messages that were packed. Raises ValueError for damaged bytes."""
    if sum(len(group.template) for group in packed.groups) > PLAIN_MAX_BYTES:
        raise ValueError(DAMAGED)
    layouts = [layout_of(group.template, holes=True) for group in packed.groups]
    total = sum(len(layout.template) * max(g.count, 0) for g, layout in zip(packed.groups, layouts, strict=True))
    order = np.frombuffer(packed.order, np.uint16) if len(packed.order) % 2 == 0 else np.zeros(0, np.uint16)
    numbers = np.bincount(order, minlength=len(packed.groups))
    if total > PLAIN_MAX_BYTES or numbers.tolist() != [g.count for g in packed.groups] or 0 in numbers:
        raise ValueError(DAMAGED)
    lengths = [
        group.count
        for group, layout in zip(packed.groups, layouts, strict=True)
        for _ in range(len(layout.leaves) + len(layout.small))
    ]
    decoder = Decoder(packed.head, packed.data, np.array(lengths, np.int64))
    result: list[bytes] = [b""] * len(order)
    for number, (group, layout) in enumerate(zip(packed.groups, layouts, strict=True)):
        rows = np.tile(np.frombuffer(layout.template, np.uint8), (group.count, 1))
        for kind, places in _places(layout):
            size, (kinds, shifts) = int(kind[2]), decoder.kinds(len(places))
            plain: Any = decoder.take(group.count, len(places))
            plain = floats(plain, kinds, shifts) if kind == FLOATS else plain
            rows[:, places[:, None] + np.arange(size)] = (
                plain.astype(kind)[:, :, None].view(np.uint8).reshape(group.count, len(places), size)
            )
        length, text = rows.shape[1], rows.tobytes()
        for i, member in enumerate(np.flatnonzero(order == number).tolist()):
            result[member] = text[i * length : (i + 1) * length]
    return result
