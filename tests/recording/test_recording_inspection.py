"""The figures of an inspection follow from its captures and the plan in its log."""

import json
import math

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from companion.core.config import ConfigError
from companion.core.enums import CaptureOutcome
from companion.core.messages import Capture, CaptureTruth, FcuStatus, MissionStatus, State
from companion.mission.plan import load_plan
from companion.planning.qgc import QgcStation, plan_document
from companion.planning.stations import HELD_M
from companion.planning.surfaces import Cylinder, Footprint, Rectangle
from companion.recording.inspection import best_shots, plan_difference, plan_of_log, shots_of
from companion.recording.inspection_figures import simulated_figures, surface_results, totals
from companion.recording.inspection_report import read_inspection
from companion.recording.inspection_surface import footprint, hit, outline, overlap, project
from companion.recording.inspection_takeoff import take_off_of
from companion.recording.log import LogError, read_log
from companion.recording.writer import LogWriter
from companion.runtime.flight_record import flight_metadata
from tests.planning.planning_world import PIER, WALL, planned_surface
from tests.recording.inspection_world import MISSION, ROOT, START_S, TAKEOFF_W, VEHICLE, Made, make_log, plan_of

EXACT = Made(error=(0.0, 0.0))


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """All photographs but five; one refused, one blurred, one answered late."""
    made = Made(skipped=frozenset({4, 5, 6}), refused=frozenset({30}), blurred=frozenset({15}), late=frozenset({2}))
    return read_log(make_log(tmp_path_factory.mktemp("inspection") / "flight.mcap", made))


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    return read_log(make_log(tmp_path_factory.mktemp("complete") / "flight.mcap", EXACT))


# --- the plan in the log ----------------------------------------------------------------------------------------------


def test_the_plan_comes_from_the_log_alone(log):
    flown, (_, expected) = plan_of_log(log), plan_of()
    assert [item.name for item in flown.items] == ["first pier", "deck", "second pier"]
    for item, other in zip(flown.items, expected.items, strict=True):
        assert item.planned.keys() == other.planned.keys()
        np.testing.assert_allclose(item.planned[0, 2].pose.p_W, other.planned[0, 2].pose.p_W)


def test_a_log_from_before_the_reserve_has_the_stand_offs_that_were_flown(tmp_path):
    """Its photographs are known by row and column of the raster that follows from them."""
    mission = tmp_path / "mission.toml"
    mission.write_text(MISSION.read_text().replace('"../../', f'"{ROOT}/').replace("standoff_m = 5.0", ""))
    metadata, plans = flight_metadata(VEHICLE, mission), []
    former = {name: text for name, text in metadata.items() if name != "planning"}
    for number, texts in enumerate((metadata, former, metadata | {"planning": "["})):
        LogWriter(tmp_path / f"{number}.mcap", texts).close()
    plans = [plan_of_log(read_log(tmp_path / f"{number}.mcap")) for number in (0, 1)]
    now, then = (plan.find("deck").standoff_m for plan in plans)
    assert then - now == pytest.approx(HELD_M)
    assert plan_difference(*plans).startswith("inspection.item 'first pier' is photographed from 5.8")
    with pytest.raises(LogError, match="the planning in the log cannot be read"):
        plan_of_log(read_log(tmp_path / "2.mcap"))


def test_a_flight_without_an_inspection_has_none(tmp_path):
    LogWriter(tmp_path / "flight.mcap", flight_metadata(VEHICLE, ROOT / "config/missions/bridge_hover.toml")).close()
    assert plan_of_log(read_log(tmp_path / "flight.mcap")) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"payload_camera_tables": None, "payload_camera": None}, "without its camera file"),
        ({"payload_camera_tables": '{"name": "x"}'}, "camera in the log"),
        ({"payload_camera_tables": "{"}, "payload_camera tables in the log cannot be read"),
        ({"plans": "["}, "plan files in the log cannot be read"),
    ],
)
def test_a_plan_that_cannot_be_read_is_one_line(tmp_path, changes, message):
    metadata = flight_metadata(VEHICLE, MISSION) | changes
    LogWriter(tmp_path / "flight.mcap", {k: v for k, v in metadata.items() if v is not None}).close()
    with pytest.raises(ConfigError, match=message) as refused:
        plan_of_log(read_log(tmp_path / "flight.mcap"))
    assert "\n" not in str(refused.value)


# --- captures -----------------------------------------------------------------------------------------------------------


def test_poses_are_in_the_plans_coordinates_whatever_the_world_of_the_flight(complete):
    plan = plan_of_log(complete)
    shots = shots_of(complete, plan)
    assert len(shots) == plan.photographs == 36
    for shot in shots:  # the estimator's world is shifted by half a metre
        np.testing.assert_allclose(shot.pose.p_W, shot.true_pose.p_W, atol=1e-9)
        np.testing.assert_allclose(shot.pose.R_WC, shot.true_pose.R_WC, atol=1e-9)
        assert shot.error.position_m < 1e-9 and shot.error.attitude_rad < 1e-7


def test_an_item_in_the_world_counts_from_the_take_off_point(tmp_path):
    text = MISSION.read_text().replace('"../../', f'"{ROOT}/')
    start = text.index("[[inspection.item]]")
    item = """[[inspection.item]]
kind = "viewpoints"
name = "view"
frame = "world"
settle_s = 1.0
points = [{ p_m = [4.0, 1.0, 3.0], yaw_rad = 0.3 }]

"""
    (tmp_path / "mission.toml").write_text(text[:start] + item + text[start:])
    log = read_log(
        make_log(
            tmp_path / "flight.mcap", Made(only=frozenset({1}), error=(0.0, 0.0)), mission=tmp_path / "mission.toml"
        )
    )
    plan = plan_of_log(log)
    (shot,) = shots_of(log, plan)
    assert shot.capture.item == "view"
    np.testing.assert_allclose(shot.pose.p_W, shot.true_pose.p_W, atol=1e-9)
    assert not np.allclose(shot.pose.p_W, shot.capture.p_WC, atol=0.1)
    in_the_air = dict(log) | {"fcu_status": [status for status in log.of(FcuStatus) if status.armed]}
    assert [s.pose for s in shots_of(in_the_air, plan)] == [None]
    results = surface_results(plan, [shot])
    assert len(results) == 3 and totals(plan, [shot], results).taken == 1


def test_a_log_that_begins_in_the_air_does_not_say_where_the_aircraft_took_off(complete):
    """The first state of such a log is at some height, and so is the first fix of the receiver."""
    assert take_off_of(complete, True).p_W.tolist() == pytest.approx(TAKEOFF_W)
    assert take_off_of(complete, True).received == (34.0007, -81.0348, 60.0)
    armed = [status for status in complete.of(FcuStatus) if status.armed]
    unheard = replace(armed[0], stamp_s=START_S - 1.0, connected=False, armed=False)  # of a link that was started again
    for statuses in (armed, [unheard, *armed], []):
        for satellites in (True, False):
            found = take_off_of(dict(complete) | {"fcu_status": statuses}, satellites)
            assert found.p_W is None and found.received is None
    assert take_off_of(dict(complete) | {"state": complete.of(State)[1:]}, True).p_W is None


def test_without_satellites_the_take_off_point_is_where_the_mission_takes_the_aircraft(complete):
    ground, armed = complete.of(FcuStatus)[:2]
    carried = replace(armed, stamp_s=armed.stamp_s + 5.0, gnss_position=(34.001, -81.035, 70.0))
    state = replace(complete.of(State)[0], stamp_s=carried.stamp_s, p_W=(7.0, 8.0, 9.0))
    taken = MissionStatus(stamp_s=carried.stamp_s + 1.0, phase="ENTER_OFFBOARD", reason="", phase_time_s=0.0, finished=False,
                          success=False, photographs=0)  # fmt: skip
    flight = dict(complete) | {
        "fcu_status": [ground, armed, carried],
        "state": [complete.of(State)[0], state],
        "mission_status": [taken],
    }
    found = take_off_of(flight, satellites=False)
    assert found.p_W.tolist() == [7.0, 8.0, TAKEOFF_W[2]] and found.received == (34.001, -81.035, 60.0)


def test_a_pose_seen_from_another_bundle_goes_through_the_map(complete):
    plan = plan_of_log(complete)
    direct = {shot.key: shot for shot in shots_of(complete, plan)}
    captures = complete.of(Capture)
    for capture in captures:
        capture.bundle = "" if capture.bundle == "pier" else "pier"  # so that p_MC is not in the item's frame
    try:
        over_map = shots_of(complete, plan)
    finally:
        for capture in captures:
            capture.bundle = (
                capture.item.replace("first pier", "pier").replace("second pier", "second_pier").replace("deck", "pier")
            )
    for shot in over_map:
        np.testing.assert_allclose(shot.pose.p_W, direct[shot.key].pose.p_W, atol=1e-9)


def test_a_late_answer_replaces_the_lost_one(log):
    shots = shots_of(log, plan_of_log(log))
    assert sum(capture.id == 2 for capture in log.of(Capture)) == 2
    assert [shot.capture.outcome for shot in shots if shot.capture.id == 2] == [CaptureOutcome.TAKEN]


def test_a_refusal_after_a_restart_of_the_payload_process_does_not_replace_a_photograph(complete):
    """It counts attempts from 1 again."""
    plan = plan_of_log(complete)
    first, *others = complete.of(Capture)
    fields = {f: getattr(first, f) for f in first.__struct_fields__}

    def capture(outcome, after_s):
        return Capture(**(fields | {"outcome": CaptureOutcome(outcome), "stamp_s": first.stamp_s + after_s}))

    for outcomes, best in (
        (("blurred", "refused"), "blurred"),
        (("blurred", "taken", "lost"), "taken"),
        (("lost", "refused"), "refused"),
    ):
        captures = [capture(outcome, 0.1 * i) for i, outcome in enumerate(outcomes)]
        shots = shots_of(dict(complete) | {"capture": [*captures, *others]}, plan)
        assert [shot.capture.outcome for shot in shots if shot.capture.id == first.id] == [best]


def test_of_two_attempts_the_sharp_one_counts(log):
    plan = plan_of_log(log)
    shots = shots_of(log, plan)
    blurred = next(shot for shot in shots if not shot.sharp and shot.taken)
    again = {f: getattr(blurred.capture, f) for f in blurred.capture.__struct_fields__} | {
        "attempt": 2,
        "outcome": CaptureOutcome.TAKEN,
    }
    both = [*shots, blurred._replace(capture=Capture(**again))]
    key = (blurred.capture.item, blurred.place)
    assert best_shots(shots)[key] is blurred and best_shots(both)[key].capture.attempt == 2


def test_a_capture_without_a_pose_has_none(complete):
    plan = plan_of_log(complete)
    capture = complete.of(Capture)[0]
    fields = {f: getattr(capture, f) for f in capture.__struct_fields__}
    for changes in ({"valid": False}, {"item": "of another plan"}, {"p_MC": (math.nan,) * 3}):
        messages = dict(complete) | {"capture": [Capture(**(fields | changes))]}
        assert shots_of(messages, plan)[0].pose is None


# --- figures ------------------------------------------------------------------------------------------------------------


def test_the_figures_of_exact_poses_are_those_of_the_plan():
    _, plan = plan_of()
    for item in plan.items:
        camera, surface = plan.planning.camera, item.surface
        shots = list(item.planned.values())
        found = [footprint(camera, surface, shot.pose, item.gsd_max_m, shot.footprint) for shot in shots]
        for shown, shot in zip(found, shots, strict=True):
            np.testing.assert_allclose(shown, shot.footprint, atol=4e-3)


def test_each_photograph_of_the_plan_is_counted_once(log):
    plan = plan_of_log(log)
    shots = shots_of(log, plan)
    results = surface_results(plan, shots)
    first, deck, second = results
    assert (first.planned, first.taken, first.blurred, len(first.missing)) == (9, 6, 0, 3)
    assert (deck.planned, deck.taken, deck.blurred, len(deck.missing)) == (18, 17, 1, 0)
    assert (second.planned, second.taken, second.refused, len(second.missing)) == (9, 8, 1, 1)
    all_ = totals(plan, shots, results)
    assert all_.taken + all_.blurred + all_.missing == all_.planned == 36
    assert (all_.blurred, all_.missing, all_.refused) == (1, 4, 1)


def test_a_missing_photograph_lowers_the_overlap_of_its_neighbours(log, complete):
    overlaps = [
        surface_results(plan_of_log(flight), shots_of(flight, plan_of_log(flight)))[0].overlap_along
        for flight in (complete, log)
    ]
    assert overlaps[0] > 0.75
    assert overlaps[1] < 0.35  # three in a row are missing


def test_a_strip_without_photographs_is_one_gap_with_its_place(tmp_path):
    log = read_log(make_log(tmp_path / "flight.mcap", Made(skipped=frozenset(range(3, 9)), error=(0.0, 0.0))))
    plan = plan_of_log(log)
    first, *others = surface_results(plan, shots_of(log, plan))
    assert [result.gaps for result in others] == [[], []]
    (gap,) = first.gaps
    assert gap.size_m[0] == pytest.approx(4.0) and 0.5 < gap.size_m[1] < 1.2
    assert gap.area_m2 == pytest.approx(32.0 * (1 - first.coverage))
    assert (0, 4) in gap.missing and (0, 0) not in gap.missing and not gap.coarse
    # The face looks west at x = 12; its middle is 4 m up.
    np.testing.assert_allclose(gap.p_plan, (12.0, 0.0, 4.0 + gap.centre_uv[1]), atol=0.05)
    assert first.overlap_along < 0


def test_a_gap_names_all_photographs_that_would_show_a_part_of_it(tmp_path):
    """Those that show most first: of a gap of a whole surface each one, not those over one cell of it."""
    log = read_log(make_log(tmp_path / "flight.mcap", Made(skipped=frozenset(range(10, 28)), error=(0.0, 0.0))))
    plan = plan_of_log(log)
    deck = next(result for result in surface_results(plan, shots_of(log, plan)) if result.item.name == "deck")
    (gap,) = deck.gaps
    assert set(gap.missing) == set(deck.item.planned) and len(gap.missing) == 18

    def shown_m2(place):
        u_low, u_high, v_low, v_high = deck.item.planned[place].footprint
        half_u, half_v = (length / 2 for length in deck.surface.size_m)
        return (min(u_high, half_u) - max(u_low, -half_u)) * (min(v_high, half_v) - max(v_low, -half_v))

    areas = [shown_m2(place) for place in gap.missing]
    assert all(a > b - 0.3 for a, b in zip(areas, areas[1:], strict=False)) and areas[0] > areas[-1]


def test_a_photograph_from_too_far_away_covers_nothing(complete):
    plan = plan_of_log(complete)
    far = [
        shot._replace(pose=shot.pose._replace(p_W=shot.pose.p_W - 2.0 * shot.pose.R_WC[:, 2]))
        for shot in shots_of(complete, plan)
    ]
    result = surface_results(plan, far)[0]
    assert result.coverage == 0.0 and result.gaps[0].coarse and result.gsd_p95_mm_px > 1.1
    assert result.overlap_along is None


def test_a_gap_goes_on_over_the_seam_of_a_round_pier():
    from companion.recording.inspection import FlownPlan, InspectedItem
    from companion.recording.inspection_figures import _gaps

    world, planned, photographs = planned_surface(PIER)
    shots = {(p.row, p.column): p for p in photographs}
    item = InspectedItem("pier", "world", world.inspection.item[0], planned.surface, 4.0, shots)
    assert FlownPlan("", world, [item], True).photographs == len(shots)
    within = np.ones((40, 20), dtype=bool)
    within[:3, 5:9] = within[-2:, 5:9] = False
    (gap,) = _gaps(item, planned.surface, np.full(within.shape, np.inf), within, set(shots))
    length = planned.surface.size_m[0]
    assert gap.size_m[0] == pytest.approx(5 * length / 40)
    assert gap.centre_uv[0] == pytest.approx(-length / 2 + 0.5 * length / 40)
    within[:, 5:9] = False
    (gap,) = _gaps(item, planned.surface, np.full(within.shape, np.inf), within, set(shots))
    assert gap.ring and gap.size_m[0] == pytest.approx(length)


def test_the_simulated_figures_are_measured_at_the_true_poses(log):
    plan = plan_of_log(log)
    shots = shots_of(log, plan)
    figures = simulated_figures(plan, shots)
    assert (figures["planned"], figures["photographs"], figures["blurred"], figures["missing"]) == (36, 32, 1, 4)
    assert figures["coverage"] > 0.99 and 0.8 < figures["gsd_p95_mm_px"] < 0.95
    # 1 cm and 0.002 rad of standard deviation along each axis: the 95th percentile of a length is 2.8 times that.
    assert 0.02 < figures["photo_position_p95_m"] < 0.035
    assert 0.2 < figures["photo_attitude_p95_deg"] < 0.4
    assert figures["photo_site_position_p95_m"] == pytest.approx(figures["photo_position_p95_m"])
    assert figures["blur_max_px"] == 1.7
    assert set(figures["surfaces"]) == {"first pier", "deck", "second pier"}


def test_true_figures_do_not_come_from_the_estimate(complete):
    plan = plan_of_log(complete)
    wrong = [shot._replace(pose=shot.pose._replace(p_W=shot.pose.p_W + 100.0)) for shot in shots_of(complete, plan)]
    assert simulated_figures(plan, wrong)["coverage"] > 0.99
    assert surface_results(plan, wrong)[0].coverage == 0.0


def test_a_photograph_that_was_truly_blurred_does_not_count_as_sharp(complete):
    plan = plan_of_log(complete)
    for truth in complete.of(CaptureTruth)[:1]:
        truth.blur_px, before = 1.2, truth.blur_px
        figures = simulated_figures(plan, shots_of(complete, plan))
        truth.blur_px = before
    assert figures["blurred"] == 1 and figures["photographs"] == 36


def test_without_a_photograph_there_are_no_figures(complete):
    plan = plan_of_log(complete)
    figures = simulated_figures(plan, [])
    assert (figures["coverage"], figures["missing"], figures["photo_position_p95_m"]) == (0.0, 36, None)
    assert totals(plan, [], surface_results(plan, [])).missing == 36


# --- geometry ---------------------------------------------------------------------------------------------------------


def test_a_ray_and_a_projection_are_inverse_on_both_kinds_of_surface():
    for item in (WALL, PIER):
        world, planned, photographs = planned_surface(item)
        for shot in photographs[:: max(1, len(photographs) // 7)]:
            uv = np.array([hit(planned.surface, shot.pose.p_W, shot.pose.R_WC @ [0.05, -0.08, 1.0], shot.uv[0])])
            pixels = project(world.camera, planned.surface, shot.pose, uv[0, :1], uv[0, 1:])
            fx, fy = world.camera.focal_px
            assert (pixels.x.item(), pixels.y.item()) == pytest.approx((0.05 * fx / 3000, -0.08 * fy / 2000))
            assert pixels.front[0]
            assert hit(planned.surface, shot.pose.p_W, -shot.pose.R_WC[:, 2]) is None


def test_a_ray_that_misses_a_pier_hits_nothing():
    pier = Cylinder(np.zeros(3), 1.0, 4.0, 0.0, 2 * math.pi)
    assert hit(pier, np.array([5.0, 0.0, 1.0]), np.array([-1.0, 0.5, 0.0])) is None
    assert hit(pier, np.array([5.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0])) is None
    assert hit(pier, np.array([5.0, 0.0, 1.0]), np.array([-1.0, 0.0, 0.0])) == pytest.approx((0.0, -1.0))


def test_a_plane_is_not_seen_from_behind():
    wall = Rectangle(np.zeros(3), np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0]), (2.0, 2.0))
    assert hit(wall, np.array([0.0, 0.0, -3.0]), np.array([0.0, 0.0, 1.0])) is None


def test_the_outline_on_a_plane_has_the_corners_of_the_footprint():
    world, planned, photographs = planned_surface(WALL)
    edge = np.array(outline(world.camera, planned.surface, photographs[0].pose))
    u_low, u_high, v_low, v_high = photographs[0].footprint
    np.testing.assert_allclose(
        sorted(map(tuple, edge.round(6))),
        sorted(np.round([(u_low, v_low), (u_low, v_high), (u_high, v_low), (u_high, v_high)], 6).tolist()),
    )


def test_overlap_of_footprints():
    a, b = Footprint(0.0, 2.0, 0.0, 1.0), Footprint(0.5, 2.5, 0.0, 1.0)
    assert overlap(a, b, 0) == pytest.approx(0.75)
    assert overlap(a, Footprint(3.0, 5.0, 0.0, 1.0), 0) == pytest.approx(-0.5)
    assert overlap(a, Footprint(9.5, 11.5, 0.0, 1.0), 0, around_m=9.0) == pytest.approx(0.75)


def test_flights_of_two_surveys_are_shown_together_each_at_its_own_bundle(complete, tmp_path):
    """As `--resume` takes them: the photographs are where they are on the surface, not moved by the difference."""
    text = MISSION.read_text().replace('"../../', f'"{ROOT}/')
    mission, made = tmp_path / "mission.toml", Made(only=frozenset({1, 2}), error=(0.0, 0.0))
    mission.write_text(text.replace("p_m = [12.0, 0.0, 2.4]", "p_m = [12.3, 0.0, 2.4]"))
    again = read_log(make_log(tmp_path / "again.mcap", made, mission=mission))
    *_, one, other = read_inspection([complete, again]).shots
    for shot in (one, other):
        first = next(s for s in shots_of(complete, plan_of_log(complete)) if s.capture.id == shot.capture.id)
        np.testing.assert_allclose(shot.pose.p_W, first.pose.p_W, atol=1e-6)
    mission.write_text(text.replace("p_m = [12.0, 0.0, 2.4]", "p_m = [13.0, 0.0, 2.4]"))
    other = read_log(make_log(tmp_path / "other.mcap", made, mission=mission))
    with pytest.raises(LogError, match="the bundle 'pier' is 1.0 m from that of the first"):
        read_inspection([complete, other])


def test_flights_of_another_plan_of_qgroundcontrol_or_from_another_origin_are_refused(tmp_path):
    """All logs have the same mission; what its .plan file says, and where its world stands, differ."""
    text = MISSION.read_text().replace('"../../', f'"{ROOT}/')
    items = '[[inspection.item]]\nkind = "qgc"\nname = "visit"\nfile = "visit.plan"\n\n[[inspection.item]]'
    text = text.replace("[[inspection.item]]", items, 1)
    origin = load_plan(MISSION).inspection.origin

    def flown(name, last_m, wait_s=0.0, place=origin):
        stops = [QgcStation((x, 5.0, 4.0), 0.3, 0.1, wait_s, True) for x in (0.0, 5.0, last_m)]
        (tmp_path / "visit.plan").write_text(json.dumps(plan_document(stops, place, 4.0, 1.0, 13)))
        mission = tmp_path / "mission.toml"
        mission.write_text(text.replace(str(origin.latitude_deg), str(place.latitude_deg)))
        return read_log(make_log(tmp_path / f"{name}.mcap", Made(only=frozenset({1})), mission=mission))

    first, longer = flown("first", 9.0), flown("longer", 9.0, wait_s=3.0)
    plans, first.metadata["plans"] = first.metadata["plans"], "{}"
    with pytest.raises(LogError, match="does not hold the file visit.plan of inspection.item 'visit'"):
        plan_of_log(first)
    first.metadata["plans"] = plans
    assert len(read_inspection([first, longer]).shots) == 2  # the same photographs after a longer stop
    other = "other.mcap: is not a flight of the plan of first.mcap: inspection.item 'visit' has other photographs"
    with pytest.raises(LogError, match=other):
        read_inspection([first, flown("other", 40.0)])
    with pytest.raises(LogError, match="away.mcap: is not a flight .*: inspection.origin is another one"):
        read_inspection([first, flown("away", 9.0, place=msgspec.structs.replace(origin, latitude_deg=34.1))])


def test_logs_of_different_plans_are_refused_in_one_line(complete, tmp_path):
    text = MISSION.read_text().replace('"../../', f'"{ROOT}/').replace("size_m = [12.0, 4.0]", "size_m = [11.0, 4.0]")
    (tmp_path / "other.toml").write_text(text)
    other = read_log(make_log(tmp_path / "other.mcap", mission=tmp_path / "other.toml", made=Made(only=frozenset({1}))))
    with pytest.raises(
        LogError,
        match="other.mcap: is not a flight of the plan of flight.mcap: inspection.item 'deck' has another size_m",
    ):
        read_inspection([complete, other])
