"""The chi-square quantile without SciPy is SciPy's."""

import pytest
from scipy.stats import chi2

from companion.core.chi_square import quantile, survival


@pytest.mark.parametrize("dof", [1, 2, 3, 4, 6, 7, 34, 155, 500, 3001])
@pytest.mark.parametrize("probability", [0.025, 0.5, 0.95, 0.999, 0.999999])
def test_the_quantile_is_the_reference_s(dof, probability):
    assert quantile(probability, dof) == pytest.approx(chi2.ppf(probability, dof), rel=1e-9)
    assert survival(chi2.ppf(probability, dof), dof) == pytest.approx(1 - probability, rel=1e-6)
