"""Pictures and devices of the simulated aircraft: what one image or sample costs, everything in one thread.

The scene has 48,000 triangles in 21 meshes. The reference of the noise is the same model in NumPy with its fastest generator.
"""

import numpy as np

from companion.core.config import parse
from sitl.camera_effects import AutoExposure, Effects, EffectsConfig, Frame, Glare, RollingShutter
from sitl.devices.camera_imu import CameraImuConfig, CameraInertial
from sitl.devices.depth_camera import DepthNoise, DepthNoiseField
from sitl.devices.timing import Clock
from sitl.rendering.rasteriser import Rasteriser
from sitl.views import Pinhole
from tests.benchmark.figures import Figure
from tests.benchmark.timing import in_turns
from tests.rendering.drawn_worlds import AHEAD, many_spheres
from tests.rendering.test_devices import IMU, STEP_S, still

LIMIT_PICTURE_MS, LIMIT_NOISE_MS = 45.0, 1.21
PUBLISHED_NOISE_MS = 12.1  # paper 2, section 2.4
PIXELS = (320, 460)
RNG = np.random.default_rng(1)
DEPTH, MATERIAL = RNG.uniform(0.5, 8.0, PIXELS).astype(np.float32), RNG.integers(1, 4, PIXELS).astype(np.uint8)
PER_M = np.array([0.0, 0.85, 0.50, 0.55], dtype=np.float32)


def numpy_noise(rng: np.random.Generator) -> np.ndarray:
    """The model of `sitl.devices.depth_camera` in NumPy."""
    noise = 0.005 * np.exp(PER_M[MATERIAL] * DEPTH) * rng.standard_normal(PIXELS, dtype=np.float32)
    readings = np.clip(1e3 * (DEPTH + noise) + 0.5, 10, 65535).astype(np.uint16)
    readings[rng.random(PIXELS, dtype=np.float32) < 0.01] = 0
    return readings


def figures() -> list[Figure]:
    """Costs of pictures, effects, depth noise and inertial samples."""
    out = []
    rasteriser = Rasteriser(many_spheres())
    for width, height in ((640, 480), (752, 480), (640, 360), (460, 320)):
        view = Pinhole(width, height, 0.7 * width, 0.7 * width, width / 2 - 0.5, height / 2 - 0.5)
        cases = {
            "both": lambda view=view: rasteriser.draw(view, np.zeros(3), AHEAD),
            "grey": lambda view=view: rasteriser.draw(view, np.zeros(3), AHEAD, depth=False),
        }
        times = in_turns(cases, 1)
        limit = LIMIT_PICTURE_MS if (width, height) == (640, 480) else None
        name = f"grey and float depth, {width} x {height}"
        out.append(Figure(name, 1e3 * times["both"], "ms", "grey alone", 1e3 * times["grey"], limit))
    rasteriser.close()
    field, rng, count = DepthNoiseField(DepthNoise(), 0.01, 60.0, 1), np.random.default_rng(2), iter(range(10**6))
    times = in_turns(
        {"c": lambda: field.readings(DEPTH, MATERIAL, PER_M, next(count)), "numpy": lambda: numpy_noise(rng)}, 5
    )
    name = f"noise of a depth image, 460 x 320 (published: {PUBLISHED_NOISE_MS:g} ms)"
    out.append(Figure(name, 1e3 * times["c"], "ms", "NumPy", 1e3 * times["numpy"], LIMIT_NOISE_MS))
    view = Pinhole(640, 480, 448.0, 448.0, 319.5, 239.5)
    frame = Frame(RNG.integers(0, 200, (480, 640)).astype(np.uint8), np.zeros((480, 640), bool))
    for name, config in (
        ("rolling shutter", EffectsConfig(rolling_shutter=RollingShutter(readout_s=0.02))),
        ("glare and auto-exposure", EffectsConfig(glare=Glare(share=0.05), auto_exposure=AutoExposure())),
    ):
        effects = Effects(config, view)
        call = {"": lambda e=effects: e.apply(0.05 * next(count), [frame], (0.1, 0.2, 0.3), (1.0, 0.0, 0.0), 5.0)}
        out.append(Figure(f"{name}, 640 x 480", 1e3 * in_turns(call, 2)[""], "ms"))
    config = parse(IMU, CameraImuConfig, "benchmark")
    inertial, motion = CameraInertial(config, rng, Clock(config, rng)), still()
    steps = {"": lambda: inertial.step(STEP_S * next(count), motion)}
    per_step = in_turns(steps, 250)[""]
    out.append(Figure("camera's IMU, a second of simulated time", 1e3 * per_step / STEP_S, "ms"))
    return out
