"""The mission switch is read by ranges, with hysteresis, and never without RC."""

from mission_world import OFF_US, ON_US, World, switch_plan

from companion.mission.rc_switch import SwitchReader


def reader_and_world():
    plan = switch_plan()
    return SwitchReader(plan.rc_switch), World(plan)


def feed(reader, world, pulse_us, seconds=0.6, **fields):
    world.channel_us = pulse_us
    for _ in range(round(seconds / 0.1)):
        world.now_s += 0.1
        status = world.fcu_status()
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
