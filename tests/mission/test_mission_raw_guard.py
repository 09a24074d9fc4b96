"""The independent guard: its record, its margins, resets of PX4's estimator, and the loss of GNSS."""

import math

import msgspec
import pytest
from mission_world import World

from companion.core.messages import FcuPosition
from companion.mission.raw_guard import ACCURACY_MAX_M, MARGIN_MIN_M, SETTLE_S, SHIFT_MAX_M, RawGuard

STEP_S = 0.02
NAN = math.nan


class Flight:
    """A guard that gets positions 50 times a second and a status ten times."""

    def __init__(self, by_receiver: bool = False, **status) -> None:
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
            self.guard.take_position(FcuPosition(stamp_s=self.now_s, p_W=self.p, v_W=self.v))
            if self.steps % 5 == 0:
                status = msgspec.structs.replace(self.world.fcu_status(), stamp_s=self.now_s, **self.status)
                if status.gnss_p_W is not None:
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
    flight.v = (12.0, 0.0, 0.0)
    flight.jump(0.0, reset=True).run(1.0)
    assert flight.motion.p == pytest.approx((12.0, 0.0, 0.0))


def test_without_a_fix_there_is_no_value_until_px4_has_settled_again():
    flight = Flight().on_ground().run(1.0)
    flight.status["gnss_ok"] = False
    flight.run(1.2)
    assert flight.motion is None and flight.guard.velocity_difference_m_s(flight.now_s) is None
    flight.status["gnss_ok"] = True
    assert flight.run(SETTLE_S - 0.5).motion is None
    assert flight.run(1.0).motion is not None


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
    assert flight.guard.motion(flight.now_s + 0.1) is not None
    assert flight.guard.motion(flight.now_s + 0.3) is None and flight.guard.climb(flight.now_s + 0.3) is None


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


def test_where_odometry_is_sent_the_receiver_and_the_barometer_are_the_source():
    receiver = {"gnss_p_W": (7.0, 3.0, 1.0), "gnss_v_W": (0.0, 0.0), "baro_altitude_m": 480.0}
    flight = Flight(by_receiver=True, **receiver).on_ground()
    flight.v = (1.0, 0.0, 0.0)  # PX4's own estimate goes elsewhere
    flight.run(3.0)
    assert flight.motion.p == (0.0, 0.0, 0.0)
    flight.filter_v = (0.0, 0.0, 0.0)
    flight.status |= {"gnss_p_W": (7.0, 9.0, 1.0), "gnss_v_W": (0.0, 1.5), "baro_altitude_m": 482.5}
    flight.run(2.5)
    assert flight.motion.p == pytest.approx((0.0, 6.0, 2.5)) and math.isnan(flight.motion.v[2])
    assert flight.guard.velocity_difference_m_s(flight.now_s) == pytest.approx(1.5, abs=0.1)
    flight.status["gnss_p_W"] = None
    assert flight.run(1.5).motion is None


def test_the_climb_is_by_px4s_own_height_also_where_odometry_is_sent():
    receiver = {"gnss_p_W": (0.0, 0.0, 0.0), "gnss_v_W": (0.0, 0.0), "baro_altitude_m": 480.0}
    flight = Flight(by_receiver=True, **receiver).jump(0.0, 0.0, 2.0).on_ground()
    flight.v = (0.0, 0.0, 1.5)
    assert flight.run(1.0).guard.climb(flight.now_s) == pytest.approx((1.5, 1.5))
