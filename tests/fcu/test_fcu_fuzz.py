"""A hundred thousand pieces of bad input cause no exception, no growth of memory, and no setpoint."""

import gc
import math
import random
import sys

import pytest
from fcu_peer import Peer
from mavlink_fuzz import BusFuzzer, FrameFuzzer
from msgspec.structs import replace

from companion.core.bus import BadMessage, decode, encode
from companion.core.messages import (
    FcuAttitude,
    FcuCommand,
    FcuPosition,
    FcuStatus,
    LinkRx,
    LinkTx,
    SentSetpoint,
    Setpoint,
    State,
)
from companion.fcu.fcu_node import FcuNode
from companion.fcu.guards.conflict import HOLD_S
from companion.fcu.link.signing import EPOCH_S, Signer
from companion.runtime.process import resident_mb

FRAMES, MESSAGES, SIGNED = 60_000, 36_000, 10_000
BLOCKS_MAX = 1_000  # of Python's memory, more than after the warm-up; it is below a hundred
GROWTH_MAX_MB = 3.0  # of the process, buffers of C included; it is below 0.1
SET_ATTITUDE_TARGET = b"\x52\x00\x00"


class Memory:
    """The memory in use now; `check` compares with it."""

    def __init__(self):
        gc.collect()
        self.blocks, self.resident_mb = sys.getallocatedblocks(), resident_mb()

    def check(self):
        gc.collect()
        assert sys.getallocatedblocks() - self.blocks < BLOCKS_MAX
        assert resident_mb() - self.resident_mb < GROWTH_MAX_MB


def check(published):
    """Every published message can be encoded, and valid content consists of numbers and rotations."""
    for message in published:
        encode(message)
        if isinstance(message, FcuAttitude) and message.valid:
            assert sum(x * x for x in message.q_WB) == pytest.approx(1.0, abs=1e-6)
            assert all(map(math.isfinite, (*message.omega_B, message.stamp_s)))
        elif isinstance(message, FcuPosition) and message.valid:
            assert all(map(math.isfinite, (*message.p_W, *message.v_W, message.stamp_s)))
        elif isinstance(message, LinkTx):
            assert message.data[7:10] != SET_ATTITUDE_TARGET


def test_after_mutated_frames_the_flight_controller_connects(vehicle):
    node, rng = FcuNode(vehicle), random.Random(11)
    peer, fuzzer, now_s = Peer(node), FrameFuzzer(rng), 100.0
    for i in range(FRAMES):
        if i == FRAMES // 4:
            memory = Memory()
        if i % 10 == 0:
            now_s += 0.01
            check(node.step(now_s))
        ground = rng.random() < 0.1
        check(node.handle(LinkRx(stamp_s=now_s, data=fuzzer.next(), ground=ground), now_s))
    memory.check()
    assert node.codec.bad_checksums > 1000 and node.codec.frames > 5000 and node.ground.blocked > 0
    peer.now_s, peer.boot_at_s, peer.heartbeat_due_s = now_s, now_s - 50.0, now_s
    out = peer.run(HOLD_S + 10.0)
    status = [m for m in out if isinstance(m, FcuStatus)][-1]
    assert status.connected and status.conflict == "" and status.refused == "" and node.timesync.synced
    assert [m for m in out if isinstance(m, FcuAttitude)][-1].valid


def test_mutated_bus_messages_raise_neither_in_the_decoder_nor_in_the_node(vehicle):
    """Bad setpoints never leave; good ones do, so the fuzz reaches the last check."""
    peer = Peer(FcuNode(replace(vehicle, fcu=replace(vehicle.fcu, send_odometry=True))))
    peer.run(3.0)
    node, rng, now_s = peer.node, random.Random(12), peer.now_s
    fuzzer, refused, decoded, sent = BusFuzzer(rng), 0, 0, 0
    for i in range(MESSAGES):
        if i == MESSAGES // 4:
            memory = Memory()
        if i % 10 == 0:
            now_s += 0.01
            node.step(now_s)
        try:
            message = decode(fuzzer.next(now_s))
        except BadMessage as error:
            assert str(error) and "\n" not in str(error)
            refused += 1
            continue
        decoded += 1
        if isinstance(message, (Setpoint, FcuCommand, State, LinkRx)):
            before = node.counters["setpoints_sent"]
            published = list(node.handle(message, now_s))
            if node.counters["setpoints_sent"] == before:
                check(published)
                continue
            sent += 1
            (setpoint,) = [m for m in published if isinstance(m, SentSetpoint)]
            numbers = (setpoint.roll_rad, setpoint.pitch_rad, setpoint.yaw_rad, setpoint.yaw_rate_rad_s)
            assert all(map(math.isfinite, numbers)) and 0.0 <= setpoint.thrust <= 1.0
    memory.check()
    assert refused > 5000 and decoded > 5000 and sent > 400 and node.odometry.sent > 0


def test_mutated_frames_without_the_key_are_never_accepted(vehicle):
    node, rng = FcuNode(vehicle, signer=Signer(bytes(range(32)), 100.0, EPOCH_S + 1e6)), random.Random(13)
    fuzzer, now_s = FrameFuzzer(rng), 100.0
    for i in range(SIGNED):
        now_s += 0.001
        if i % 10 == 0:
            check(node.step(now_s))
        check(node.handle(LinkRx(stamp_s=now_s, data=fuzzer.next()), now_s))
    assert node.codec.frames == 0 and not node.connected
    assert node.codec.unsigned_frames > 1000 and node.codec.signer.wrong_signatures > 100
