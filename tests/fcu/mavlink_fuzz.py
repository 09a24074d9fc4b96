"""Seeded bad input for the fuzz tests: mutated MAVLink frames and mutated bus messages."""

import struct

import msgspec
from pymavlink.dialects.v20 import common

from companion.core.bus import VERSIONS
from companion.core.messages import TOPICS
from companion.fcu.link.codec import LAYOUTS
from companion.fcu.link.framing import SEEDS, checksum

SENDERS = [(1, 1)] * 6 + [(1, 191), (2, 1), (255, 190), (1, 197), (0, 0)]  # the flight controller most often
SPECIAL = [
    struct.pack("<f", value) for value in (float("nan"), float("inf"), -float("inf"), 3.4e38, -3.4e38, 1e-45, -0.0)
] + [b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0\0\0\x80", b"\xff\xff\xff\x7f"]
NUMBERS = sorted(LAYOUTS) * 4 + sorted(SEEDS)


class FrameFuzzer:
    """Well-formed frames and mutations of them."""

    def __init__(self, rng):
        self.rng = rng
        self.seq = 0
        self.recorded = []  # for replays

    def frame(self, number, payload, sender, v1=False, signed=False):
        """A well-formed frame with any payload; signed: with thirteen bytes that claim to be a signature."""
        self.seq = (self.seq + 1) % 256
        if v1 and number < 256:
            head = bytes((len(payload), self.seq, *sender, number))
            magic = b"\xfe"
        else:
            head = bytes((len(payload), signed, 0, self.seq, *sender)) + number.to_bytes(3, "little")
            magic = b"\xfd"
        frame = magic + head + payload + checksum(head + payload, SEEDS[number]).to_bytes(2, "little")
        return frame + self.rng.randbytes(13) if signed and magic == b"\xfd" else frame

    def well_formed(self):
        """Right checksum, any content: random bytes with NaN, infinities and extreme integers among them."""
        rng = self.rng
        number = rng.choice(NUMBERS)
        payload = bytearray(rng.randbytes(rng.randrange(0, 256) if rng.random() < 0.2 else self._size(number)))
        for _ in range(rng.randrange(0, 6)):
            if len(payload) >= 4:
                at = 4 * rng.randrange(len(payload) // 4)
                payload[at : at + 4] = rng.choice(SPECIAL)
        how = rng.random()
        return self.frame(number, bytes(payload), rng.choice(SENDERS), v1=how < 0.1, signed=how > 0.9)

    @staticmethod
    def _size(number):
        kind = common.mavlink_map.get(number)
        return 9 if kind is None else kind.unpacker.size

    def next(self):
        """One piece of bad input."""
        rng = self.rng
        data = bytearray(self.well_formed())
        how = rng.randrange(10)
        if how == 0:  # bit flips
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        elif how == 1:  # cut off
            del data[rng.randrange(len(data)) :]
        elif how == 2:  # a hole
            at = rng.randrange(len(data))
            del data[at : at + rng.randrange(1, 20)]
        elif how == 3:  # a splice of two
            other = self.well_formed()
            data = data[: rng.randrange(len(data))] + other[rng.randrange(len(other)) :]
        elif how == 4:  # a replay
            if self.recorded:
                data = bytearray(rng.choice(self.recorded))
        elif how == 5:  # wrong checksum
            data[-1 - rng.randrange(2)] ^= rng.randrange(1, 256)
        elif how == 6:  # noise, with magic bytes
            data = bytearray(
                rng.choice((0xFD, 0xFE, 0x00, 0xFF, rng.randrange(256))) for _ in range(rng.randrange(300))
            )
        elif how == 7 and len(data) > 3:  # unknown flags
            data[2] = rng.choice((2, 3, 255))
        if len(self.recorded) < 500:
            self.recorded.append(bytes(data))
        return bytes(data)


def random_value(rng, kind):
    """Any value of a type of msgspec's inspection, extremes included."""
    t = msgspec.inspect
    if isinstance(kind, t.FloatType):
        return rng.choice(
            (0.0, 1.0, -1.5, 1e300, -1e300, float("nan"), float("inf"), -float("inf"), rng.uniform(-9, 9))
        )
    if isinstance(kind, t.IntType):
        return rng.choice((0, 1, -1, 255, 2**31, -(2**31), 2**63 - 1, rng.randrange(1000)))
    if isinstance(kind, t.BoolType):
        return rng.random() < 0.5
    if isinstance(kind, t.StrType):
        return rng.choice(("", "arm", "takeoff", "offboard", "land", "text", "pier", "\0\n", "x" * 300, "…"))
    if isinstance(kind, t.EnumType):
        return rng.choice((*(member.value for member in kind.cls), *(member.value for member in kind.cls), "unknown"))
    if isinstance(kind, t.BytesType):
        return rng.randbytes(rng.randrange(60))
    if isinstance(kind, t.NoneType):
        return None
    if isinstance(kind, t.TupleType):
        return [random_value(rng, item) for item in kind.item_types]
    if isinstance(kind, (t.VarTupleType, t.ListType)):
        return [random_value(rng, kind.item_type) for _ in range(rng.randrange(4))]
    if isinstance(kind, t.DictType):
        return {random_value(rng, kind.key_type): random_value(rng, kind.value_type) for _ in range(3)}
    if isinstance(kind, t.UnionType):
        return random_value(rng, rng.choice(kind.types))
    assert isinstance(kind, t.StructType), kind
    fields = {f.encode_name: random_value(rng, f.type) for f in kind.fields}
    if kind.tag is not None:
        fields[kind.tag_field] = kind.tag
    return fields


class BusFuzzer:
    """The frames of bus messages of every topic: right types with extreme values, and mutations of them."""

    def __init__(self, rng):
        self.rng = rng
        self.kinds = {topic: msgspec.inspect.type_info(row.type) for topic, row in TOPICS.items()}
        self.topics = [*TOPICS, *(["setpoint", "fcu_command", "state", "link_rx"] * 5)]
        self.encoder = msgspec.msgpack.Encoder()

    def good(self, stamp_s):
        """A message of the table; half of them are from just now."""
        rng = self.rng
        topic = rng.choice(self.topics)
        content = random_value(rng, self.kinds[topic])
        if rng.random() < 0.7:
            content |= {"stamp_s": stamp_s - rng.random() * 0.05, "valid": True}
            if topic == "state" and rng.random() < 0.7:
                vectors = dict.fromkeys(("p_W", "v_W", "p_WM"), [rng.uniform(-9, 9) for _ in range(3)])
                content |= vectors | {"q_WB": [1.0, 0.0, 0.0, 0.0], "covariance_diag": [rng.random()] * 28}
                content |= {"bundle": "pier", "marker_age_s": rng.random(), "relative_std_m": rng.random()}
            if topic == "setpoint" and rng.random() < 0.7:
                content |= {name: rng.uniform(-0.3, 0.3) for name in ("roll_rad", "pitch_rad", "yaw_rate_rad_s")}
                content |= {"expires_s": stamp_s + 0.1, "thrust": rng.random(), "yaw_rad": rng.uniform(-4, 4)}
        return [topic.encode() + b"/fuzz", VERSIONS[topic], self.encoder.encode(content)]

    def next(self, stamp_s):
        """One piece of input, mutated or not."""
        rng = self.rng
        frames = self.good(stamp_s)
        how = rng.randrange(9)
        which = rng.randrange(3)
        if how == 0:
            data = bytearray(frames[which])
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            frames[which] = bytes(data)
        elif how == 1:
            frames[which] = frames[which][: rng.randrange(len(frames[which]))]
        elif how == 2:
            frames[2] = frames[2][: rng.randrange(len(frames[2]))] + self.good(stamp_s)[2][rng.randrange(9) :]
        elif how == 3:
            frames[2] = rng.randbytes(rng.randrange(200))
        elif how == 4:
            frames = frames[: rng.randrange(3)] + [b""] * rng.randrange(4)
        elif how == 5:
            frames[2] = b"\x91" * rng.randrange(5000)  # arrays in arrays in arrays
        return frames
