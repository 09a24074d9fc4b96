"""The frames of paper 4 flown by the page's sticks with the PX4 emulator: body, headless, and the change in the air.

``python -m tests.remote.test_remote_flown`` prints the directions flown.
"""

import itertools
import math

import numpy as np
import pytest

from companion.core.enums import FcuMode
from sitl.autopilot.sticks import stick
from sitl.sensors import PAPER
from tests.remote.remote_flight import RemoteFlight

MODES = [FcuMode.STABILIZED, FcuMode.ALTCTL, FcuMode.POSCTL]
SEEDS = [2, 3, 4]
NOSES = [0.0, 50.0, 140.0, -115.0]  # degrees from where "ahead" was set


def flown_deg(remote: RemoteFlight, page, ahead: float, right: float, duration_s: float = 2.0) -> float:
    """Direction of the velocity that a stick adds, ENU [deg]; the sticks are released afterwards."""
    before = np.array(remote.plant.v_W)
    page.move(ahead=ahead, right=right)
    remote.run(duration_s)
    dv = np.array(remote.plant.v_W) - before
    page.move()
    return math.degrees(math.atan2(dv[1], dv[0]))


def stop(remote: RemoteFlight, page) -> None:
    remote.choose(page, FcuMode.POSCTL)
    remote.run(6.0)


def directions(mode: FcuMode, frame: str) -> list[tuple[float, float]]:
    """(direction flown from that in which "ahead" was set, the nose's) [deg] with one stick, at each of `NOSES`."""
    remote = RemoteFlight(MPC_VEL_MANUAL=5.0)
    page = remote.flying(height_m=25.0)
    page.send(remote.now_s, type="ahead")
    remote.run(0.1)
    first = remote.autopilot.stack.yaw
    found = []
    for nose in NOSES:
        remote.turn_to(page, first + math.radians(nose))
        page.send(remote.now_s, type="frame", frame=frame)
        if mode is not FcuMode.POSCTL:
            remote.choose(page, mode)
        remote.run(0.8)
        yaw = remote.autopilot.stack.yaw
        flown = flown_deg(remote, page, 0.5, 0.3)
        found.append(
            (math.remainder(flown - math.degrees(first), 360), math.degrees(math.remainder(yaw - first, math.tau)))
        )
        stop(remote, page)
        page.send(remote.now_s, type="frame", frame="body")
        remote.run(0.6)
    return found


@pytest.mark.verify
@pytest.mark.parametrize("mode", MODES)
def test_headless_flies_in_one_direction_of_the_world_whatever_the_nose(mode):
    found = [flown for flown, _ in directions(mode, "headless")]
    assert max(found) - min(found) < 1.0, found
    assert -45.0 < found[0] < -5.0, "ahead and to the right of where ahead was set"


def paths(seed: int, duration_s: float = 20.0) -> list[float]:
    """Directions of headless flight in Position mode with noisy sensors, of the path flown, at each of `NOSES` [deg].

    The velocity after 2 s, as without noise, would show the noise: GNSS moves the held position by 0.2 m/s at the start, and the
    path of the first seconds is short beside GNSS's random walk. The mean of a long path is what a person sees.
    """
    remote = RemoteFlight(MPC_VEL_MANUAL=10.0, sensors=PAPER, seed=seed)
    page = remote.flying(height_m=25.0)
    page.send(remote.now_s, type="ahead")
    remote.run(0.1)
    first, found = remote.autopilot.stack.yaw, []
    for nose in NOSES:
        remote.turn_to(page, first + math.radians(nose))
        page.send(remote.now_s, type="frame", frame="headless")
        remote.run(0.8)
        page.move(ahead=0.9, right=0.54)
        remote.run(4.0)  # until the speed is reached
        begin = np.array(remote.plant.p_W)
        remote.run(duration_s)
        way = np.array(remote.plant.p_W) - begin
        assert np.hypot(way[0], way[1]) > 100.0
        found.append(math.remainder(math.degrees(math.atan2(way[1], way[0]) - first), 360))
        page.move()
        remote.run(6.0)
        page.send(remote.now_s, type="frame", frame="body")
        remote.run(0.6)
    return found


@pytest.mark.verify
@pytest.mark.parametrize("seed", SEEDS)
def test_headless_with_noisy_sensors_flies_in_one_direction_of_the_world(seed):
    found = paths(seed)
    assert max(found) - min(found) < 1.0, found


@pytest.mark.verify
@pytest.mark.parametrize("mode", MODES)
def test_the_body_frame_turns_with_the_nose(mode):
    found = [math.remainder(flown - nose, 360) for flown, nose in directions(mode, "body")]
    assert max(found) - min(found) < 1.0, found
    assert -45.0 < found[0] < -5.0


def test_headless_flies_to_one_side_with_the_nose_to_another():
    """One sample of the above: the nose is turned by 90°, the stick goes ahead."""
    remote = RemoteFlight()
    page = remote.flying(height_m=6.0)
    page.send(remote.now_s, type="ahead")
    first = remote.autopilot.stack.yaw
    remote.turn_to(page, first + math.pi / 2)
    page.send(remote.now_s, type="frame", frame="headless")
    remote.run(0.7)
    flown = flown_deg(remote, page, 0.5, 0.0, 1.5)
    assert abs(math.remainder(flown - math.degrees(first), 360)) < 1.0


def test_the_frame_is_changed_in_the_air_without_a_jump():
    remote = RemoteFlight()
    page = remote.flying(height_m=6.0)
    page.send(remote.now_s, type="ahead")
    remote.turn_to(page, remote.autopilot.stack.yaw + 2.0)
    page.move(ahead=0.5)
    remote.run(1.0)
    begin = len(remote.sent)
    rates = []
    for frame in ("headless", "body"):
        page.send(remote.now_s, type="frame", frame=frame)
        for _ in range(50):
            remote.run(0.02)
            rates.append(math.hypot(*remote.plant.omega_B[:2]))
    sent = [(stick(m.x / 1000, 0.1), stick(m.y / 1000, 0.1)) for _, m in remote.sent[begin:]]  # behind PX4's dead zone
    assert max(itertools.starmap(math.dist, itertools.pairwise(sent))) < 0.06
    assert max(rates) < 1.2, "the tilt changes smoothly [rad/s]"
    assert min(x for x, _ in sent) < 0 < max(x for x, _ in sent), "the stick did turn"


if __name__ == "__main__":
    for mode in MODES:
        for frame in ("body", "headless"):
            rows = "  ".join(f"nose {nose:7.2f}°: flown {flown:7.2f}°" for flown, nose in directions(mode, frame))
            print(f"{mode:11} {frame:9} {rows}")
    for seed in SEEDS:
        found = paths(seed)
        print(f"POSCTL      headless, noisy sensors, seed {seed}: path {', '.join(f'{v:.2f}°' for v in found)}")
