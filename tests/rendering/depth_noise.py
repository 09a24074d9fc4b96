"""``python -m tests.rendering.depth_noise``: the simulated depth camera against its model, and its cost.

As section 2.2 of paper 2 (W. Kim et al., Applied Sciences 2023, 13(19), 10631): a wall at a right angle at 751 distances from 0.5 to
8 m in steps of 1 cm, an image of 460 x 320 pixels at each, for three materials. Each wall is drawn by the renderer. R² compares the
standard deviation of each image's errors with equation 4. The published numbers compare a real camera with the same model: ours can
only show that the simulated camera has the model's noise, not that the model is true.
"""

import sys
import time
from collections.abc import Sequence

import numpy as np

from companion.core.errors import UserError
from sitl.devices.depth_camera import DepthNoise, DepthNoiseField
from sitl.rendering.rasteriser import Rasteriser
from sitl.solids import world_file
from sitl.views import Pinhole
from tests.rendering.drawn_worlds import AHEAD, many_spheres, wall

NAMES = {"plastic": "plastic", "cement": "cement", "foam_board": "foam board"}
MATERIALS = {NAMES[material.name]: material.depth_noise_per_m or 0.0 for material in world_file.MATERIALS}
RANGES_M = (3.0, 6.0, 8.0)
FIRST_M, LAST_M, STEP_M = 0.5, 8.0, 0.01
# R² of table 1 (0.5 to 8 m) and of the text of section 2.4; "–": not published
PUBLISHED = {
    ("plastic", 3.0): "0.89",
    ("plastic", 6.0): "0.59",
    ("plastic", 8.0): "0.26",
    ("cement", 8.0): "0.71",
    ("foam board", 8.0): "0.54",
    ("mean", 3.0): "0.92",
    ("mean", 6.0): "0.73",
    ("mean", 8.0): "0.62",
}
PUBLISHED_MS = 12.1
VIEW = Pinhole(460, 320, 230.0, 230.0, 229.5, 159.5)
FARTHEST_M = 60.0  # nothing is cut off: a cut would change the deviation, and the paper has none
TIMED = 200


def main() -> int:
    """Print the tables."""
    try:
        deviations, share, offset_m = measured()
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    distances = np.arange(FIRST_M, LAST_M + STEP_M / 2, STEP_M)
    print("| R², simulated against modelled (published: real against modelled) | 0.5–3 m | 0.5–6 m | 0.5–8 m |")
    print("|---|---|---|---|")
    every: dict[float, list[float]] = {last_m: [] for last_m in RANGES_M}
    for name, m in MATERIALS.items():
        model = 0.005 * np.exp(m * distances)
        cells = []
        for last_m in RANGES_M:
            part = distances <= last_m + 1e-9
            every[last_m].append(r_squared(np.asarray(deviations[name])[part], model[part]))
            cells.append(f"{every[last_m][-1]:.5f} ({PUBLISHED.get((name, last_m), '–')})")
        print(f"| {name}, m = {m:.2f} 1/m | {' | '.join(cells)} |")
    means = [f"{np.mean(every[last_m]):.5f} ({PUBLISHED['mean', last_m]})" for last_m in RANGES_M]
    print(f"| mean | {' | '.join(means)} |")
    print()
    typical_ms, worst_ms = noise_time_ms()
    print("| figure | ours | published |")
    print("|---|---|---|")
    print(f"| pixels without a value | {100 * share:.3f} % | 1 % |")
    print(f"| largest error of the drawn distance | {1e3 * offset_m:.3f} mm | – |")
    print(f"| noise of one image, median / 99 % | {typical_ms:.2f} / {worst_ms:.2f} ms | {PUBLISHED_MS} ms |")
    print()
    print("| picture | triangles | grey, fastest / median | grey and depth, fastest / median |")
    print("|---|---|---|---|")
    for size, side in (((460, 320), 34), ((640, 360), 34), ((640, 480), 34), ((752, 480), 34), ((640, 480), 5)):
        triangles, grey, both = picture_times_ms(size, side)
        print(
            f"| {size[0]} x {size[1]} | {triangles} | {grey[0]:.0f} / {grey[1]:.0f} ms | {both[0]:.0f} / {both[1]:.0f} ms |"
        )
    return 0


def measured() -> tuple[dict[str, Sequence[float]], float, float]:
    """Standard deviations [m] by material and distance, share of pixels without value, largest error of the drawing [m]."""
    field = DepthNoiseField(DepthNoise(), 0.01, FARTHEST_M, seed=1)
    empty = total = number = 0
    offset_m = 0.0
    deviations: dict[str, Sequence[float]] = {}
    for name, m in MATERIALS.items():
        rasteriser = Rasteriser([wall(10.0, size_m=(60.0, 60.0), m=m)])
        found = []
        for distance_m in np.arange(FIRST_M, LAST_M + STEP_M / 2, STEP_M):
            picture = rasteriser.draw(VIEW, np.array([10.0 - distance_m, 0.0, 0.0]), AHEAD)
            assert picture.depth_m is not None
            offset_m = max(offset_m, float(np.abs(picture.depth_m - distance_m).max()))
            readings = field.readings(picture.depth_m, picture.material, rasteriser.depth_noise_per_m, number)
            number += 1
            seen = readings[readings > 0]
            empty, total = empty + readings.size - seen.size, total + readings.size
            found.append(float((1e-3 * seen - distance_m).std()))
        rasteriser.close()
        deviations[name] = found
    return deviations, empty / total, offset_m


def r_squared(values: Sequence[float], model: Sequence[float]) -> float:
    """Coefficient of determination of a model for values."""
    values, model = np.asarray(values), np.asarray(model)
    return 1.0 - float(((values - model) ** 2).sum() / ((values - values.mean()) ** 2).sum())


def noise_time_ms() -> tuple[float, float]:
    """Processor time of the noise of one image, median and 99 %."""
    field = DepthNoiseField(DepthNoise(), 0.01, FARTHEST_M, seed=1)
    depth = np.random.default_rng(1).uniform(0.5, 8.0, (VIEW.height, VIEW.width)).astype(np.float32)
    material = np.random.default_rng(2).integers(1, 4, depth.shape).astype(np.uint8)
    per_m = np.array([0.0, *MATERIALS.values()], dtype=np.float32)
    return percentiles_ms(lambda i: field.readings(depth, material, per_m, i), TIMED, (50, 99))


def picture_times_ms(size: tuple[int, int], side: int) -> tuple[int, tuple[float, float], tuple[float, float]]:
    """Triangles, and processor times of grey alone and of grey with depth, fastest and median."""
    meshes = many_spheres(side)
    rasteriser = Rasteriser(meshes)
    focal = 0.7 * size[0]
    view = Pinhole(*size, focal, focal, size[0] / 2 - 0.5, size[1] / 2 - 0.5)
    times = [
        percentiles_ms(lambda _, depth=depth: rasteriser.draw(view, np.zeros(3), AHEAD, depth=depth), 30, (0, 50))
        for depth in (False, True)
    ]
    rasteriser.close()
    return sum(len(mesh.triangles) for mesh in meshes), times[0], times[1]


def percentiles_ms(work, count: int, which: tuple[int, int]) -> tuple[float, float]:
    """Of the processor time of calls work(i), all threads of this process together."""
    taken = []
    for i in range(count + 3):
        started = time.process_time()
        work(i)
        taken.append(1e3 * (time.process_time() - started))
    low, high = np.percentile(taken[3:], which)
    return float(low), float(high)


if __name__ == "__main__":
    sys.exit(main())
