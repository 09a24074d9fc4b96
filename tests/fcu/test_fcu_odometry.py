"""ODOMETRY as PX4's receiver expects it: frames, stamps, covariance, resets, quality; none without a marker."""

import math

import pytest
from fcu_peer import Peer
from msgspec.structs import replace

from companion.core.messages import State
from companion.fcu.fcu_node import FcuNode
from companion.fcu.odometry import MARKER_AGE_MAX_S, OdometrySource, covariance

NED, VISION = 1, 2  # MAV_FRAME_LOCAL_NED, MAV_ESTIMATOR_TYPE_VISION


def state(stamp_s=100.0, **change):
    diagonal = (0.09, 0.16, 0.25, 0.01, 0.02, 0.03, 0.001, 0.002, 0.003) + (0.1,) * 19
    fields = dict(
        p_W=(5.0, 1.0, 4.0), v_W=(0.1, 0.2, 0.3), q_WB=(1.0, 0.0, 0.0, 0.0), disturbance_W=(0, 0, 0),
        gnss_bias_W=(0, 0, 0), velocity_bias_W=(0, 0, 0), bundle="pier", p_WM=(8.0, 1.0, 4.0), q_WM=(1.0, 0, 0, 0),
        marker_age_s=0.05, position_std_m=0.6, relative_std_m=0.03, covariance_diag=diagonal,
        battery_voltage_v=15.0, reset_count=0,
    )  # fmt: skip
    return State(stamp_s=stamp_s, **(fields | change))


@pytest.fixture
def sender(vehicle):
    peer = Peer(FcuNode(replace(vehicle, fcu=replace(vehicle.fcu, send_odometry=True))))
    peer.run(3.0)
    return peer


def test_the_state_is_an_input_only_where_the_vehicle_file_says_so(vehicle, sender):
    assert "state" in sender.node.inputs and "state" not in FcuNode(vehicle).inputs


def test_a_state_becomes_what_px4_fuses(sender):
    sender.publish(state(stamp_s=sender.now_s - 0.02))
    (m,) = sender.sent("ODOMETRY")
    assert m.time_usec == round((sender.now_s - 0.02) * 1e6)  # companion time, as in the answers to PX4's TIMESYNC
    assert (m.frame_id, m.child_frame_id, m.estimator_type) == (NED, NED, VISION)
    assert (m.x, m.y, m.z) == (1.0, 5.0, -4.0)
    assert (m.vx, m.vy, m.vz) == pytest.approx((0.2, 0.1, -0.3))
    assert m.q == pytest.approx([math.sqrt(0.5), 0, 0, math.sqrt(0.5)])  # facing east
    assert all(map(math.isnan, (m.rollspeed, m.pitchspeed, m.yawspeed)))
    assert 1 <= m.quality <= 100 and m.reset_counter == 0


def test_the_length_of_the_quaternion_is_one_within_px4s_tolerance(sender):
    sender.publish(state(stamp_s=sender.now_s, q_WB=(0.98, 0.1, 0.2, 0.05)))
    (m,) = sender.sent("ODOMETRY")
    assert math.sqrt(sum(x * x for x in m.q)) == pytest.approx(1.0, abs=1e-6)


def test_variances_stand_where_px4_reads_them(sender):
    sender.publish(state(stamp_s=sender.now_s))
    (m,) = sender.sent("ODOMETRY")
    assert len(m.pose_covariance) == len(m.velocity_covariance) == 21
    relative = 0.03**2
    assert [m.pose_covariance[i] for i in (0, 6, 11)] == pytest.approx([relative] * 3)
    assert [m.pose_covariance[i] for i in (15, 18, 20)] == pytest.approx([0.001, 0.002, 0.003])
    assert [m.velocity_covariance[i] for i in (0, 6, 11)] == pytest.approx([0.02, 0.01, 0.03])  # north, east, down
    rest = [v for i, v in enumerate(m.pose_covariance) if i not in (0, 6, 11, 15, 18, 20)]
    assert rest == [0.0] * 15


def test_the_upper_triangle_counts_rows_of_falling_length():
    assert [i for i, v in enumerate(covariance(1, 2, 3, 4, 5, 6)) if v] == [0, 6, 11, 15, 18, 20]


def test_the_anchor_of_the_bundle_stays(sender):
    """A new estimate of the GNSS bias moves aircraft and bundle; PX4 must not follow that."""
    sender.publish(state(stamp_s=sender.now_s))
    sender.run(0.1)
    sender.publish(state(stamp_s=sender.now_s, p_W=(5.5, 1.2, 4.1), p_WM=(8.4, 1.2, 4.1)))
    first, second = sender.sent("ODOMETRY")
    assert (second.y, second.x, -second.z) == pytest.approx((first.y + 0.1, first.x, -first.z))
    assert second.reset_counter == first.reset_counter


@pytest.mark.parametrize("change", [{"bundle": "deck"}, {"reset_count": 1}])
def test_another_bundle_or_a_reset_of_the_filter_is_a_reset(sender, change):
    sender.publish(state(stamp_s=sender.now_s))
    sender.run(0.1)
    sender.publish(state(stamp_s=sender.now_s, p_W=(7.0, 0.0, 4.0), p_WM=(9.0, 1.0, 4.0), **change))
    first, second = sender.sent("ODOMETRY")
    assert (first.reset_counter, second.reset_counter) == (0, 1)
    assert (second.y, second.x, -second.z) == pytest.approx((7.0, 0.0, 4.0))


@pytest.mark.parametrize(
    "change",
    [{"valid": False}, {"bundle": ""}, {"marker_age_s": MARKER_AGE_MAX_S + 0.1}, {"marker_age_s": math.inf},
     {"relative_std_m": math.inf}, {"p_W": (math.nan, 0, 0)}, {"q_WB": (0, 0, 0, 0)}, {"v_W": (1e30, 0, 0)},
     {"covariance_diag": ()}, {"covariance_diag": (math.nan,) * 28}, {"stamp_s": -1.0}],
)  # fmt: skip
def test_a_state_without_a_bundle_in_sight_is_not_sent(sender, change):
    assert sender.publish(state(**({"stamp_s": sender.now_s} | change))) == []


def test_odometry_is_sent_at_thirty_hertz_from_states_at_a_hundred(sender):
    source, sent = OdometrySource(), 0
    for i in range(1000):
        sent += source.message(state(stamp_s=i * 0.01), i * 0.01) is not None
    assert sent == pytest.approx(300, abs=3)


def test_quality_falls_with_the_deviation_to_one_at_least(sender):
    source = OdometrySource()
    qualities = [
        source.message(state(relative_std_m=std, stamp_s=i), float(i)).quality
        for i, std in enumerate((0.01, 0.1, 0.2, 0.3, 5.0), start=1)
    ]
    assert qualities == sorted(qualities, reverse=True) and qualities[-1] == 1


def test_nothing_is_sent_without_a_flight_controller_or_in_a_conflict(sender):
    sender.node.conflict.note("another sender", sender.now_s)
    assert sender.publish(state(stamp_s=sender.now_s)) == []
    sender.node.conflict.text = ""
    sender.silent = True
    sender.run(2.0)
    assert sender.publish(state(stamp_s=sender.now_s)) == []
