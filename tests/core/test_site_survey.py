"""The survey in a marker file: a map that contradicts itself is one line when it is loaded."""

import math

import pytest

from companion.core.config import ConfigError
from companion.core.site import load_site

BUNDLE = """
[[bundle]]
name = "{name}"
markers = [{{ family = "aruco_6x6_250", id = {id}, size_m = 0.3 }}]
[bundle.survey]
p_S = {p_S}
rpy_S_rad = [1.5707963, 0.0, {yaw}]
std_m = 0.01
std_rad = 0.002
"""


def written(tmp_path, *bundles):
    file = tmp_path / "site.toml"
    file.write_text("".join(BUNDLE.format(name=name, id=i, p_S=p, yaw=yaw) for i, (name, p, yaw) in enumerate(bundles)))
    return file


def test_two_bundles_surveyed_in_one_place_are_one_line(tmp_path):
    file = written(tmp_path, ("pier", [5.0, 0.0, 2.0], 0.0), ("deck", [5.05, 0.0, 2.0], 0.0))
    with pytest.raises(
        ConfigError, match=r"site.toml: bundle.survey: marker 1 of 'deck' stands on marker 0 of 'pier' \(0.050 m"
    ):
        load_site(file)


@pytest.mark.parametrize(
    ("place", "yaw_rad"),
    [([5.4, 0.0, 2.0], 0.0), ([5.0, 0.02, 2.0], math.pi)],
    ids=["side by side", "two sides of one board"],
)
def test_bundles_that_can_both_stand_there_load(tmp_path, place, yaw_rad):
    assert len(load_site(written(tmp_path, ("pier", [5.0, 0.0, 2.0], 0.0), ("other", place, yaw_rad))).bundle) == 2
