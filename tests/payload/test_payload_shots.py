"""Answers that come again, late, out of order or from a camera that restarted: each photograph has its own."""

import math

import pytest

from companion.core.messages import CaptureRequest
from companion.payload.shots import Answer, Shot, Shots


class Camera:
    """Requests that are commanded at a time, and the answers to them."""

    def __init__(self, has_clock: bool = True, by_utc: bool = False) -> None:
        self.shots, self.has_clock, self.by_utc = Shots(0.12), has_clock, by_utc

    def command(self, id: int, now_s: float) -> Shot:
        request = CaptureRequest(
            stamp_s=now_s, id=id, item="face", row=0, column=id, frame="pier", pitch_rad=0.0, distance_m=5.0
        )
        shot = self.shots.open = self.shots.begin(request, now_s)
        shot.triggered_s, shot.sent, shot.acked = now_s, 1, True
        return shot

    def answer(
        self, index: int, exposed_s: float, now_s: float, boot_s: float = math.nan, taken: bool = True
    ) -> tuple[int, bool] | None:
        """The photograph that an answer is taken for, and whether it was late; boot_s: camera's clock, else that of the exposure."""
        boot_ms = round(1e3 * (exposed_s if math.isnan(boot_s) else boot_s))
        at_s = exposed_s if self.has_clock else math.nan
        found = self.shots.take(Answer(index, (boot_ms, int(taken)), at_s, boot_ms, self.by_utc), now_s)
        return None if found is None else (found[0].request.id, found[1])


@pytest.mark.parametrize("has_clock", [True, False], ids=["clock", "no clock"])
def test_a_late_answer_out_of_order_is_no_restart_of_the_camera(has_clock):
    camera = Camera(has_clock)
    camera.command(1, 10.0)
    camera.shots.lose(13.0)
    camera.command(2, 14.0)
    assert camera.answer(6, 14.1, 14.3) == (2, False)
    assert camera.answer(5, 10.1, 14.5) == (1, True)
    camera.command(3, 18.0)
    assert camera.answer(6, 14.1, 18.2) is None  # comes again
    assert camera.answer(7, 18.1, 18.3) == (3, False)
    counts = camera.shots.counts
    assert (counts.late, counts.duplicated, counts.foreign, counts.lost, camera.shots.missing) == (1, 1, 0, 0, 0)


@pytest.mark.parametrize("has_clock", [True, False], ids=["clock", "no clock"])
def test_a_repeated_answer_with_another_time_stamp_is_counted_once(has_clock):
    camera = Camera(has_clock)
    for id in (1, 2):
        camera.command(id, 10.0 * id)
        assert camera.answer(4 + id, 10.0 * id + 0.1, 10.0 * id + 0.2) == (id, False)
    camera.command(3, 30.0)
    assert camera.answer(6, 30.15, 30.2) is None
    assert camera.answer(7, 30.1, 30.3, boot_s=30.2) == (3, False)
    assert (camera.shots.counts.duplicated, camera.shots.counts.foreign) == (1, 0)


@pytest.mark.parametrize("counts_on", [True, False])
def test_a_camera_that_restarted_may_count_from_the_beginning(counts_on):
    camera = Camera(has_clock=False)
    for id in range(1, 5):
        camera.command(id, 100.0 + 10.0 * id)
        assert camera.answer(id - 1, 100.1 + 10.0 * id, 100.2 + 10.0 * id) == (id, False)
    for id in range(5, 10):  # the restart was at 145 s
        camera.command(id, 100.0 + 10.0 * id)
        index, exposed_s = (id - 1 if counts_on else id - 5), 100.1 + 10.0 * id
        assert camera.answer(index, exposed_s, exposed_s + 0.1, boot_s=exposed_s - 145.0) == (id, False)
    assert (camera.shots.counts.duplicated, camera.shots.missing) == (0, 0)


def test_a_camera_that_restarted_below_the_counts_it_has_shown_takes_every_photograph():
    """It is not behind by its clock alone: a count that is not known might be that of a late answer."""
    camera = Camera(has_clock=False)
    for id, index in ((1, 3), (2, 4)):
        camera.command(id, 600.0 + 10.0 * id)
        assert camera.answer(index, 600.1 + 10.0 * id, 600.2 + 10.0 * id) == (id, False)
    for id in range(3, 10):
        camera.command(id, 600.0 + 10.0 * id)
        assert camera.answer(id - 3, 600.1 + 10.0 * id, 600.2 + 10.0 * id, boot_s=10.0 * id - 20.0) == (id, False)
    assert camera.shots.counts.duplicated == 0


def test_a_camera_that_does_not_count_takes_every_photograph():
    camera = Camera()
    for id in (1, 2, 3):
        camera.command(id, 10.0 * id)
        assert camera.answer(0, 10.0 * id + 0.1, 10.0 * id + 0.2) == (id, False)


def test_failures_with_the_number_of_the_last_photograph_are_no_repeated_answers():
    camera = Camera()
    taken = {1: (5, True), 2: (6, True), 3: (6, False), 4: (6, False), 5: (7, True)}
    for id, (index, success) in taken.items():
        camera.command(id, 10.0 * id)
        assert camera.answer(index, 10.0 * id + 0.1, 10.0 * id + 0.2, taken=success) == (id, False)
    assert camera.shots.counts.duplicated == 0


@pytest.mark.parametrize("answer_s", [0.2, 1.5])
@pytest.mark.parametrize("lost", [1, 3])
@pytest.mark.parametrize("behind_s", [0.3, 1.0, 3.5, 5.0, 8.0, 29.0])
def test_one_lost_answer_of_a_camera_with_a_wrong_utc_moves_no_later_one(behind_s, lost, answer_s):
    camera = Camera(by_utc=True)
    for id in range(1, 9):
        now_s = 100.0 + 4.0 * id
        camera.command(id, now_s)
        if id == lost:
            camera.shots.lose(now_s + 3.0)
        else:
            assert camera.answer(id, now_s + 0.12 - behind_s, now_s + answer_s) == (id, False)
    counts = camera.shots.counts
    assert (counts.lost, counts.late, counts.foreign) == (1, 0, 0)


def test_a_utc_that_is_behind_by_the_time_between_two_requests_moves_one_photograph():
    """The first answer is lost, and the second looks like it, late: nothing has shown yet that the clock is wrong."""
    camera = Camera(by_utc=True)
    given = []
    for id in range(1, 7):
        now_s = 100.0 + 4.0 * id
        camera.command(id, now_s)
        given.append(camera.answer(id, now_s + 0.12 - 4.0, now_s + 0.6) if id > 1 else None)
        camera.shots.lose(now_s + 3.0)
    assert given == [None, (1, True), *((id, False) for id in range(3, 7))]


def test_a_first_answer_that_is_late_moves_no_photograph():
    """It arrives soon after the next command, as the answer of that one would; a right UTC says whose it is."""
    camera = Camera(by_utc=True)
    camera.command(1, 10.0)
    camera.shots.lose(15.0)
    camera.command(2, 15.0)
    assert camera.answer(1, 10.3, 15.4) == (1, True)
    assert camera.answer(2, 15.3, 15.9) == (2, False)


@pytest.mark.parametrize(("answer_s", "lost"), [(0.3, 0), (1.5, 0), (1.5, 1)])
@pytest.mark.parametrize("step_s", [-1.0, -6.0, -20.0])
def test_a_utc_that_steps_backwards_costs_no_more_than_one_photograph(step_s, answer_s, lost):
    """lost: of the photographs before the step, as when the camera restarts."""
    camera = Camera(by_utc=True)
    given = {}
    for id in range(1, 9):
        now_s = 100.0 + 4.0 * id
        camera.command(id, now_s)
        exposed_s = now_s + 0.12 + (step_s if id > 4 else 0.0)
        given[id] = camera.answer(id, exposed_s, now_s + answer_s) if not 4 - lost < id <= 4 else None
        camera.shots.lose(now_s + 3.0)
    assert {id: found for id, found in given.items() if found not in ((id, False), None)} == {}
    assert list(given.values()).count(None) <= 1 + lost and given[8] is not None


def test_a_utc_that_has_agreed_names_a_late_answer_and_the_photograph_of_another():
    camera = Camera(by_utc=True)
    camera.command(1, 10.0)
    assert camera.answer(1, 10.1, 10.3) == (1, False)
    camera.command(2, 20.0)
    camera.shots.lose(23.0)
    camera.command(3, 24.0)
    assert camera.answer(2, 20.1, 24.2) == (2, True)  # as soon after the command as an answer of its own
    assert camera.answer(3, 24.1, 24.35) == (3, False)
    camera.command(4, 30.0)
    assert camera.answer(4, 29.9, 30.1) is None
    assert camera.answer(5, 30.1, 30.3) == (4, False)
    assert camera.shots.counts.foreign == 1 and not camera.shots.utc_is_wrong


def test_a_utc_that_was_set_in_flight_is_trusted_again():
    camera = Camera(by_utc=True)
    camera.command(1, 10.0)
    assert camera.answer(1, 2.1, 10.3) == (1, False) and camera.shots.utc_is_wrong
    camera.command(2, 20.0)
    assert camera.answer(2, 20.1, 20.3) == (2, False) and not camera.shots.utc_is_wrong


def test_a_command_sent_again_does_not_make_a_wrong_utc_agree():
    """The photograph came after the second command; its stamp, 0.3 s behind, still lies after the first."""
    camera = Camera(by_utc=True)
    camera.command(1, 10.0)
    assert camera.answer(1, 9.8, 10.3) == (1, False)
    camera.command(2, 20.0).sent_s = 20.5
    assert camera.answer(2, 20.32, 20.8) == (2, False) and camera.shots.utc_is_wrong


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("clock", ["clock", "no clock", "wrong UTC"])
def test_a_count_that_begins_again_while_the_clock_runs_on_takes_every_photograph(clock, first):
    """MAV_CMD_STORAGE_FORMAT between two flights; the counts of the first one come again."""
    camera = Camera(has_clock=clock != "no clock", by_utc=clock == "wrong UTC")
    behind_s = 8.0 if clock == "wrong UTC" else 0.0
    for id in range(1, 10):
        now_s = 100.0 + 10.0 * id
        camera.command(id, now_s)
        index = id + 2 if id < 5 else id - 5 + first
        assert camera.answer(index, now_s + 0.1 - behind_s, now_s + 0.3, boot_s=now_s) == (id, False)
        assert camera.answer(index, now_s + 0.1 - behind_s, now_s + 0.4, boot_s=now_s) is None
    counts = camera.shots.counts
    assert (counts.duplicated, counts.foreign, camera.shots.missing, camera.shots.last_index) == (9, 0, 0, 4 + first)


def test_a_count_that_begins_again_with_a_late_answer_takes_every_photograph():
    camera = Camera()
    for id in range(1, 5):
        camera.command(id, 10.0 * id)
        assert camera.answer(id, 10.0 * id + 0.1, 10.0 * id + 0.3) == (id, False)
    camera.command(5, 60.0)
    camera.shots.lose(63.0)
    assert camera.answer(1, 60.1, 63.5) == (5, True)
    camera.command(6, 70.0)
    assert camera.answer(2, 70.1, 70.3) == (6, False)


def test_a_late_answer_that_is_stamped_when_it_is_sent_is_no_new_count():
    """MAVSDK's camera: `time_utc` is of the exposure, `time_boot_ms` of the answer."""
    camera = Camera(by_utc=True)
    for id in (1, 2, 4):
        camera.command(id, 10.0 * id)
        if id == 2:
            camera.shots.lose(23.0)
        else:
            assert camera.answer(id, 10.0 * id + 0.1, 10.0 * id + 0.3) == (id, False)
    assert camera.answer(2, 20.1, 45.0, boot_s=45.0) == (2, True)
    assert camera.shots.missing == 1 and camera.shots.last_index == 4


def test_an_exposure_long_after_a_lost_command_is_anothers():
    camera = Camera()
    camera.command(1, 10.0)
    assert camera.answer(1, 10.1, 10.3) == (1, False)
    camera.command(2, 20.0)
    camera.shots.lose(23.0)
    assert camera.answer(2, 36.0, 36.3) is None
    assert (camera.shots.counts.foreign, camera.shots.counts.lost) == (1, 1)


def test_a_camera_that_is_known_to_be_slow_may_expose_as_late_again():
    camera = Camera()
    camera.command(1, 10.0)
    assert camera.answer(1, 11.4, 11.6) == (1, False)  # it had to focus
    camera.command(2, 20.0)
    assert camera.answer(2, 20.1, 20.3) == (2, False)
    camera.command(3, 30.0)
    camera.shots.lose(33.0)
    assert camera.answer(3, 31.4, 33.5) == (3, True)


def test_the_attempts_of_a_process_that_starts_again_are_others():
    first, second = Camera(), Camera()
    attempts = [first.command(7, 200.0).attempt, first.command(7, 203.2).attempt, second.command(7, 206.5).attempt]
    assert attempts == sorted(set(attempts))
