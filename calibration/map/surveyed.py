"""Surveys of a site's bundles as measurements of their poses relative to each other.

A survey gives poses in a frame S that no flight knows. So the poses of all surveyed bundles relative to the first of them are measured,
with the covariance of all these together: the error of the first is in each.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from calibration.map.combine import SiteMap, joint, with_surveyed
from calibration.map.normal_equations import Factor
from calibration.map.relative import difference, relative_jacobian
from calibration.map.rotations import right_jacobian_inverse
from calibration.map.unknowns import PLACE, TURN, Unknowns, columns
from companion.core.site import Survey

POSE = 6
NO_BUNDLES = SiteMap((), np.zeros((0, 3, 3)), np.zeros((0, 3)), np.zeros((0, 0)))


def survey_factors(u: Unknowns, bundles: Sequence[str], surveys: Mapping[str, Survey]) -> list[Factor]:
    """One factor of 6 (n - 1) residuals for n surveyed bundles of a flight; none of one alone. bundles: of the unknowns, in their order."""
    names = [name for name in bundles if name in surveys]
    if len(names) < 2:
        return []
    index = [bundles.index(name) for name in names]
    by_survey = with_surveyed(NO_BUNDLES, {name: surveys[name] for name in names})
    whitener, count = joint(by_survey)
    size = POSE * len(names)
    found = SiteMap(tuple(names), u.R_WM[index], u.p_WM[index], np.zeros((size, size)))
    errors, jacobians = [], []
    for b, name in enumerate(names[1:], 1):
        error = difference(found.between(names[0], name), by_survey.between(names[0], name))
        J = relative_jacobian(found.R, found.p, 0, b)
        J[:3] = right_jacobian_inverse(error[:3]) @ J[:3]
        errors.append(error)
        jacobians.append(J)
    assert len(errors) == count
    place = columns(np.array([u.first_of_bundle(b) for b in index]), TURN, PLACE).reshape(1, -1)
    return [Factor((whitener @ np.concatenate(errors))[None], (whitener @ np.concatenate(jacobians))[None], place)]
