"""Requests of one photograph: how often, and how far apart."""

import pytest
from mission_world import answered

from companion.core.enums import CaptureOutcome
from companion.core.messages import CaptureRequest
from companion.mission.captures import ATTEMPTS, Captures
from companion.mission.inspection_route import Stop, Wanted
from companion.mission.monitors import PAYLOAD_S

STEP_S = 0.02


def stop(number: int) -> Stop:
    return Stop(
        "face", "pier", (0.0, 0.0, 0.0), 0.0, 2.0, Wanted(number, ("face", 0, number - 1), 0.0, 5.0), [], True, True
    )


class Camera:
    """Answers in the mission's next step; refuses while `ready` is false."""

    def __init__(self) -> None:
        self.captures, self.now_s = Captures(), 100.0
        self.requested_s: list[float] = []

    def photograph(self, number: int, ready, otherwise: str = "refused") -> CaptureOutcome:
        """Step until photograph `number` is settled; ready: whether the camera can take it, by the time."""
        self.requested_s.clear()
        at = stop(number)
        for _ in range(10_000):
            request: CaptureRequest | None = self.captures.step(at, self.now_s)
            if request is not None:
                self.requested_s.append(self.now_s)
                self.captures.take(answered(request, "taken" if ready(self.now_s) else otherwise))
            if self.captures.settled(at.photograph):
                return self.captures.outcomes[number]
            self.now_s = round(self.now_s + STEP_S, 6)
        raise AssertionError("the photograph was never settled")


@pytest.mark.parametrize("outage_s", [2.0, PAYLOAD_S])
def test_a_camera_that_is_back_within_what_the_safety_row_tolerates_loses_no_photograph(outage_s):
    camera = Camera()
    assert camera.photograph(1, lambda now_s: now_s > 100.0 + outage_s) is CaptureOutcome.TAKEN
    assert len(camera.requested_s) <= ATTEMPTS and camera.now_s < 100.0 + outage_s + 3.1


def test_a_dead_camera_is_waited_for_at_one_station_and_not_at_each():
    camera = Camera()
    assert camera.photograph(1, lambda now_s: False) is CaptureOutcome.REFUSED
    assert len(camera.requested_s) == ATTEMPTS and PAYLOAD_S < camera.now_s - 100.0 < PAYLOAD_S + 2.0
    for number in range(2, 5):
        begun_s = camera.now_s
        assert camera.photograph(number, lambda now_s: False) is CaptureOutcome.REFUSED
        assert len(camera.requested_s) == ATTEMPTS and camera.now_s - begun_s < 0.1
    assert camera.photograph(5, lambda now_s: True) is CaptureOutcome.TAKEN
    begun_s = camera.now_s  # it was back: another outage is waited for
    assert camera.photograph(6, lambda now_s: now_s > begun_s + 4.0) is CaptureOutcome.TAKEN


def test_another_chance_waits_for_the_camera_again():
    camera = Camera()
    assert camera.photograph(1, lambda now_s: False) is CaptureOutcome.REFUSED
    camera.captures.give_another_chance()
    begun_s = camera.now_s
    assert camera.photograph(1, lambda now_s: now_s > begun_s + 4.0) is CaptureOutcome.TAKEN


@pytest.mark.parametrize("outcome", ["blurred", "lost"])
def test_a_photograph_that_is_blurred_or_lost_is_requested_again_at_once(outcome):
    camera = Camera()
    assert camera.photograph(1, lambda now_s: now_s > 100.0, outcome) is CaptureOutcome.TAKEN
    assert camera.requested_s == pytest.approx([100.0, 100.0 + STEP_S])
