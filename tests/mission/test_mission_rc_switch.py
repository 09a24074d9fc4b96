"""The mission switch is read by ranges, with hysteresis, and never without RC."""

import pytest
from mission_world import OFF_US, ON_US, World, switch_plan

from companion.mission.rc_switch import SwitchReader


def reader_and_world():
    plan = switch_plan()
    return SwitchReader(plan.rc_switch), World(plan)


def feed(reader, world, pulse_us, seconds=0.6, moving=False, stick_us=None, quality_us=None, **fields):
    world.channel_us = pulse_us
    for i in range(round(seconds / 0.1)):
        world.now_s += 0.1
        world.steps, world.hands_on_sticks = 2 * i, moving
        status = world.fcu_status()
        channels = list(status.rc_channels_us)
        channels[0] = channels[0] if stick_us is None else stick_us
        channels[6] = channels[6] if quality_us is None else quality_us
        status.rc_channels_us = tuple(channels)
        for name, value in fields.items():
            setattr(status, name, value)
        reader.read(status, world.now_s)


def test_position_is_unknown_until_seen_and_an_unknown_to_on_is_no_edge():
    reader, world = reader_and_world()
    assert reader.on is None
    feed(reader, world, ON_US)
    assert reader.on is True and reader.turned_on_s is None


def test_off_to_on_is_an_edge_and_the_middle_keeps_the_position():
    reader, world = reader_and_world()
    feed(reader, world, OFF_US)
    feed(reader, world, 1500)
    assert reader.on is False
    feed(reader, world, ON_US)
    assert reader.on is True and reader.turned_on_s is not None
    feed(reader, world, 1500)
    assert reader.on is True


def test_single_corrupted_frame_is_no_position():
    reader, world = reader_and_world()
    feed(reader, world, OFF_US)
    feed(reader, world, ON_US, 0.1)
    feed(reader, world, OFF_US, 0.1)
    assert reader.on is False and reader.turned_on_s is None


def test_position_must_stay_a_moment_before_it_counts():
    reader, world = reader_and_world()
    feed(reader, world, OFF_US)
    feed(reader, world, ON_US, 0.3)  # three frames span 0.2 s
    assert reader.on is False
    feed(reader, world, ON_US, 0.1)
    assert reader.on is True


def test_without_rc_or_channel_the_switch_keeps_its_position():
    reader, world = reader_and_world()
    feed(reader, world, ON_US)
    feed(reader, world, OFF_US, rc_ok=False)
    feed(reader, world, OFF_US, rc_channels_us=())
    assert reader.on is True
    feed(reader, world, 65535)  # MAVLink: channel not used
    assert reader.on is True


def test_a_movement_to_on_is_a_persons_when_a_stick_moved_while_the_switch_was_off():
    reader, world = reader_and_world()
    feed(reader, world, OFF_US, 1.5, moving=True)
    feed(reader, world, 1500, 0.5)  # a switch with three positions
    feed(reader, world, ON_US)
    assert reader.turned_on_s is not None and reader.doubt == ""


@pytest.mark.parametrize("lost_s", [0.5, 2.0, 5.0, 60.0])
def test_the_end_of_a_loss_that_the_receiver_covers_by_presets_is_no_persons_movement(lost_s):
    reader, world = reader_and_world()
    feed(reader, world, OFF_US, 3.0, moving=True)
    feed(reader, world, ON_US, 3.0, moving=True)
    feed(reader, world, OFF_US, lost_s)  # the presets: "off", sticks centred
    feed(reader, world, ON_US, 3.0, moving=True)
    assert reader.turned_on_s is not None and "a stick" in reader.doubt
    feed(reader, world, OFF_US, 1.5, moving=True)
    feed(reader, world, ON_US)
    assert reader.doubt == ""


def test_other_presets_after_the_first_and_a_weak_link_are_no_stick():
    reader, world = reader_and_world()
    feed(reader, world, ON_US, moving=True)
    feed(reader, world, OFF_US, 2.0)
    feed(reader, world, OFF_US, 2.0, rc_channels_us=(1500, 1500, 900, *(1500,) * 5))  # throttle low; then all channels
    feed(reader, world, ON_US, moving=True)
    assert "no stick moved" in reader.doubt or "less than" in reader.doubt
    for stick_us in (1400, 1450, 1600, 1700, 1500):  # the receiver keeps the sticks of the last good frame
        feed(reader, world, OFF_US, 0.7, stick_us=stick_us)
        feed(reader, world, ON_US, 0.3, stick_us=stick_us + 40)
    feed(reader, world, ON_US)
    assert reader.on and reader.doubt


def test_link_quality_on_a_later_channel_is_no_stick():
    reader, world = reader_and_world()
    feed(reader, world, ON_US)
    for quality_us in range(1000, 1200, 10):
        feed(reader, world, OFF_US, 0.1, quality_us=quality_us)
    feed(reader, world, ON_US)
    assert "no stick moved" in reader.doubt
