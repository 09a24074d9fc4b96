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


CARRIED = offset(ORIGIN, 200.0, 0.0, 0.0)
NEAR = offset(ORIGIN, 3.0, 0.0, 0.0)  # too near for the receiver to tell the origins apart


@pytest.mark.parametrize(
    ("place", "changes"),
    [
        (CARRIED, {}),
        (NEAR, {"timesync_offset_s": -700.0}),
        (NEAR, {"position_resets": 8}),
    ],
    ids=["far away", "its clock has another start", "its position was reset"],
)
def test_the_place_of_a_new_origin_is_not_mixed_with_that_of_the_former(place, changes):
    receiver = Receiver()
    receiver.feed(600.0, ORIGIN, timesync_offset_s=5.0, position_resets=7)
    assert receiver.error_m(ORIGIN) < 0.3
    receiver.feed(60.0, place, **{"timesync_offset_s": 5.0, "position_resets": 7, **changes})
    assert receiver.error_m(place) < 0.4


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
