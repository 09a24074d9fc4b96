"""The estimator without satellites: start on the ground or in sight of the bundle, height by pressure, rest."""

import msgspec
import numpy as np
import pytest
from eskf_truth import HoverSimulation, position_M, status, vector

from companion.core.clock import SimulatedStopwatch
from companion.core.enums import FcuMode, Sensor
from companion.core.frames import quat_exp
from companion.core.messages import FcuAttitude, FcuImu, FcuPosition, FcuStatus
from companion.estimation.estimator import EstimatorNode
from companion.estimation.layout import ErrorIndex
from companion.estimation.without_satellites import HeightAiding

PRESSURE_M = 488.0


def estimator(vehicle):
    return EstimatorNode(vehicle, None, SimulatedStopwatch(), satellites=False)


def alone(flight):
    """The messages of a hover as the link of such a flight passes them on."""

    def edit(m):
        if isinstance(m, FcuPosition):
            return None
        if isinstance(m, FcuStatus):
            return msgspec.structs.replace(m, baro_altitude_m=PRESSURE_M + flight.s[2] + 0.02 * flight.rng.normal())
        return m

    flight.edit = edit
    return flight


def relative_m(flight, state):
    """Estimated minus true vector from the bundle to the aircraft [m]."""
    return float(np.linalg.norm(position_M(vector(state)) - position_M(flight.truth())))


def standing(node, seconds, from_s=100.0):
    """An aircraft on the ground: attitude, IMU, status; returns the last state."""
    state = None
    for i in range(round(seconds * 100)):
        now_s = from_s + 0.01 * (i + 1)
        node.handle(FcuImu(stamp_s=now_s, gyro_B=(0.0, 0.0, 0.0), accel_B=(0.05, -0.03, 9.81)), now_s)
        if i % 2 == 0:
            node.handle(FcuAttitude(stamp_s=now_s, q_WB=(1.0, 0.0, 0.0, 0.0), omega_B=(0.0, 0.0, 0.0)), now_s)
        if i % 10 == 0:
            message = status(now_s, FcuMode.ALTCTL, armed=False)
            height_m = PRESSURE_M + 0.1 * np.sin(3.0 * now_s)
            node.handle(msgspec.structs.replace(message, landed=True, baro_altitude_m=height_m), now_s)
        state, *_ = node.step(now_s)
    return state


def test_an_aircraft_that_stands_keeps_its_place(vehicle):
    state = standing(estimator(vehicle), 60.0)
    assert state.valid and state.reset_count == 0
    assert np.linalg.norm(state.p_W) < 0.5 and np.linalg.norm(state.v_W) < 0.05
    assert state.position_std_m < 0.5


def test_without_a_height_it_does_not_start(vehicle):
    node = estimator(vehicle)
    flight = HoverSimulation(vehicle, seed=1, imu=True)
    flight.edit = lambda m: None if isinstance(m, FcuPosition) else m
    assert not flight.run(node, 2.0).valid and node.history is None


def test_a_start_in_flight_in_sight_of_the_bundle_becomes_valid(vehicle):
    flight = alone(HoverSimulation(vehicle, seed=1, imu=True))
    flight.s[3:6] = (0.8, -0.6, 0.3)  # it moves, and the filter starts with no velocity
    state = flight.run(estimator(vehicle), 8.0)
    assert state.valid and state.bundle == "pier" and state.reset_count == 0
    assert relative_m(flight, state) < 0.08
    np.testing.assert_allclose(state.v_W, flight.s[3:6], atol=0.08)


def test_the_hover_is_estimated_as_with_a_position(vehicle):
    flight = alone(HoverSimulation(vehicle, seed=2, imu=True))
    flight.run(estimator(vehicle), 8.0)
    state = flight.states[-1]
    assert state.valid and relative_m(flight, state) < 0.06


def test_positions_that_arrive_all_the_same_change_nothing(vehicle):
    """PX4 sends a horizontal position that means nothing; a link that lets one through must not move the estimate."""
    without, with_noise = (alone(HoverSimulation(vehicle, seed=3, imu=True)) for _ in range(2))
    passed = with_noise.edit

    def nonsense(m):
        if isinstance(m, FcuPosition):
            return msgspec.structs.replace(m, p_W=(50.0, -20.0, 3.0), v_W=(9.0, 0.0, 0.0))
        return passed(m)

    with_noise.edit = nonsense
    a, b = without.run(estimator(vehicle), 5.0), with_noise.run(estimator(vehicle), 5.0)
    assert a.p_W == b.p_W and a.v_W == b.v_W


def test_out_of_sight_the_inertial_sensors_carry_the_place_and_the_state_ends_when_they_cannot(vehicle):
    flight = alone(HoverSimulation(vehicle, seed=1, imu=True))
    node = estimator(vehicle)
    flight.run(node, 8.0)
    flight.marker_seen = False
    state = flight.run(node, 3.0)
    assert state.valid and relative_m(flight, state) < 0.4
    last = next(s for s in [flight.run(node, 1.0) for _ in range(30)] if not s.valid)
    assert last.marker_age_s > 6.0


@pytest.mark.parametrize("offboard", [True, False], ids=["in offboard", "under the pilot"])
def test_where_satellites_and_bundle_are_lost_in_offboard_the_state_counts_as_without_satellites(vehicle, offboard):
    """PX4, which else gets the aircraft, lets the wind carry it."""
    flight = HoverSimulation(vehicle, seed=1, imu=True)
    node = EstimatorNode(vehicle, None, SimulatedStopwatch())
    flight.run(node, 8.0)
    flight.marker_seen = False

    def lost(m):
        if isinstance(m, FcuStatus):
            mode = FcuMode.OFFBOARD if offboard else FcuMode.ALTCTL
            return msgspec.structs.replace(m, gnss_ok=False, mode=mode)
        return None if isinstance(m, FcuPosition) else m

    flight.edit = lost
    flight.run(node, 25.0)
    std_m_s = np.array([max(np.array(s.covariance_diag)[ErrorIndex.VELOCITY]) ** 0.5 for s in flight.states])
    place_m = np.array([min(s.position_std_m, s.relative_std_m) for s in flight.states])
    valid = np.array([s.valid for s in flight.states])[900:]
    assert std_m_s[-1] > 1.2, "long enough"
    assert not valid[std_m_s[900:] > 1.25].any() and valid[:100].all()
    doubtful = (std_m_s[900:] > 0.55) & (std_m_s[900:] < 1.15)
    assert doubtful.sum() > 300 and (valid[doubtful] == offboard).all()
    assert (place_m[900:][doubtful] > vehicle.safety.position_std_m).any(), "the place is no condition"


def test_the_height_by_pressure_holds_the_vertical_out_of_sight(vehicle):
    flight = alone(HoverSimulation(vehicle, seed=1, imu=True))
    node = estimator(vehicle)
    seen = flight.run(node, 8.0)
    offset_m = seen.p_W[2] - flight.s[2]
    flight.marker_seen = False
    state = flight.run(node, 8.0)
    assert abs(state.p_W[2] - flight.s[2] - offset_m) < 0.4


@pytest.mark.parametrize("offboard", [False, True], ids=["pilot", "offboard"])
def test_a_bundle_that_contradicts_the_estimate_is_placed_again_under_the_pilot_only(vehicle, offboard):
    """A false pose from afar may have placed it. In offboard it may have moved, and must not be followed."""
    flight = alone(HoverSimulation(vehicle, seed=5, imu=True))
    flight.offboard = offboard
    node = estimator(vehicle)
    flight.run(node, 6.0)
    flight.marker_turn = quat_exp(np.array([0.0, 0.5, 0.0]))  # seen turned, and where it was
    state = flight.run(node, 1.6)
    assert (state.marker_age_s < 0.5) == (not offboard)


def test_the_world_stands_at_the_bundle_after_minutes_out_of_sight_under_the_pilot(vehicle):
    """Else the origin is uncertain by tens of metres, and every observation moves the world and the references in it."""
    flight = alone(HoverSimulation(vehicle, seed=6, imu=True))
    flight.offboard = False
    node = estimator(vehicle)
    flight.run(node, 4.0)
    flight.marker_seen = False
    flight.run(node, 40.0)
    flight.marker_seen = True
    flight.run(node, 3.0)
    before = len(flight.states)
    flight.offboard = True
    state = flight.run(node, 3.0)
    assert state.valid and state.position_std_m < 0.5 and relative_m(flight, state) < 0.08
    bundles = np.array([s.p_WM for s in flight.states[before:]])
    assert np.ptp(bundles, axis=0).max() < 0.1


def test_anchoring_keeps_what_is_known_of_the_bundle_and_of_the_height(vehicle):
    flight = alone(HoverSimulation(vehicle, seed=7, imu=True))
    node = estimator(vehicle)
    flight.run(node, 4.0)
    filter_state = node.history.newest.copy()
    p, b, m = (slice(i.start, i.stop) for i in (ErrorIndex.POSITION, ErrorIndex.GNSS_BIAS, ErrorIndex.MARKER_POSITION))

    def known(P):
        relative = P[p, p] - P[p, m] - P[m, p] + P[m, m]
        height = P[p, p] + P[p, b] + P[b, p] + P[b, b]
        return relative, height[2, 2]

    before = known(filter_state.covariance)
    HeightAiding.anchor(filter_state)
    after = known(filter_state.covariance)
    np.testing.assert_allclose(after[0], before[0], atol=2e-6)
    assert after[1] == pytest.approx(before[1], rel=1e-3)
    assert np.linalg.eigvalsh(filter_state.covariance).min() > -1e-9


def test_a_repeated_height_is_one_measurement():
    aiding = HeightAiding()
    message = msgspec.structs.replace(status(1.0, armed=True), baro_altitude_m=PRESSURE_M)
    assert [e.sensor for e in aiding.entries(message, 1.0)] == [Sensor.POSITION]
    assert aiding.entries(message, 1.1) == []
    assert aiding.entries(msgspec.structs.replace(message, baro_altitude_m=float("nan")), 1.2) == []


def test_on_the_ground_every_status_says_that_there_is_no_velocity():
    aiding = HeightAiding()
    message = msgspec.structs.replace(status(1.0, armed=False), landed=True, baro_altitude_m=PRESSURE_M)
    aiding.entries(message, 1.0)
    (entry,) = aiding.entries(message, 1.1)
    assert entry.sensor is Sensor.VELOCITY and not entry.data.any()


@pytest.mark.parametrize("age_s", [0.5, 2.0])
def test_an_old_height_starts_no_filter(age_s):
    aiding = HeightAiding()
    aiding.entries(msgspec.structs.replace(status(1.0), baro_altitude_m=PRESSURE_M), 1.0)
    assert (aiding.start_height_m(1.0 + age_s) is not None) == (age_s < 1.0)


def test_markers_are_used_before_the_flight(vehicle):
    """A bundle in sight on the ground: the estimate holds on to it through the take-off."""
    node = estimator(vehicle)
    flight = alone(HoverSimulation(vehicle, seed=4, imu=True))
    in_flight = flight.edit

    def edit(m):
        on_ground = isinstance(m, FcuStatus) and m.stamp_s < 12.0
        return msgspec.structs.replace(in_flight(m), landed=True, armed=False) if on_ground else in_flight(m)

    flight.edit = edit
    state = flight.run(node, 6.0)
    assert state.valid and state.bundle == "pier" and relative_m(flight, state) < 0.06
