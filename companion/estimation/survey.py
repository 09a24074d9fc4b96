"""Surveyed poses of bundles: from one bundle that is in the filter's state, the places of the others follow.

A bundle that the survey placed and that does not stand there is refused by the contradiction test, and is not placed again. The first
one has its place from its own images, which may have shown a flipped pose. So it is judged as a bundle without a survey, until the
images of another one have shown that bundle where the survey has it. When the first is removed before, the places that were derived
from its own go with it.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.enums import Sensor
from companion.core.frames import quat_conjugate, quat_from_rpy, quat_multiply, rotation_matrix, skew
from companion.core.site import Site, Survey
from companion.estimation.filter import Eskf
from companion.estimation.filter_state import ESTABLISHED, FilterState
from companion.estimation.layout import BUNDLE_ERROR, BUNDLE_STATE, OTHERS_MAX
from companion.estimation.validity import REJECTED_MAX_S, is_persistent


class Surveyed(NamedTuple):
    """A bundle's pose in the surveyor's frame S, with standard deviations of each axis [m], [rad]."""

    p_S: Array
    q_S: Array
    std_m: float
    std_rad: float


def surveyed(site: Site) -> dict[str, Surveyed]:
    """The surveyed bundles of a marker file."""

    def pose(survey: Survey) -> Surveyed:
        return Surveyed(np.array(survey.p_S), quat_from_rpy(*survey.rpy_S_rad), survey.std_m, survey.std_rad)

    return {bundle.name: pose(bundle.survey) for bundle in site.bundle if bundle.survey is not None}


def place_by_survey(
    eskf: Eskf, filter_state: FilterState, poses: Mapping[str, Surveyed], own: str | None, seen: str
) -> None:
    """Place every surveyed bundle that is not established yet, relative to the established bundle `seen`.

    A place by its own few observations is replaced: later ones agree with the survey's, or are refused. So is the place
    of a bundle that is refused for some time while `seen` agrees: errors of its few markers in sight may have turned it.
    It stays refused until it is seen where the survey has it. own: name of the mission's bundle. With p_B = p_A + R_A p_AB the errors are δp_B = δp_A − R_A [p_AB]ₓ δθ_A + e_p and
    δθ_B = R_ABᵀ δθ_A + e_θ; e: of both surveyed poses. Raises nothing: bundles beyond the state's size wait.
    """
    for name in poses:
        record = filter_state.others.get(name)
        score = filter_state.placement_score if name == own else (0 if record is None else record.placement_score)
        full = name != own and record is None and len(filter_state.others) >= OTHERS_MAX
        if (
            name == seen
            or (score >= ESTABLISHED and not _contradicts(filter_state, "" if name == own else name))
            or full
        ):
            continue
        if name != own and not eskf.allocate(filter_state, name):
            continue
        _place(filter_state, "" if name == own else name, "" if seen == own else seen, poses[seen], poses[name])
        filter_state.set_placed("" if name == own else name, ESTABLISHED, surveyed_from=seen)


def is_upheld(filter_state: FilterState, name: str) -> bool:
    """Whether a bundle whose place the survey derived from that of the bundle `name` is seen there: `name` itself has moved.

    As the two below, for a bundle `name` that is in the place of the mission's.
    """
    since_s = filter_state.time_s - REJECTED_MAX_S
    return any(
        record.surveyed_from == name and not record.contradiction.refused and record.accepted_s[0] >= since_s
        for record in filter_state.others.values()
    )


def confirm(filter_state: FilterState, name: str, own: str | None) -> None:
    """Images have shown the bundle `name` where the survey has it: so the bundle stands right from which its place was derived."""
    known = filter_state.surveyed_from
    key = name if known == own else known  # while a further bundle has the place of the mission's, that one has its
    if key in filter_state.others and filter_state.others[key].surveyed_from is None:
        filter_state.set_record(key, filter_state.others[key]._replace(surveyed_from=name))


def remove_with_derived(eskf: Eskf, filter_state: FilterState, name: str, own: str | None) -> None:
    """Remove the bundle `name`, and every place that the survey derived from its own and no images of that bundle have confirmed."""
    eskf.remove_bundle(filter_state)
    lost = [name]
    for source in lost:  # grows: places may be derived from derived ones
        for key, record in list(filter_state.others.items()):
            if record.surveyed_from == source and not record.flips.ended:
                eskf.remove_bundle(filter_state, key)
                lost.append(own if key == name and own is not None else key)


def _contradicts(filter_state: FilterState, name: str) -> bool:
    """Whether an established bundle is refused, and has been for some time; "": the mission's."""
    if not name:
        run, test = filter_state.rejection_runs.get(Sensor.MARKER), filter_state.contradiction
    else:
        run, test = filter_state.others[name].rejection_runs[0], filter_state.others[name].contradiction
    return test.refused and is_persistent(run, filter_state.time_s)


def _place(filter_state: FilterState, name: str, by: str, known: Surveyed, new: Surveyed) -> None:
    """Place the bundle `name` relative to the bundle `by`; "": the mission's."""
    R_SA = rotation_matrix(known.q_S)
    p_AB, q_AB = R_SA.T @ (new.p_S - known.p_S), quat_multiply(quat_conjugate(known.q_S), new.q_S)
    A, p_WM, q_WM = _rows(filter_state, by), *np.split(_pose(filter_state, by), [3])
    B, pose, R_WA = _rows(filter_state, name), _pose(filter_state, name), rotation_matrix(q_WM)
    pose[:3], pose[3:] = p_WM + R_WA @ p_AB, quat_multiply(q_WM, q_AB)
    T = np.zeros((6, len(filter_state.covariance)))
    T[:3, A.start : A.start + 3], T[:3, A.start + 3 : A.stop] = np.eye(3), -R_WA @ skew(p_AB)
    T[3:, A.start + 3 : A.stop] = rotation_matrix(q_AB).T
    # A wrong attitude of the first bundle moves the second in proportion to their distance.
    lever_m = float(np.linalg.norm(p_AB))
    variance_m2 = known.std_m**2 + new.std_m**2 + (lever_m * known.std_rad) ** 2
    covariance = filter_state.covariance
    covariance[B, :] = covariance[:, B] = 0.0
    shared = T @ covariance
    covariance[B, :], covariance[:, B] = shared, shared.T
    covariance[B, B] = shared @ T.T + np.diag(3 * [variance_m2] + 3 * [known.std_rad**2 + new.std_rad**2])


def _rows(filter_state: FilterState, name: str) -> slice:
    return filter_state.errors_of(name) if name else BUNDLE_ERROR


def _pose(filter_state: FilterState, name: str) -> Array:
    return filter_state.pose(name) if name else filter_state.nominal[BUNDLE_STATE]
