"""Aircraft with any number of rotors: places, senses, tilt, coaxial pairs, and files that describe none that flies."""

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from companion.core.config import ConfigError, load
from companion.core.frames import GRAVITY_M_S2
from companion.core.vehicle import Vehicle
from sitl.airframe import FRAMES, Airframe, Coaxial, Drag, Frame, Hub, Spin, airframe_file, effectiveness, load_airframe
from sitl.autopilot.attitude import mixer_of
from sitl.autopilot.autopilot import Autopilot
from sitl.autopilot.step_response import hover_command
from sitl.plant import Plant

ROOT = Path(__file__).parents[2]
replace = msgspec.structs.replace
NO_DRAG = Drag(linear_n_s_m=(0, 0, 0), quadratic_n_s2_m2=(0, 0, 0), angular_n_m_s=(0, 0, 0))
HUB = '[[hub]]\np_m = [{:g}, {:g}, {:g}]\nspin = "{}"\n'


def ideal(airframe: Airframe) -> Airframe:
    """Equal rotors at once at their speed, in a vacuum as far as drag is concerned."""
    rotor = replace(
        airframe.rotor, thrust_spread=0.0, speed_voltage_exponent=0.0, quadratic_fraction=0.0,
        in_plane_drag_n_s2_m_rad=0.0, axial_drag_n_s2_m_rad=0.0, rise_time_s=0.002, fall_time_s=0.002,
    )  # fmt: skip
    return replace(airframe, rotor=rotor, drag=NO_DRAG, command_delay_s=0.0)


def placed(*hubs: Hub, **changes) -> Airframe:
    """The F550 with other rotors."""
    f550 = ideal(load_airframe("f550"))
    rotor = replace(f550.rotor, height_m=None)
    return replace(f550, rotor=rotor, frame=None, wheelbase_m=None, hub=hubs, **changes)


def wheel(n: int, arm_m: float = 0.4, tilt_rad: float = 0.0) -> tuple[Hub, ...]:
    """Rotors on a circle, alternately turning; tilted along their arms, outwards."""
    angles = [2 * math.pi * (k + 0.5) / n for k in range(n)]
    return tuple(
        Hub(
            p_m=(arm_m * math.cos(a), arm_m * math.sin(a), 0.03),
            spin=Spin.CCW if k % 2 else Spin.CW,
            tilt_rad=tilt_rad,
            tilt_toward_rad=math.remainder(a, math.tau),
        )
        for k, a in enumerate(angles)
    )


def loads(airframe: Airframe, commands: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Specific force [m/s²] and torque [N m], B, of rotors that turn steadily; the craft is at rest in the air."""
    plant = Plant(airframe, 1, p_W=(0, 0, 100))
    plant.step(commands, 100)
    plant.p_W[:], plant.v_W[:], plant.q_WB[:], plant.omega_B[:] = (0, 0, 100), 0, (1, 0, 0, 0), 0
    plant.step(commands, 1)
    return plant.specific_force_B.copy(), plant.omega_B * np.array(airframe.inertia_kg_m2) / 1e-3


AIRCRAFT = {
    "f450": ideal(load_airframe("f450")),
    "x8": ideal(load_airframe("x8")),
    "flat octo": replace(ideal(load_airframe("f550")), frame=Frame.OCTOROTOR_X, wheelbase_m=0.9),
    "five": placed(*wheel(4), Hub(p_m=(0.0, 0.0, 0.03), spin=Spin.CW)),
    "tilted": placed(*wheel(6, tilt_rad=0.3)),
    "sixteen": placed(*wheel(16, arm_m=0.9)),
}


@pytest.mark.parametrize("name", AIRCRAFT)
def test_force_and_torque_are_those_of_places_senses_and_axes(name):
    airframe = AIRCRAFT[name]
    n = len(airframe.hubs)
    commands = 0.4 + 0.2 * np.random.default_rng(n).uniform(-1, 1, n)
    force, torque = loads(airframe, commands)
    free_n = commands * airframe.rotor.thrust_max_n
    thrust_n = free_n * airframe.thrust_shares
    axes = np.array([hub.axis_B for hub in airframe.hubs])
    np.testing.assert_allclose(force * airframe.mass_kg, axes.T @ thrust_n, rtol=1e-4, atol=1e-4)
    expected = effectiveness(airframe.hubs, 0.0)[:3] @ thrust_n
    signs = np.array([hub.spin.sign for hub in airframe.hubs])
    expected -= airframe.rotor.torque_per_thrust_m * axes.T @ (signs * free_n)
    np.testing.assert_allclose(torque, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", AIRCRAFT)
def test_the_mixer_turns_each_axis_alone_and_keeps_the_lift(name):
    airframe = AIRCRAFT[name]
    mixer = mixer_of(airframe)
    np.testing.assert_allclose(mixer.reach @ mixer.mix[:, :3], np.eye(3), atol=1e-9)
    np.testing.assert_allclose(mixer.reach @ mixer.mix[:, 3], 0.0, atol=1e-9)
    lift = effectiveness(airframe.hubs, airframe.rotor.torque_per_thrust_m)[3]
    np.testing.assert_allclose(lift @ mixer.mix[:, :3], 0.0, atol=1e-3)
    assert np.abs(mixer.mix[:, 3]).mean() == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["f450", "x8", "f550", "aurelia_x6"])
def test_every_aircraft_hovers_at_its_command(name):
    airframe = ideal(load_airframe(name))
    n = len(airframe.hubs)
    force, torque = loads(airframe, np.full(n, hover_command(airframe)))
    assert force[2] == pytest.approx(GRAVITY_M_S2, rel=1e-3)
    np.testing.assert_allclose([*force[:2], *torque], 0.0, atol=2e-3)


@pytest.mark.parametrize("name", ["f450", "x8"])
def test_the_commands_have_found_the_thrust_of_the_airframe(name):
    vehicle, airframe = load(ROOT / f"config/vehicles/{name}.toml", Vehicle), load_airframe(name)
    assert vehicle.mass_kg == airframe.mass_kg
    assert vehicle.thrust.coefficient_m_s2 == pytest.approx(GRAVITY_M_S2 / hover_command(airframe), rel=0.02)
    text = (ROOT / f"config/vehicles/{name}.toml").read_text(encoding="utf-8")
    assert text.count(f"{name}.mcap: ") >= 7  # each number names its log


@pytest.mark.parametrize("frame", FRAMES)
def test_a_named_frame_is_a_regular_polygon_with_balanced_spins(frame):
    places = np.array([(x, y) for x, y, _ in FRAMES[frame]])
    spins = [spin.sign for _, _, spin in FRAMES[frame]]
    np.testing.assert_allclose(np.linalg.norm(places, axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(places.sum(axis=0), 0.0, atol=1e-12)
    assert sum(spins) == 0
    around = np.argsort(np.arctan2(places[:, 1], places[:, 0]))
    step = np.diff(np.sort(np.arctan2(places[:, 1], places[:, 0])))
    np.testing.assert_allclose(step, math.tau / len(spins), atol=1e-12)
    assert all(spins[a] != spins[b] for a, b in zip(around, np.roll(around, 1), strict=True))


def test_the_lower_rotor_of_a_pair_loses_thrust_and_keeps_its_torque():
    x8 = AIRCRAFT["x8"]
    assert x8.thrust_shares == (1.0,) * 4 + (0.7,) * 4
    upper, lower = np.zeros(8), np.zeros(8)
    upper[0], lower[5] = 0.5, 0.5  # both front right
    (force_u, torque_u), (force_l, torque_l) = loads(x8, upper), loads(x8, lower)
    assert force_l[2] / force_u[2] == pytest.approx(0.7, rel=1e-6)
    assert torque_l[2] == pytest.approx(-torque_u[2], rel=1e-6)


def test_the_loss_of_a_lower_rotor_is_no_disturbance():
    plant = Plant(AIRCRAFT["x8"], 1, p_W=(0, 0, 100))
    plant.step(np.full(8, 0.45), 200)
    np.testing.assert_allclose(plant.disturbance_W, 0.0, atol=1e-12)


def test_drag_of_a_tilted_rotor_is_along_and_across_its_axis():
    still = placed(*wheel(6, tilt_rad=0.3))
    dragged = replace(still, rotor=replace(still.rotor, in_plane_drag_n_s2_m_rad=2e-4, axial_drag_n_s2_m_rad=1e-4))
    plants = [Plant(a, 1, p_W=(0, 0, 100)) for a in (still, dragged)]
    for plant in plants:
        plant.step(np.full(6, 0.5), 100)
        plant.v_W[:], plant.q_WB[:], plant.omega_B[:] = (3.0, 1.0, -2.0), (1, 0, 0, 0), 0
        plant.step(np.full(6, 0.5), 0)
    axes, speed = np.array([hub.axis_B for hub in still.hubs]), plants[1].rotor_speed_rad_s[:, None]
    v_B = np.array([3.0, 1.0, -2.0])
    along = (axes @ v_B)[:, None] * axes
    expected = -(speed * (2e-4 * (v_B - along) + 1e-4 * along)).sum(axis=0)
    found = (plants[1].specific_force_B - plants[0].specific_force_B) * still.mass_kg
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_tilted_disc_touches_with_its_own_rim():
    airframe = placed(*wheel(4, tilt_rad=0.4))
    plant = Plant(airframe, 1, p_W=(0, 0, 50))
    plant.surfaces_W[:] = [0, 0, 1, 60.0]  # every shape is below the plane: all are in it
    plant.step(np.zeros(4), 0)
    low_m = plant.contact_W[4:-1, 2] - 50.0 - 0.03
    np.testing.assert_allclose(low_m, -airframe.rotor.radius_m * math.sin(0.4), rtol=1e-9)


def four(*spins: str, z: float = 0.03) -> str:
    """Four rotors at the corners of a square: front right, rear left, front left, rear right."""
    places = ((0.2, -0.2), (-0.2, 0.2), (0.2, 0.2), (-0.2, -0.2))
    return "".join(HUB.format(x, y, z, spin) for (x, y), spin in zip(places, spins, strict=True))


X = four("ccw", "ccw", "cw", "cw")
BAD = [
    (X + HUB.format(0.2, -0.2, 0.03, "ccw"), ("hub[4]", "hub[0]", "one place")),
    (X + HUB.format(0.2, -0.2, 0.035, "cw"), ("hub[4]", "hub[0]", "one place")),
    (X + HUB.format(0.2, -0.2, -0.07, "ccw"), ("hub[4].spin", "hub[0]", "both senses")),
    (X + HUB.format(0.2, -0.2, -0.07, "cw"), ("coaxial.lower_thrust_share", "missing", "hub[4]", "hub[0]")),
    (X + "[coaxial]\nlower_thrust_share = 0.8\n", ("coaxial", "no rotor stands under another")),
    (X + "[coaxial]\nlower_thrust_share = 1.2\n", ("coaxial.lower_thrust_share = 1.2",)),
    (four("ccw", "ccw", "ccw", "cw"), ("hub", "spins do not balance", "50%")),
    (four("ccw", "cw", "ccw", "cw"), ("hub", "rank < 4")),  # yaw only with roll
    (four("ccw", "ccw", "ccw", "ccw"), ("hub", "rank < 4")),  # yaw only with lift
    (X[: X.index("[[hub]]", 100)], ("hub", "rank < 4")),  # two or three rotors
    ("", ("frame", "[[hub]]", "none of them")),
    ('frame = "hexarotor_x"\n' + X, ("frame", "both")),
    (X.replace('"cw"', '"left"'), ("hub", "spin", "left")),
    (X.replace("0.03", "1.5"), ("hub", "p_m", "1 m")),
    (X.replace('spin = "cw"', 'spin = "cw"\ntilt_rad = 2.0'), ("tilt_rad = 2", "rad")),
    ("".join(HUB.format(0.3 * k, 0.1, 0.03, "cw") for k in range(-8, 9)), ("hub", "17 rotors", "16")),
    (
        X.replace("p_m = [0.2,", "p_m = [0.5,").replace("[-0.2,", "[0.1,"),
        ("hub", "a hover needs -", "rotor"),
    ),  # all in front of the centre of mass
    (HUB.format(0, 0, 0.03, "cw") * 4, ("hub[1]", "one place")),
    (X.replace("0.2,", "0.1,"), ("rotor.radius_m = 0.127", "rotors 0 and 2 are 0.200 m apart", "cut")),
]


def refusal(folder: Path, text: str) -> str:
    """Why an airframe file is refused."""
    (folder / "bad.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        load_airframe(str(folder / "bad.toml"))
    assert "bad.toml: " in str(error.value) and "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(("hubs", "expected"), BAD)
def test_rotors_that_cannot_fly_the_aircraft_are_refused_in_one_line(tmp_path, hubs, expected):
    text = airframe_file("f550").read_text(encoding="utf-8")
    for line in ('frame = "hexarotor_x"', "wheelbase_m = 0.55", "height_m = 0.03"):
        assert line in text
        text = text.replace(line, "", 1)
    frame, rest = hubs.split("\n", 1) if hubs.startswith("frame") else ("", hubs)
    found = refusal(tmp_path, text.replace("mass_kg =", f"{frame}\nmass_kg =", 1) + "\n" + rest)
    assert all(part in found for part in expected), found


@pytest.mark.parametrize("key", ["wheelbase_m", "height_m"])
def test_a_frame_needs_its_sizes(tmp_path, key):
    lines = airframe_file("f550").read_text(encoding="utf-8").splitlines()
    found = refusal(tmp_path, "\n".join(line for line in lines if not line.startswith(f"{key} ")))
    assert f"{key}: needed with frame" in found


def test_too_heavy_an_aircraft_is_refused(tmp_path):
    text = airframe_file("x8").read_text(encoding="utf-8").replace("mass_kg = 6.5", "mass_kg = 14.5")
    assert "hub: a hover needs 95%" in refusal(tmp_path, text)


def test_an_autopilot_set_for_another_number_of_rotors_is_refused():
    octo = replace(load_airframe("f550"), frame=Frame.OCTOROTOR_X, wheelbase_m=0.9)
    with pytest.raises(ConfigError, match=r"autopilots/f550\.toml: CA_ROTOR_COUNT = 6: .* has 8 rotors"):
        Autopilot("f550", airframe=octo)


def test_a_hub_below_but_beside_another_is_no_pair():
    lower = Hub(p_m=(0.2 + 0.08, -0.2, -0.07), spin=Spin.CW)
    beside = placed(*wheel(4), lower, coaxial=Coaxial(lower_thrust_share=0.7))
    assert beside.thrust_shares == (1.0,) * 5
