"""Coverage, GSD, overlap and order of photographed surfaces, against brute force and the pinhole formula."""

import math

import numpy as np
import pytest
from planning_world import DECK, PIER, RASTER, WALL, camera, plan_of, planned_surface, planning, shown

from companion.core.config import ConfigError
from companion.core.site import Bundle, Marker, Site, Survey
from companion.planning.camera import CameraPose, camera_rotation, seen, view
from companion.planning.planner import best_gsd_m, surface_figures
from companion.planning.stations import HELD_M, plan_item, useful_size
from companion.planning.surfaces import Footprint, centres, covered_share, grid

SURFACES = {"rectangle": WALL, "columns": WALL | {"along": "y"}, "underside": DECK, "cylinder": PIER}
TILTED = WALL | {"name": "tilted", "rpy_rad": [1.2, 0.0, -1.1]}


def figures(item, **changes):
    world, planned, photographs = planned_surface(item, **changes)
    return world, planned, photographs, surface_figures("x", planned, planned.orders[0], world, 0)


@pytest.mark.parametrize("item", [*SURFACES.values(), TILTED], ids=[*SURFACES, "tilted"])
def test_every_place_of_a_surface_is_shown_within_the_gsd_limit(item):
    world, planned, photographs, figure = figures(item)
    random = np.random.default_rng(1)
    uv = (random.random((4000, 2)) - 0.5) * planned.surface.size_m
    best = shown(world, planned.surface, photographs, uv).min(axis=0)
    assert (best <= 1e-3).all()
    assert figure.coverage == pytest.approx(1.0)


@pytest.mark.parametrize("item", SURFACES.values(), ids=SURFACES)
def test_coverage_of_a_raster_with_missing_photographs_agrees_with_brute_force(item):
    world, planned, photographs = planned_surface(item | {"overlap_along": 0.1, "overlap_between": 0.1})
    stations = [s for i, s in enumerate(planned.orders[0]) if i % 3]
    figure = surface_figures("x", planned, stations, world, 0)
    random = np.random.default_rng(2)
    uv = (random.random((40_000, 2)) - 0.5) * planned.surface.size_m
    brute = (shown(world, planned.surface, [s.photograph for s in stations], uv).min(axis=0) <= 1e-3).mean()
    assert 0.2 < brute < 0.95
    assert figure.coverage == pytest.approx(brute, abs=0.01)


def test_the_union_of_footprints_is_exact():
    quarter = Footprint(-1.0, 0.0, -1.0, 0.0)
    assert covered_share((2.0, 2.0), [quarter]) == 0.25
    assert covered_share((2.0, 2.0), [quarter, Footprint(-0.5, 0.5, -0.5, 0.5)]) == pytest.approx(0.25 + 0.75 * 0.25)
    assert covered_share((2.0, 2.0), [Footprint(3.0, 4.0, 0.0, 1.0)]) == 0.0
    assert covered_share((2.0, 2.0), []) == 0.0
    assert covered_share((2.0, 2.0), [Footprint(-9.0, 9.0, -9.0, 9.0)]) == 1.0


def test_gsd_of_a_plane_is_that_of_the_pinhole():
    world, planned, photographs, figure = figures(WALL)
    gsd = 5.0 * 6e-6 / 35e-3  # distance times pixel pitch over focal length
    uv = grid(planned.surface.size_m)
    best = best_gsd_m(planned.surface, world, [p.pose for p in photographs])
    assert len(best) == len(uv) and best == pytest.approx(gsd)
    assert (figure.gsd_median_mm_px, figure.gsd_p95_mm_px) == (pytest.approx(gsd * 1e3), pytest.approx(gsd * 1e3))
    assert planned.useful_m == (pytest.approx(6000 * gsd), pytest.approx(4000 * gsd))
    assert all(p.gsd_m == pytest.approx(gsd) for p in photographs)


@pytest.mark.parametrize("item", [PIER, TILTED], ids=["cylinder", "tilted"])
def test_gsd_agrees_with_neighbouring_pixels_that_are_projected(item):
    world, planned, photographs = planned_surface(item)
    surface, pose, (fx, fy) = planned.surface, photographs[4].pose, world.camera.focal_px

    def pixels(points):
        x, y, z = ((points - pose.p_W) @ pose.R_WC).T
        return np.column_stack([fx * x / z, fy * y / z])

    middle = np.array(photographs[4].uv)
    for offset in ([0.0, 0.0], [0.4, 0.3], [-0.6, 0.9]):
        uv = middle + offset
        step = 1e-5  # of a metre on the surface, in all directions
        turns = np.linspace(0, math.pi, 181)
        ends = uv + step * np.column_stack([np.cos(turns), np.sin(turns)])
        moved = np.linalg.norm(pixels(surface.points(ends)) - pixels(surface.points(uv[None])), axis=1)
        found = seen(world.camera, pose, surface.points(uv[None]), surface.normals(uv[None]))
        assert found.inside[0]
        assert found.gsd_m[0] == pytest.approx((step / moved).max(), rel=1e-3)


def test_nothing_is_seen_from_behind_or_outside_the_picture():
    lens = camera()
    pose = CameraPose(np.zeros(3), view(lens, np.array([1.0, 0.0, 0.0]), np.array([0.0, -1.0, 0.0])).R_WC)
    points = np.array([[5.0, 0.0, 0.0], [5.0, 0.0, 0.0], [-5.0, 0.0, 0.0], [5.0, 4.0, 0.0], [5.0, 0.0, 2.0]])
    normals = np.array([[-1.0, 0, 0], [1.0, 0, 0], [1.0, 0, 0], [-1.0, 0, 0], [-1.0, 0, 0]])
    assert seen(lens, pose, points, normals).inside.tolist() == [True, False, False, False, False]


@pytest.mark.parametrize("item", SURFACES.values(), ids=SURFACES)
def test_the_smallest_overlap_is_measured_and_not_below_the_wanted_one(item):
    world, planned, photographs, figure = figures(item)
    assert 0.8 <= figure.overlap_along < 0.9
    assert 0.7 <= figure.overlap_between < 0.9
    by_place = {(p.row, p.column): p for p in photographs}
    for place, overlap in (((0, 1), figure.overlap_along), ((1, 0), figure.overlap_between)):
        one, other = by_place[0, 0], by_place[place]
        # The share of what one photograph shows within the limit that the other one shows, too.
        low = np.array([one.footprint.u_low, one.footprint.v_low])
        size = np.array(planned.useful_m)
        random = np.random.default_rng(3)
        uv = low + random.random((20_000, 2)) * size
        both = shown(world, planned.surface, [one, other], uv) <= 1e-3
        assert both[0].mean() > 0.995  # the footprint is what the photograph shows
        assert both.all(axis=0).mean() / both[0].mean() >= overlap - 0.01


def test_all_around_a_pier_the_last_photograph_overlaps_the_first():
    _, planned, photographs, figure = figures(PIER)
    row = sorted((p for p in photographs if p.row == 0), key=lambda p: p.column)
    around_m = planned.surface.size_m[0]
    gaps = [b.uv[0] - a.uv[0] for a, b in zip(row, row[1:], strict=False)] + [row[0].uv[0] + around_m - row[-1].uv[0]]
    assert gaps == pytest.approx([around_m / len(row)] * len(row))
    assert 1 - max(gaps) / planned.useful_m[0] == pytest.approx(figure.overlap_along)


def test_a_raster_is_a_serpentine_from_any_corner():
    _, planned, _ = planned_surface(WALL)
    assert len(planned.orders) == 4
    starts = set()
    for order in planned.orders:
        places = [(s.photograph.row, s.photograph.column) for s in order]
        starts.add(places[0])
        assert len(set(places)) == len(places)
        for (row, column), (next_row, next_column) in zip(places, places[1:], strict=False):
            assert abs(next_row - row) + abs(next_column - column) == 1  # one step along or one to the next path
    rows, columns = (max(p[i] for p in places) for i in (0, 1))
    assert starts == {(0, 0), (0, columns), (rows, 0), (rows, columns)}


def test_a_raster_begins_at_the_corner_nearest_to_the_station_before():
    hold = {"kind": "hold", "name": "wait", "frame": "world", "p_m": [5.0, 6.0, 12.0], "yaw_rad": 0.0, "duration_s": 1}
    _, plan = plan_of([hold, WALL])
    wall = [s for s in plan.stations if s.item == 1]
    distances = [math.dist(s.p_W, hold["p_m"]) for s in wall]
    corners = [s for s in wall if s.photograph.row in (0, 5) or s.photograph.column == 0]
    assert corners and distances[0] == min(distances)


@pytest.mark.parametrize("item", [*SURFACES.values(), TILTED], ids=[*SURFACES, "tilted"])
def test_stand_off_and_facing_are_constant(item):
    _, planned, photographs = planned_surface(item)
    for station, photograph in zip(planned.orders[0], photographs, strict=True):
        uv = np.array([photograph.uv])
        point, normal = planned.surface.points(uv)[0], planned.surface.normals(uv)[0]
        assert photograph.pose.p_W == pytest.approx(point + planned.standoff_m * normal)
        assert photograph.pose.R_WC[:, 2] == pytest.approx(-normal, abs=1e-6)
        R = photograph.pose.R_WC
        assert pytest.approx(np.eye(3), abs=1e-9) == R.T @ R and np.linalg.det(R) == pytest.approx(1.0)
        cosine, sine = math.cos(station.yaw_rad), math.sin(station.yaw_rad)
        lever = np.array([cosine * 0.2, sine * 0.2, -0.1])
        assert photograph.pose.p_W == pytest.approx(np.array(station.p_W) + lever)


def test_without_a_stand_off_the_farthest_that_the_gsd_permits_is_taken():
    _, plane, _ = planned_surface({k: v for k, v in WALL.items() if k != "standoff_m"})
    assert plane.standoff_m == pytest.approx(1e-3 * 35e-3 / 6e-6 - HELD_M)
    world, pier, _ = planned_surface({k: v for k, v in PIER.items() if k != "standoff_m"})

    def shown_m2(standoff_m):
        kept_m = 1e-3 * standoff_m / (standoff_m + HELD_M)
        return math.prod(useful_size(world.camera, pier.surface, standoff_m, kept_m))

    chosen_m = pier.standoff_m
    assert math.prod(pier.useful_m) == pytest.approx(shown_m2(chosen_m))
    assert shown_m2(chosen_m) > max(shown_m2(chosen_m - 0.3), shown_m2(chosen_m + 0.3))


@pytest.mark.parametrize("item", [WALL, DECK, PIER], ids=["wall", "deck", "pier"])
def test_a_default_stand_off_shows_all_of_a_surface_from_a_little_farther_too(item):
    """At the very limit of the GSD nothing counts as photographed as soon as the aircraft is 5 mm farther."""
    item = {k: v for k, v in item.items() if k != "standoff_m"} | {"overlap_along": 0.0, "overlap_between": 0.0}
    world, planned, photographs = planned_surface(item)
    limit_m = item["gsd_mm_px"] / 1e3 * (1 + 1e-9)
    for away_m in (-HELD_M, 0.0, HELD_M):
        poses = [p.pose._replace(p_W=p.pose.p_W - away_m * p.pose.R_WC[:, 2]) for p in photographs]
        shown = best_gsd_m(planned.surface, world, poses) <= limit_m
        assert shown.mean() > (0.999 if away_m >= 0.0 else 0.8)  # nearer, the photographs are smaller
    figures = surface_figures("s", planned, planned.orders[0], world, 0)
    assert figures.coverage_farther > figures.coverage - 1e-3


@pytest.mark.parametrize("standoff_m", [None, 4.0, 5.0])
@pytest.mark.parametrize(("radius_m", "angle_rad"), [(0.3, 0.6), (1.0, 1.0), (3.0, 0.5), (10.0, 0.3), (10.0, 0.6)])
def test_a_part_of_a_cylinder_takes_no_more_columns_than_show_it(standoff_m, radius_m, angle_rad):
    """A photograph shows what lies beyond the part, too; its footprint ended there, and a second column showed the margin."""
    part = {k: v for k, v in PIER.items() if k != "standoff_m"} | {"radius_m": radius_m, "angle_rad": angle_rad}
    part |= {"base_m": [30.0, 0.0, 0.0]} | ({} if standoff_m is None else {"standoff_m": standoff_m})
    world, planned, photographs, figure = figures(part)
    around = planned.surface._replace(angle_rad=math.pi)
    kept = 1e-3 * planned.standoff_m / (planned.standoff_m + HELD_M) if standoff_m is None else 1e-3
    width_m, _ = useful_size(world.camera, around, planned.standoff_m, kept)
    assert planned.useful_m[0] == pytest.approx(width_m, abs=0.02)
    length_m = planned.surface.size_m[0] + 2 * part["margin_m"]
    assert (max(p.column for p in photographs) == 0) == (planned.useful_m[0] >= length_m)
    # The margin is shown within the limit, and no figure of the plan is better than what is shown.
    uv = (np.random.default_rng(4).random((4000, 2)) - 0.5) * (length_m, planned.surface.size_m[1])
    assert (shown(world, planned.surface, photographs, uv).min(axis=0) <= 1e-3 * (1 + 1e-9)).all()
    assert figure.coverage == pytest.approx(1.0)
    if standoff_m is None:
        assert figure.coverage_farther == pytest.approx(1.0)
    before = plan_item(0, world._replace(beyond_sector=False), "")  # as a log from before was flown
    assert before.useful_m[0] <= planned.surface.size_m[0] + 1e-9
    assert len(photographs) < len(before.orders[0]) or planned.useful_m == before.useful_m


def test_where_no_reserve_is_possible_the_stand_off_is_still_within_the_gsd():
    near = {"gsd_mm_px": 1e3 * 6e-6 / 35e-3 * 1.1}  # 1.1 m
    plane = {k: v for k, v in WALL.items() if k != "standoff_m"} | near | {"size_m": [0.5, 0.5]}
    world, planned, _ = planned_surface(plane)
    assert planned.standoff_m == pytest.approx(1.1)
    assert surface_figures("s", planned, planned.orders[0], world, 0).coverage_farther == 0.0


def test_footprints_reach_the_margin_and_keep_the_overlap():
    for length in (0.5, 3.0, 4.9, 5.0, 5.1, 17.3):
        for overlap in (0.0, 0.5, 0.95):
            middles = centres(length, 5.0, overlap, 0.2)
            if len(middles) == 1:
                assert length + 0.4 <= 5.0 and middles == [0.0]
            else:
                assert middles[0] - 2.5 == pytest.approx(-length / 2 - 0.2)
                assert middles[-1] + 2.5 == pytest.approx(length / 2 + 0.2)
                assert max(np.diff(middles)) <= 5.0 * (1 - overlap) + 1e-9
    # As long as a photograph, by the rounding of its numbers a little longer: one in the middle.
    footprint_m = 2 * 1.9 * (4000 / 2 / 2000)
    assert 3.6 + 2 * 0.1 - footprint_m > 0 and centres(3.6, footprint_m, 0.8, 0.1) == [0.0]
    assert len(centres(4.61, 5.0, 0.8, 0.2)) == 2 and len(centres(6.6, 5.0, 0.8, 0.2)) == 3


def test_a_portrait_mount_swaps_the_footprint():
    landscape = camera()
    s = math.sqrt(0.5)
    # The camera of the mount turned by 90° about its own axis.
    w, x, y, z = landscape.q_BC
    portrait_q = [s * (w - z), s * (x + y), s * (y - x), s * (z + w)]
    _, planned, _ = planned_surface(WALL, camera_changes={"q_BC": portrait_q})
    assert planned.useful_m == (pytest.approx(4000 * 5 * 6e-6 / 35e-3), pytest.approx(6000 * 5 * 6e-6 / 35e-3))


@pytest.mark.parametrize("heading", [0.0, 0.9, -2.5])
@pytest.mark.parametrize("elevation", [-1.5707, -0.5, 0.0, 1.2, 1.5707])
def test_a_view_and_the_attitude_of_body_and_gimbal_agree(heading, elevation):
    lens = camera()
    c = math.cos(elevation)
    direction = np.array([c * math.cos(heading), c * math.sin(heading), math.sin(elevation)])
    right = np.array([math.sin(heading), -math.cos(heading), 0.0])
    aimed = view(lens, direction, right)
    again = camera_rotation(lens, aimed.yaw_rad, elevation)
    assert aimed.yaw_rad == pytest.approx(heading) and aimed.pitch_rad == pytest.approx(elevation)
    assert pytest.approx(aimed.R_WC) == again.R_WC and again.pitch_rad == pytest.approx(aimed.pitch_rad)
    assert aimed.R_WC[:, 2] == pytest.approx(direction, abs=1e-6)
    assert aimed.R_WC[:, 0] == pytest.approx(right, abs=1e-6)


def test_a_surface_that_is_nearly_level_is_faced_along_its_normal():
    ramp = WALL | {"centre_m": [0.0, 0.0, 0.0], "rpy_rad": [0.05, 0.0, 0.0]}
    _, planned, photographs = planned_surface(ramp)
    normal = planned.surface.n
    assert 0.99 < normal[2] < 1.0 and all(p.pose.R_WC[:, 2] == pytest.approx(-normal) for p in photographs)


def test_a_camera_that_is_mounted_looking_up_needs_no_gimbal_for_an_underside():
    up = {"q_BC": [0.7071068, 0.0, 0.0, -0.7071068], "pitch_range_rad": [0.0, 0.0]}  # x to the right, z up
    lens = camera(**up)
    R = camera_rotation(lens, 0.0, math.pi / 2).R_WC
    assert R[:, 2] == pytest.approx([0.0, 0.0, 1.0], abs=1e-9)
    _, planned, photographs = planned_surface(DECK, camera_changes=up)
    assert all(abs(s.pitch_rad) < 1e-6 for s in planned.orders[0])
    with pytest.raises(ConfigError, match="must look -90° up from its mount"):
        planned_surface(WALL, camera_changes=up)


def test_a_surface_in_a_bundles_frame_is_the_same_surface_in_the_world():
    marker = Marker(family="aruco_6x6_250", id=1, size_m=0.3)
    rpy = (math.pi / 2, 0.0, -math.pi / 2)
    site = Site(bundle=[Bundle(name="face", markers=[marker])])
    place = {"name": "face", "p_m": [12.0, 0.0, 8.0], "rpy_rad": list(rpy)}
    local = WALL | {"frame": "face", "centre_m": [0.0, 0.0, 0.0], "rpy_rad": [0.0, 0.0, 0.0]}
    _, planned, photographs = planned_surface(local, site=site, bundle=[place])
    _, same, there = planned_surface(WALL)
    assert [s.p_W for s in planned.orders[0]] == [pytest.approx(s.p_W) for s in same.orders[0]]
    # A pier of the bundle: its angle 0 is the side that the face looks to.
    half = PIER | {"frame": "face", "base_m": [0.0, 0.0, -1.5], "angle_start_rad": -0.5, "angle_rad": 1.0}
    _, pier, (first, *_) = planned_surface(half, site=site, bundle=[place])
    middle = pier.surface.normals(np.zeros((1, 2)))[0]
    assert middle == pytest.approx([-1.0, 0.0, 0.0], abs=1e-9)
    # The same place by a survey, whose frame is turned by 90° against the world.
    survey = Survey(p_S=(-10.0, 112.0, 8.0), rpy_S_rad=(math.pi / 2, 0.0, 0.0), std_m=0.01, std_rad=0.01)
    surveyed = Site(bundle=[Bundle(name="face", markers=[marker], survey=survey)])
    takeoff = {"p_S": [-10.0, 100.0, 0.0], "yaw_rad": math.pi / 2}
    _, found, _ = planned_surface(local, site=surveyed, takeoff=takeoff)
    assert [s.p_W for s in found.orders[0]] == [pytest.approx(s.p_W) for s in planned.orders[0]]
    assert [s.yaw_rad for s in found.orders[0]] == pytest.approx([s.yaw_rad for s in planned.orders[0]])


def test_an_underside_in_a_bundles_frame_counts_its_heading_from_facing_the_bundle():
    site = Site(bundle=[Bundle(name="face", markers=[Marker(family="aruco_6x6_250", id=1, size_m=0.3)])])
    place = {"name": "face", "p_m": [12.0, 0.0, 4.0], "rpy_rad": [math.pi / 2, 0.0, 0.0]}  # looks south
    deck = DECK | {"frame": "face", "centre_m": [0.0, 5.0, 3.0], "yaw_rad": 0.0}
    _, planned, photographs = planned_surface(deck, site=site, bundle=[place])
    assert planned.surface.centre == pytest.approx([12.0, -3.0, 9.0])
    assert planned.surface.x == pytest.approx([0.0, 1.0, 0.0], abs=1e-9)
    assert planned.surface.n == pytest.approx([0.0, 0.0, -1.0])
    assert all(p.pose.R_WC[:, 2] == pytest.approx([0.0, 0.0, 1.0], abs=1e-6) for p in photographs)


BROKEN = {
    "lens": (WALL | {"gsd_mm_px": 0.15, "standoff_m": 1.0}, r"gsd_mm_px = 0.15: test camera gives 0.171 mm/px at the smallest stand-off of 1 m \(safety.standoff_min_m"),
    "far": (WALL | {"standoff_m": 6.0}, r"standoff_m = 6: test camera gives 1.03 mm/px there, gsd_mm_px allows 1 \(up to 5.83 m\)"),
    "near": (WALL | {"standoff_m": 0.8}, r"standoff_m = 0.8: the smallest is 1 m"),
    "edge of the gsd": (PIER | {"standoff_m": 35 / 6}, r"standoff_m = 5.83333: gsd_mm_px = 1 is exceeded beside the middle"),
    "huge": (WALL | {"size_m": [500.0, 500.0], "overlap_along": 0.95, "overlap_between": 0.95}, r"size: takes \d+ photographs, 20000 can be planned"),
    "frame": (WALL | {"frame": "pear"}, r"frame = 'pear': no such bundle \(has: world\)"),
    "slanted": (WALL | {"rpy_rad": [math.pi / 2, 0.3, -math.pi / 2]}, r"rpy_rad: the picture is level"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_surface_that_cannot_be_photographed_is_refused_in_one_line(case):
    item, message = BROKEN[case]
    with pytest.raises(ConfigError, match=message) as error:
        plan_item(0, planning([item]), "mission.toml: inspection.item[0] 'wall': ")
    assert "\n" not in str(error.value) and str(error.value).startswith("mission.toml: inspection.item[0] 'wall': ")


@pytest.mark.parametrize("key", ["overlap_along", "overlap_between"])
def test_an_overlap_over_95_percent_is_refused_with_file_key_and_limit(key):
    with pytest.raises(ConfigError, match=rf"mission.toml: item\[0\].{key} = 0.96: .*allowed: 0 to 0.95"):
        planning([WALL | {key: 0.96}])
    planning([WALL | RASTER | {key: 0.95}])


def test_the_gsd_at_the_nearest_focus_limits_where_it_is_farther_than_the_stand_off():
    with pytest.raises(ConfigError, match="smallest stand-off of 2 m .nearest_focus_m of test camera"):
        planned_surface(WALL | {"gsd_mm_px": 0.3}, camera_changes={"nearest_focus_m": 2.0})


def test_a_bundle_without_a_place_is_refused_with_what_is_missing():
    marker = Marker(family="aruco_6x6_250", id=1, size_m=0.3)
    with pytest.raises(ConfigError, match=r"frame = 'face': .* missing \[\[inspection.bundle\]\] for 'face'"):
        planned_surface(WALL | {"frame": "face"}, site=Site(bundle=[Bundle(name="face", markers=[marker])]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fx_px": 5000.0}, "focal_length_mm: needs pixel_pitch_um, or fx_px"),
        ({"pixel_pitch_um": None}, "focal_length_mm: needs pixel_pitch_um"),
        ({"pitch_range_rad": [0.5, 0.1]}, "must not be above the second"),
    ],
)
def test_a_camera_with_contradicting_numbers_is_refused(changes, message):
    assert message in camera(**changes).contradiction()


def test_a_focal_length_in_pixels_and_in_millimetres_is_the_same_lens():
    in_px = camera(focal_length_mm=None, pixel_pitch_um=None, fx_px=35e3 / 6, fy_px=35e3 / 6)
    assert in_px.contradiction() == "" == camera().contradiction()
    assert in_px.focal_px == pytest.approx(camera().focal_px)
