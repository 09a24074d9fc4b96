"""The independent guard: its record, its margins, resets of PX4's estimator, and the loss of GNSS."""

import math

import msgspec
import pytest
from mission_world import World

from companion.core.geodesy import EARTH_RADIUS_M
from companion.core.messages import FcuPosition
from companion.fcu.guards.plausible import Plausibility
from companion.mission.raw_guard import ACCURACY_MAX_M, MARGIN_MIN_M, POSITION_AGE_S, SETTLE_S, SHIFT_MAX_M, RawGuard

STEP_S = 0.02
NAN = math.nan


class Flight:
    """A guard that gets positions 50 times a second and a status ten times."""

    def __init__(self, by_receiver: bool = False, rate_hz: float = 1.0 / STEP_S, **status) -> None:
        """rate_hz: of the positions that arrive; they pass the check of the link, which drops some after a jump."""
        self.every = round(1.0 / (rate_hz * STEP_S))
        self.link = Plausibility(reference_v=14.8)
        self.silent_until_s = 0.0
        self.world = World()
        self.guard = RawGuard(by_receiver)
        self.now_s, self.steps = 100.0, 0
        self.p, self.v = (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
        self.status = status
        self.filter_v = None

    def run(self, seconds: float, on_ground: bool = False) -> "Flight":
        for _ in range(round(seconds / STEP_S)):
            self.now_s += STEP_S
            self.steps += 1
            self.p = tuple(a + STEP_S * b for a, b in zip(self.p, self.v, strict=True))
            if self.filter_v is not None:
                state = next(m for m in self.world.messages() if type(m).__name__ == "State")
                self.guard.take_state(msgspec.structs.replace(state, stamp_s=self.now_s, v_W=self.filter_v))
            arrives = self.steps % self.every == 0 and self.now_s >= self.silent_until_s
            if arrives and self.link.position(self.p, self.v, self.now_s):
                self.guard.take_position(FcuPosition(stamp_s=self.now_s, p_W=self.p, v_W=self.v))
            if self.steps % 5 == 0:
                status = msgspec.structs.replace(self.world.fcu_status(), stamp_s=self.now_s, **self.status)
                if status.gnss_position is not None or status.gnss_p_W is not None:
                    status.gnss_s = self.now_s
                self.guard.take_status(status, self.now_s)
            if on_ground:
                self.guard.note_ground()
        return self

    def on_ground(self) -> "Flight":
        return self.run(2.0, on_ground=True)

    def jump(self, x: float, y: float = 0.0, z: float = 0.0, reset: bool = False) -> "Flight":
        self.p = (self.p[0] + x, self.p[1] + y, self.p[2] + z)
        if reset:
            self.status["position_resets"] = (self.status.get("position_resets", 7) + 1) % 256
        return self

    @property
    def motion(self):
        return self.guard.motion(self.now_s)


def test_without_a_record_there_is_no_motion():
    assert Flight().run(3.0).motion is None


def test_the_record_is_the_median_of_the_last_second_on_the_ground():
    flight = Flight().on_ground()
    flight.jump(30.0).run(0.1, on_ground=True)  # a short outlier before arming
    flight.jump(-30.0).run(0.1, on_ground=True)
    flight.jump(5.0, -2.0, 3.0).run(0.1)
    assert flight.motion.p == pytest.approx((5.0, -2.0, 3.0))


def test_a_home_position_that_moves_does_not_move_the_record():
    flight = Flight().on_ground()
    flight.status["home_W"] = (20.0, 20.0, 20.0)
    assert flight.run(1.0).motion.p == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    "status, horizontal_m, vertical_m",
    [
        ({"gnss_h_acc_m": 0.3, "gnss_v_acc_m": 0.4}, MARGIN_MIN_M, MARGIN_MIN_M),
        ({"gnss_h_acc_m": 1.5, "gnss_v_acc_m": 1.0}, 4.5, 3.0),
        ({"gnss_h_acc_m": 1.0, "gnss_v_acc_m": NAN}, 3.0, 4.5),
        ({"gnss_h_acc_m": NAN, "gnss_v_acc_m": NAN, "gnss_hdop": 0.8}, 3.6, 5.4),
        ({"gnss_h_acc_m": NAN, "gnss_v_acc_m": NAN}, 7.5, 11.25),
        ({"gnss_h_acc_m": 400.0, "gnss_v_acc_m": 400.0}, 3 * ACCURACY_MAX_M, 3 * ACCURACY_MAX_M),
    ],
)
def test_the_margin_follows_the_accuracy_that_the_receiver_reports(status, horizontal_m, vertical_m):
    motion = Flight(**status).on_ground().motion
    assert motion.margin_m == pytest.approx(horizontal_m) and motion.vertical_margin_m == pytest.approx(vertical_m)


@pytest.mark.parametrize("early", [True, False])
def test_a_jump_that_px4_counts_as_a_reset_moves_the_record(early):
    """The count comes with the next status; sometimes the position does not come before it."""
    flight = Flight().on_ground()
    flight.run(0.04 if early else 0.08)
    flight.jump(2.0, -1.0, 0.5, reset=True).run(0.3)
    assert flight.motion.p == pytest.approx((0.0, 0.0, 0.0), abs=1e-9)
    assert flight.guard.reset_m == pytest.approx(math.hypot(2.0, 1.0, 0.5))


@pytest.mark.parametrize("rate_hz", [50.0, 10.0, 5.0, 3.125])
@pytest.mark.parametrize("size_m", [2.0, 10.0])
@pytest.mark.parametrize("silent_s", [0.0, 0.25, 0.4])
@pytest.mark.parametrize("counted_after_s", [0.02, 0.3])
def test_a_reset_is_followed_at_every_rate_of_the_positions(rate_hz, size_m, silent_s, counted_after_s):
    """On a slow link positions lie 0.2 s apart, some are lost, and the check of the link drops two after a large jump."""
    if silent_s and rate_hz < 5.0 and size_m > 5.0:
        pytest.skip("positions are more than a second apart then, and lost")
    flight = Flight(rate_hz=rate_hz).on_ground()
    flight.v = (1.5, 0.0, 0.0)
    flight.run(1.02)
    flight.silent_until_s = flight.now_s + silent_s
    flight.jump(0.0, size_m).run(counted_after_s)
    flight.jump(0.0, reset=True).run(2.4)
    assert flight.guard.reset_m == pytest.approx(size_m, abs=0.05)
    assert flight.motion.p[1] == pytest.approx(max(0.0, size_m - SHIFT_MAX_M), abs=0.05)


@pytest.mark.parametrize("rate_hz", [50.0, 5.0, 3.125])
def test_a_hard_manoeuvre_at_a_low_rate_is_no_jump(rate_hz):
    flight = Flight(rate_hz=rate_hz).on_ground()
    for i in range(100):
        flight.v = (flight.v[0] + (0.1 if i % 50 < 25 else -0.1), 0.0, 0.0)  # 5 m/s², back and forth
        if i % 20 == 0:
            flight.jump(0.0, reset=True)  # of the heading
        flight.run(STEP_S)
    assert flight.guard.reset_m == 0.0


@pytest.mark.parametrize("rate_hz", [50.0, 5.0, 2.0])
def test_the_guard_has_a_value_at_every_moment_between_two_positions(rate_hz):
    """A monitor needs its value for half a second without a break."""
    flight = Flight(rate_hz=rate_hz).on_ground()
    flight.v = (0.0, 0.0, 1.0)
    for _ in range(100):
        flight.run(STEP_S)
        delayed_s = flight.now_s + 0.05  # of the link, and a step of the mission
        assert flight.guard.motion(delayed_s) is not None and flight.guard.climb(delayed_s) is not None


def test_a_jump_without_a_reset_and_a_reset_without_a_jump_move_nothing():
    flight = Flight().on_ground()
    flight.jump(3.0).run(1.0)
    flight.jump(0.0, reset=True).run(1.0)  # of the heading
    assert flight.motion.p == pytest.approx((3.0, 0.0, 0.0)) and flight.guard.reset_m == 0.0


def test_resets_cannot_lead_the_guard_away():
    flight = Flight().on_ground()
    for _ in range(20):
        flight.jump(1.0, reset=True).run(0.7)
    assert flight.motion.p[0] == pytest.approx(20.0 - SHIFT_MAX_M) and flight.guard.reset_m == pytest.approx(20.0)


def test_a_receiver_that_jumps_there_and_back_leaves_the_record_where_it_was():
    flight = Flight().on_ground()
    for _ in range(4):
        flight.jump(0.0, 3.0, reset=True).run(1.0)
        flight.jump(0.0, -3.0, reset=True).run(1.0)
    assert flight.motion.p == pytest.approx((0.0, 0.0, 0.0)) and flight.guard.reset_m == pytest.approx(0.0)


def test_fast_flight_is_no_jump():
    flight = Flight().on_ground()
    for i in range(12):
        flight.v = (i + 1.0, 0.0, 0.0)
        flight.run(0.1)
    start_m = flight.motion.p[0]
    flight.jump(0.0, reset=True).run(1.0)
    assert flight.motion.p == pytest.approx((start_m + 12.0, 0.0, 0.0)) and flight.guard.reset_m == 0.0


def test_without_a_fix_there_is_no_value_until_px4_has_settled_again():
    flight = Flight().on_ground().run(1.0)
    flight.status["gnss_ok"] = False
    flight.run(1.2)
    assert flight.motion is None and flight.guard.velocity_difference_m_s(flight.now_s) is None
    flight.status["gnss_ok"] = True
    assert flight.run(SETTLE_S - 0.5).motion is None
    assert flight.run(1.0).motion is not None


def test_a_position_that_px4_calls_invalid_is_no_witness():
    """It dead-reckons then, whatever the receiver has."""
    flight = Flight().on_ground().run(1.0)
    flight.status["position_ok"] = False
    flight.run(1.2)
    assert flight.motion is None and flight.guard.velocity_difference_m_s(flight.now_s) is None
    flight.status["position_ok"] = True
    assert flight.run(0.1).motion is not None


@pytest.mark.parametrize(("lost_s", "moved_m"), [(3.0, 4.0), (8.0, 0.0)])
def test_a_reset_soon_after_px4_lost_its_position_is_a_jump_of_the_satellites(lost_s, moved_m):
    """A later one takes back the drift of a position that followed nothing."""
    flight = Flight().on_ground().run(1.0)
    flight.status["position_ok"] = False
    flight.run(lost_s)
    flight.jump(4.0, reset=True)
    flight.run(1.0)
    flight.status["position_ok"] = True
    flight.run(1.0)
    assert flight.guard.reset_m == pytest.approx(moved_m)


def test_the_reset_at_the_end_of_a_loss_of_gnss_does_not_move_the_record():
    flight = Flight().on_ground().run(1.0)
    flight.status["gnss_ok"] = False
    flight.v = (0.4, 0.0, 0.0)  # PX4 drifts
    flight.run(10.0)
    flight.v = (0.0, 0.0, 0.0)
    flight.status["gnss_ok"] = True
    flight.jump(-flight.p[0], reset=True).run(SETTLE_S + 1.0)
    assert flight.motion.p == pytest.approx((0.0, 0.0, 0.0), abs=1e-9)


def test_old_positions_have_no_motion():
    flight = Flight().on_ground()
    assert flight.guard.motion(flight.now_s + POSITION_AGE_S - 0.1) is not None
    late_s = flight.now_s + POSITION_AGE_S + 0.1
    assert flight.guard.motion(late_s) is None and flight.guard.climb(late_s) is None


@pytest.mark.parametrize("broken", [{"p_W": (NAN, 0.0, 0.0)}, {"v_W": (0.0, math.inf, 0.0)}, {"valid": False}])
def test_a_position_that_is_no_number_is_not_used(broken):
    flight = Flight().on_ground()
    flight.now_s += 0.1
    position = FcuPosition(stamp_s=flight.now_s, p_W=(50.0, 0.0, 0.0), v_W=(0.0, 0.0, 0.0))
    flight.guard.take_position(msgspec.structs.replace(position, **broken))
    assert flight.motion.p == (0.0, 0.0, 0.0)


def test_the_difference_of_the_velocities_is_a_mean_of_two_seconds():
    flight = Flight().on_ground()
    flight.filter_v = (0.0, 0.0, 0.0)
    flight.v = (0.0, 2.0, 0.0)
    assert flight.run(0.5).guard.velocity_difference_m_s(flight.now_s) == pytest.approx(0.5, abs=0.05)
    flight.v = (0.0, 0.6, 0.0)
    assert flight.run(2.5).guard.velocity_difference_m_s(flight.now_s) == pytest.approx(0.6, abs=0.02)
    flight.v = (0.0, 0.0, 0.0)
    assert flight.run(2.5).guard.velocity_difference_m_s(flight.now_s) == pytest.approx(0.0)


LATITUDE, LONGITUDE = 48.0, 11.0
M_NORTH = math.degrees(1 / EARTH_RADIUS_M)  # degrees
M_EAST = M_NORTH / math.cos(math.radians(LATITUDE))


def receiver(east=0.0, north=0.0, up=500.0):
    return {"gnss_position": (LATITUDE + north * M_NORTH, LONGITUDE + east * M_EAST, up)}


def by_receiver(**status) -> Flight:
    return Flight(by_receiver=True, **({"gnss_v_W": (0.0, 0.0), "baro_altitude_m": 480.0} | receiver() | status))


def test_where_odometry_is_sent_the_receiver_and_the_barometer_are_the_source():
    flight = by_receiver(**receiver(7.0, 3.0)).on_ground()
    flight.v = (1.0, 0.0, 0.0)  # PX4's own estimate goes elsewhere
    flight.run(3.0)
    assert flight.motion.p == (0.0, 0.0, 0.0)
    flight.filter_v = (0.0, 0.0, 0.0)
    flight.status |= {"gnss_v_W": (0.0, 1.5), "baro_altitude_m": 482.5} | receiver(7.0, 9.0)
    flight.run(2.5)
    assert flight.motion.p == pytest.approx((0.0, 6.0, 2.5), abs=1e-4) and math.isnan(flight.motion.v[2])
    assert flight.guard.velocity_difference_m_s(flight.now_s) == pytest.approx(1.5, abs=0.1)
    flight.status["gnss_position"] = None
    assert flight.run(1.5).motion is None


def test_a_log_from_before_the_absolute_position_is_judged_by_its_metres():
    old = {"gnss_p_W": (7.0, 3.0, 1.0), "gnss_v_W": (0.0, 0.0), "baro_altitude_m": 480.0}
    flight = Flight(by_receiver=True, **old).on_ground()
    flight.status["gnss_p_W"] = (7.0, 9.0, 1.0)
    assert flight.run(1.0).motion.p == pytest.approx((0.0, 6.0, 0.0))


@pytest.mark.parametrize("first_far_m", [0.0, 300e3])
def test_a_long_way_and_a_first_fix_that_was_far_away_keep_their_precision(first_far_m):
    """Metres are counted from the record, whose latitude has the scale, and not from the first fix of a process."""
    flight = by_receiver(**receiver(north=-first_far_m)).run(2.0)
    flight.status |= receiver()
    flight.run(2.0).on_ground()
    for east_m in (100.0, 900.0, 1100.0, 5000.0):
        flight.status |= receiver(east=east_m)
        flight.run(0.3)
        assert flight.motion.p == pytest.approx((east_m, 0.0, 0.0), abs=0.01)
    flight.status |= receiver(east=0.0)
    assert flight.run(0.3).motion.p == pytest.approx((0.0, 0.0, 0.0), abs=0.01)


@pytest.mark.parametrize("at_arming", ["both", "receiver", "barometer later"])
def test_a_change_of_the_source_of_the_height_does_not_move_it(at_arming):
    """Barometer and receiver have zeros of their own, and drift: 480 and 500 m for one place, then 483 and 501."""
    known = {} if at_arming == "both" else {"baro_altitude_m": NAN}
    flight = by_receiver(**known).on_ground()
    if at_arming == "barometer later":
        flight.status["baro_altitude_m"] = 480.0
        assert flight.run(2.0).motion.p[2] == pytest.approx(0.0)
    if at_arming != "receiver":
        flight.status |= {"baro_altitude_m": 483.0} | receiver(up=501.0)
        assert flight.run(2.0).motion.p[2] == pytest.approx(3.0)
    height_m = flight.motion.p[2]
    for _ in range(5):  # ALTITUDE comes and goes
        present = flight.status["baro_altitude_m"]
        flight.status["baro_altitude_m"] = NAN
        assert flight.run(1.5).motion.p[2] == pytest.approx(height_m)
        flight.status["baro_altitude_m"] = present
        assert flight.run(1.5).motion.p[2] == pytest.approx(height_m)
    flight.status |= {"baro_altitude_m": NAN} | receiver(up=flight.status["gnss_position"][2] + 2.0)
    assert flight.run(0.5).motion.p[2] == pytest.approx(height_m + 2.0)


def test_resets_under_the_pilot_before_the_hand_over_are_not_counted():
    flight = Flight().on_ground()
    for _ in range(3):
        flight.jump(1.5, reset=True).run(1.0)
    assert flight.guard.reset_m == pytest.approx(4.5)
    flight.guard.note_start()
    assert flight.run(1.0).guard.reset_m == 0.0 and flight.motion.p == pytest.approx((0.0, 0.0, 0.0), abs=1e-9)
    flight.jump(0.0, 2.0, reset=True).run(1.0)
    assert flight.guard.reset_m == pytest.approx(2.0)


def test_the_reason_for_a_guard_without_a_value_is_named():
    assert Flight().run(10.0).guard.missing(110.0).startswith("no record")
    flight = Flight().on_ground().run(1.0)
    assert flight.guard.missing(flight.now_s) == ""
    flight.status["gnss_ok"] = False
    assert flight.run(2.0).guard.missing(flight.now_s) == "no position fix"
    flight.status["gnss_ok"] = True
    assert flight.run(2.0).guard.missing(flight.now_s) == "position fix has just come back"


def test_the_climb_is_by_px4s_own_height_also_where_odometry_is_sent():
    flight = by_receiver().jump(0.0, 0.0, 2.0).on_ground()
    flight.v = (0.0, 0.0, 1.5)
    assert flight.run(1.0).guard.climb(flight.now_s) == pytest.approx((1.5, 1.5))


def test_a_record_with_a_poor_fix_keeps_its_margin_when_the_fix_becomes_good():
    """RTK after a start with 2.5 m: PX4 follows by metres without a reset, and the aircraft was landed near a limit."""
    flight = Flight(gnss_h_acc_m=2.5, gnss_v_acc_m=3.5).on_ground()
    flight.run(20.0)
    flight.status.update(gnss_h_acc_m=0.02, gnss_v_acc_m=0.03)
    flight.run(1.0)
    assert (flight.motion.margin_m, flight.motion.vertical_margin_m) == (7.5, 10.5)
    other = Flight(gnss_h_acc_m=0.02, gnss_v_acc_m=0.03).on_ground()
    other.run(1.0)
    assert (other.motion.margin_m, other.motion.vertical_margin_m) == (2.0, 2.0)
