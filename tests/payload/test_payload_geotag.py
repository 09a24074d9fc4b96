"""The place of the flight controller's origin: averaged, and never that of an origin before."""

import math

import msgspec
import numpy as np
import pytest

from companion.core.geodesy import between
from companion.core.messages import FcuPosition
from companion.payload.geotag import SAMPLES_MIN, Georeference, offset
from tests.payload.rig import FIXED, ORIGIN, Rig

PERIOD_S = 0.2
NOISE_M = 0.9


class Receiver:
    """A receiver that stands at the flight controller's origin, with noise."""

    def __init__(self) -> None:
        self.georeference, self.now_s = Georeference(), 0.0
        self._status, self._rng = Rig(FIXED).status(), np.random.default_rng(1)

    def feed(self, duration_s: float, place: tuple[float, float, float], p_W=(0.0, 0.0, 0.0), **status) -> None:
        for _ in range(round(duration_s / PERIOD_S)):
            self.now_s += PERIOD_S
            noisy = offset(place, *(NOISE_M * self._rng.standard_normal(3)))
            self.georeference.put_position(FcuPosition(stamp_s=self.now_s, p_W=p_W, v_W=(0.0, 0.0, 0.0)))
            changes = {"stamp_s": self.now_s, "gnss_s": self.now_s, "gnss_position": noisy, **status}
            self.georeference.put_status(msgspec.structs.replace(self._status, **changes))

    def error_m(self, place: tuple[float, float, float]) -> float:
        """Horizontal error of the origin, NaN where there is none."""
        found = self.georeference.place((0.0, 0.0, 0.0))
        return math.nan if found is None else math.hypot(*between(place, found)[:2])

    def error_up_m(self, place: tuple[float, float, float]) -> float:
        """Error of the origin's altitude, NaN where there is none."""
        found = self.georeference.place((0.0, 0.0, 0.0))
        return math.nan if found is None else found[2] - place[2]


CARRIED = offset(ORIGIN, 200.0, 0.0, 0.0)
NEAR = offset(ORIGIN, 3.0, 0.0, 0.0)  # too near for the receiver to tell the origins apart


@pytest.mark.parametrize(
    ("place", "changes"),
    [(CARRIED, {}), (NEAR, {"timesync_offset_s": -700.0})],
    ids=["far away", "its clock has another start"],
)
def test_the_place_of_a_new_origin_is_not_mixed_with_that_of_the_former(place, changes):
    receiver = Receiver()
    receiver.feed(600.0, ORIGIN, timesync_offset_s=5.0, position_resets=7)
    assert receiver.error_m(ORIGIN) < 0.3
    receiver.feed(60.0, place, **{"timesync_offset_s": 5.0, "position_resets": 7, **changes})
    assert receiver.error_m(place) < 0.4


def test_a_reset_of_the_position_begins_the_mean_again():
    """The aircraft stands still, and its position is another one: the origin is 3 m farther east."""
    receiver = Receiver()
    receiver.feed(600.0, ORIGIN, position_resets=7)
    receiver.feed(PERIOD_S, ORIGIN, p_W=(-3.0, 0.0, 0.0), position_resets=8)
    assert math.isnan(receiver.error_m(NEAR))
    receiver.feed(60.0, ORIGIN, p_W=(-3.0, 0.0, 0.0), position_resets=8)
    assert receiver.error_m(NEAR) < 0.4


def test_a_reset_of_heading_or_velocity_keeps_the_mean():
    receiver = Receiver()
    receiver.feed(600.0, ORIGIN, position_resets=7)
    for resets in range(8, 28):
        receiver.feed(1.0, ORIGIN, position_resets=resets)
        assert receiver.error_m(ORIGIN) < 0.3


def test_a_flight_at_any_speed_keeps_the_mean():
    """15 m/s in a circle of 50 m, with a pause of the link: 4.5 m/s² are no jump."""
    georeference = Georeference()
    status = Rig(FIXED).status()
    for k in range(1200):
        t = 0.1 * k
        if 60.0 < t < 62.0:
            continue
        (sin, cos), r, v = (math.sin(0.3 * t), math.cos(0.3 * t)), 50.0, 15.0
        p_W = (r * cos, r * sin, 20.0)
        georeference.put_position(FcuPosition(stamp_s=t, p_W=p_W, v_W=(-v * sin, v * cos, 0.0)))
        changes = {"stamp_s": t, "gnss_s": t, "gnss_position": offset(ORIGIN, *p_W)}
        georeference.put_status(msgspec.structs.replace(status, **changes))
        assert k < SAMPLES_MIN or georeference.place((0.0, 0.0, 0.0)) is not None


def test_a_jump_of_the_receiver_moves_no_photograph():
    """A reflection: 7 m for 6 s, and for 20 s."""
    receiver = Receiver()
    receiver.feed(600.0, ORIGIN)
    for duration_s in (6.0, 20.0):
        for place, seconds in ((offset(ORIGIN, 7.0, 0.0, 0.0), duration_s), (ORIGIN, 10.0)):
            for _ in range(round(seconds / PERIOD_S)):
                receiver.feed(PERIOD_S, place)
                assert receiver.error_m(ORIGIN) < 0.4  # few samples are within six standard deviations


@pytest.mark.parametrize("v_acc_m", [1.7, math.nan], ids=["with its accuracy", "without"])
def test_an_altitude_that_jumps_moves_no_photograph(v_acc_m):
    """30 m too high for 20 s, at the right place."""
    receiver = Receiver()
    receiver.feed(600.0, ORIGIN, gnss_v_acc_m=v_acc_m)
    for up_m, seconds in ((30.0, 20.0), (0.0, 10.0)):
        for _ in range(round(seconds / PERIOD_S)):
            receiver.feed(PERIOD_S, offset(ORIGIN, 0.0, 0.0, up_m), gnss_v_acc_m=v_acc_m)
            assert abs(receiver.error_up_m(ORIGIN)) < 0.4


def test_an_altitude_that_stays_replaces_the_former():
    receiver = Receiver()
    receiver.feed(600.0, ORIGIN)
    higher = offset(ORIGIN, 0.0, 0.0, 30.0)
    receiver.feed(31.0, higher)
    assert abs(receiver.error_up_m(higher)) < 0.4


def test_an_altitude_that_the_receiver_knows_worse_is_judged_by_that():
    """12 m are three standard deviations: no jump, so the mean follows."""
    receiver = Receiver()
    receiver.feed(600.0, ORIGIN, gnss_v_acc_m=4.0)
    receiver.feed(20.0, offset(ORIGIN, 0.0, 0.0, 12.0), gnss_v_acc_m=4.0)
    assert receiver.error_up_m(ORIGIN) > 1.0


def test_an_origin_that_stays_far_replaces_the_former_without_a_pause():
    receiver = Receiver()
    receiver.feed(600.0, ORIGIN)
    receiver.feed(29.0, CARRIED)
    assert receiver.error_m(ORIGIN) < 0.3
    receiver.feed(2.0, CARRIED)
    assert receiver.error_m(CARRIED) < 0.4


def test_a_first_mean_that_does_not_count_yet_is_replaced_at_once():
    """The first fixes of a receiver may be far away."""
    receiver = Receiver()
    receiver.feed(PERIOD_S * (SAMPLES_MIN - 1), CARRIED)
    receiver.feed(PERIOD_S * (SAMPLES_MIN + 1), ORIGIN)
    assert receiver.error_m(ORIGIN) < 1.0


def test_a_flight_controller_that_was_away_has_no_place_until_some_samples_have_come():
    receiver = Receiver()
    receiver.feed(600.0, ORIGIN)
    receiver.feed(1.0, ORIGIN, connected=False)
    receiver.feed(PERIOD_S * (SAMPLES_MIN - 1), NEAR)
    assert math.isnan(receiver.error_m(NEAR))
    receiver.feed(10.0, NEAR)
    assert receiver.error_m(NEAR) < 1.0


def test_single_outliers_of_the_receiver_change_nothing():
    receiver = Receiver()
    for _ in range(30):
        receiver.feed(2.0, ORIGIN)
        receiver.feed(0.6, CARRIED)
    assert receiver.error_m(ORIGIN) < 0.5
