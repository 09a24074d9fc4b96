"""Wind that needs more tilt than the bound: the aircraft leans against it and drifts, it does not swing."""

import msgspec
import numpy as np
import pytest
from control_plant import Loop


@pytest.mark.parametrize("axis", [0, 1])  # [1] swung, [0] did not
def test_wind_beyond_the_tilt_bound_does_not_make_the_other_axis_swing(vehicle, axis):
    rng, loop = np.random.default_rng(1), Loop(vehicle, p=(0.0, 0.0, 3.0))
    loop.edit_state = lambda state: msgspec.structs.replace(
        state, disturbance_W=tuple(np.array(state.disturbance_W) + rng.normal(0, 0.1, 3))
    )
    loop.hold((0.0, 0.0, 3.0))
    loop.run(3.0)
    wind_W = np.zeros(3)
    wind_W[axis] = -1.1 * 9.81 * np.tan(vehicle.controller.tilt_max_rad)
    begin_s, first = loop.now_s, len(loop.setpoints)

    def rises(loop):
        loop.plant.disturbance_W = wind_W * min(1.0, (loop.now_s - begin_s) / 1.5)

    loop.run(5.0, rises)
    sent = np.array([(s.roll_rad, s.pitch_rad) for s in loop.setpoints[first:]])
    leans, other = sent[-50:, 1 - axis], sent[:, axis]
    assert np.abs(leans).min() > 0.9 * vehicle.controller.tilt_max_rad
    assert np.abs(other).max() < 0.16  # it swung by the whole bound of 0.4, with steps of 0.8 from cycle to cycle
    assert min(p[2] for p in loop.positions) > 2.5
