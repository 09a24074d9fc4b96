"""Surfaces of solids carry, stop and brake the aircraft, and never add energy."""

import math

import msgspec
import numpy as np
import pytest

from companion.core.frames import GRAVITY_M_S2, quat_from_rpy, rotation_matrix
from sitl.airframe import Drag, load_airframe
from sitl.plant import FEET, Plant

OFF = np.zeros(6)
NO_DRAG = Drag(linear_n_s_m=(0.0, 0.0, 0.0), quadratic_n_s2_m2=(0.0, 0.0, 0.0), angular_n_m_s=(0.0, 0.0, 0.0))
BOX_CENTRE_W, BOX_HALF_M = np.array([0.0, 0.0, 5.0]), np.array([1.0, 1.5, 2.0])
replace = msgspec.structs.replace


@pytest.fixture(params=["f550", "aurelia_x6"])
def airframe(request):
    airframe = load_airframe(request.param)
    rotor = replace(airframe.rotor, in_plane_drag_n_s2_m_rad=0.0, axial_drag_n_s2_m_rad=0.0)
    return replace(airframe, drag=NO_DRAG, rotor=rotor)


def hubs_B(airframe):
    angles = np.radians([-30, -90, -150, 150, 90, 30])
    arm_m = airframe.wheelbase_m / 2
    return np.column_stack([arm_m * np.cos(angles), arm_m * np.sin(angles), np.full(6, airframe.rotor.height_m)])


def energy(plant):
    turning = 0.5 * np.array(plant.airframe.inertia_kg_m2) @ plant.omega_B**2
    return 0.5 * plant.mass_kg * plant.v_W @ plant.v_W + turning + plant.mass_kg * GRAVITY_M_S2 * plant.p_W[2]


def face_of_box(x_W):
    """The plane of the face of the box that is nearest to x_W."""
    from_centre = x_W - BOX_CENTRE_W
    axis = int(np.argmax(np.abs(from_centre) - BOX_HALF_M))
    normal = np.zeros(3)
    normal[axis] = 1.0 if from_centre[axis] >= 0 else -1.0
    return np.append(normal, normal @ BOX_CENTRE_W + BOX_HALF_M[axis])


@pytest.mark.parametrize("seed", range(5))
def test_a_throw_at_a_box_never_gains_energy_and_never_goes_through(airframe, seed):
    # The nearest face is chosen again each 4 ms without any memory, so shapes change faces while they touch.
    rng = np.random.default_rng(seed)
    plant = Plant(airframe, 1, p_W=(0, 0, 30))
    from_W = rng.normal(size=3)
    plant.p_W[:] = BOX_CENTRE_W + 5.0 * from_W / np.linalg.norm(from_W)
    plant.p_W[2] = max(plant.p_W[2], 1.5)
    in_s = rng.uniform(0.4, 0.8)
    plant.v_W[:] = (BOX_CENTRE_W + rng.uniform(-0.5, 0.5, 3) - plant.p_W) / in_s
    plant.v_W[2] += 0.5 * GRAVITY_M_S2 * in_s
    q = rng.normal(size=4)
    plant.q_WB[:], plant.omega_B[:] = q / np.linalg.norm(q), rng.normal(size=3) * 4
    start = lowest = energy(plant)
    touched = 0.0
    for _ in range(250):
        points_W = plant.p_W + plant.shapes_B @ rotation_matrix(plant.q_WB).T
        plant.surfaces_W[:] = [face_of_box(point_W) for point_W in points_W]
        plant.step(OFF, 4)
        assert energy(plant) <= lowest + 1e-5 * start
        if not plant.contact_depth_m.any() and not plant.on_ground:
            lowest = min(lowest, energy(plant))
        touched = max(touched, plant.contact_peak_n.max())
        assert (np.abs(plant.p_W - BOX_CENTRE_W) > BOX_HALF_M).any()
    assert touched > 10 * plant.mass_kg * GRAVITY_M_S2


@pytest.mark.parametrize("rpy", [(0, 0, 0), (0.4, 0.2, 1.0), (math.pi / 2, 0, 0), (2.0, -1.0, 0.3)])
def test_a_disc_touches_with_its_deepest_point(airframe, rpy):
    plant = Plant(airframe, 1, p_W=(0, 0, 50))
    plant.q_WB[:] = quat_from_rpy(*rpy)
    normal = np.array([-0.8, 0.36, 0.48])
    plant.surfaces_W[:] = [*normal, normal @ plant.p_W + 10.0]  # everything is in the solid
    plant.step(OFF, 0)
    R = rotation_matrix(plant.q_WB)
    turn = np.linspace(0, 2 * np.pi, 20_001)
    rim_B = airframe.rotor.radius_m * np.column_stack([np.cos(turn), np.sin(turn), np.zeros_like(turn)])
    for k, hub_B in enumerate(hubs_B(airframe)):
        rim_W = plant.p_W + (hub_B + rim_B) @ R.T
        depth_m = float((plant.surfaces_W[0, 3] - rim_W @ normal).max())
        assert plant.contact_depth_m[FEET + k] == pytest.approx(depth_m, abs=2e-8)
        assert normal @ plant.contact_W[FEET + k] == pytest.approx(plant.surfaces_W[0, 3] - depth_m, abs=2e-8)


def test_a_disc_along_its_face_touches_with_its_hub(airframe):
    plant = Plant(airframe, 1, p_W=(0, 0, 50))
    plant.surfaces_W[FEET:] = [0.0, 0.0, -1.0, -50.0]
    plant.step(OFF, 0)
    np.testing.assert_allclose(plant.contact_W[FEET:-1], plant.p_W + hubs_B(airframe), atol=1e-12)
    np.testing.assert_allclose(plant.contact_W[-1], plant.p_W + [0, 0, plant.shape_ball_m[-1]], atol=1e-12)


def test_a_surface_out_of_reach_changes_nothing(airframe):
    alone, beside = (Plant(airframe, 1, p_W=(0, 0, 3)) for _ in range(2))
    beside.surfaces_W[:] = [1.0, 0.0, 0.0, -5.0]
    for plant in (alone, beside):
        plant.omega_B[:] = 1.0, 0.5, 2.0
        plant.step(OFF, 3000)  # falls to the ground and bounces
    assert alone.on_ground
    assert not beside.contact_peak_n.any()
    np.testing.assert_array_equal(alone.p_W, beside.p_W)
    np.testing.assert_array_equal(alone.q_WB, beside.q_WB)


def test_the_force_only_pushes_and_stays_within_friction(airframe):
    plant = Plant(airframe, 1, p_W=(0.5 * airframe.wheelbase_m + 1, 0, 50))
    plant.surfaces_W[:] = [1.0, 0.0, 0.0, 0.0]  # a wall on the left of a craft that flies into it and rebounds
    plant.v_W[:] = -6.0, 3.0, 0.0
    for _ in range(400):
        plant.step(OFF, 1)
        push, rub = plant.contact_force_W[:, 0], np.linalg.norm(plant.contact_force_W[:, 1:], axis=1)
        assert (push >= 0).all()
        assert (rub <= airframe.ground.friction * push + 1e-9).all()
    assert plant.v_W[0] > 0 and abs(plant.v_W[1]) < 3.0


def test_a_craft_stands_still_on_a_roof_and_counts_as_standing(airframe):
    plant = Plant(airframe, 1, p_W=(0, 0, 10 + airframe.ground.foot_height_m))
    plant.surfaces_W[:] = [0.0, 0.0, 1.0, 10.0]
    plant.step(OFF, 3000)
    start = plant.p_W.copy()
    assert plant.on_ground
    weight = plant.mass_kg * GRAVITY_M_S2
    assert plant.contact_force_W[:FEET, 2].sum() == pytest.approx(weight, rel=1e-3)
    plant.step(OFF, 5000, force_W=(0.3 * weight, 0, 0))
    plant.step(OFF, 3000)
    np.testing.assert_allclose(plant.p_W, start, atol=2e-4)


def test_a_slope_holds_below_the_angle_of_friction_and_lets_slide_above(airframe):
    for angle, slides in ((0.5, False), (0.75, True)):  # the angle of friction is atan 0.7 = 0.61
        plant = Plant(airframe, 1, p_W=(0, 0, 50))
        plant.q_WB[:] = quat_from_rpy(angle, 0.0, 0.0)
        normal = rotation_matrix(plant.q_WB)[:, 2]
        plant.surfaces_W[:FEET] = [*normal, normal @ plant.p_W - airframe.ground.foot_height_m]
        plant.step(OFF, 500)  # touched down; the F550's feet are narrow, so it would tip over in time
        start = plant.p_W.copy()
        plant.step(OFF, 300)
        moved = np.linalg.norm(plant.p_W - start)
        assert moved > 0.05 if slides else moved < 0.01, (angle, moved)


def test_a_surface_that_appears_around_a_shape_does_not_throw_it_out(airframe):
    plant = Plant(airframe, 1, p_W=(0, 0, 50))
    plant.v_W[2] = -1.0
    before = energy(plant)
    plant.surfaces_W[:] = [0.0, 0.0, 1.0, 50.3]  # all of the craft is up to a metre deep in it at once
    for _ in range(200):
        plant.step(OFF, 4)
        assert energy(plant) <= before * (1 + 1e-9)
    assert np.linalg.norm(plant.v_W) < 0.1  # it is held where it is
