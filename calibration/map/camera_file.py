"""What the pictures of a flight say against the camera file, with the values to enter there."""

from pathlib import Path

import numpy as np

from calibration.map.adjust import Adjusted
from calibration.map.pictures import K1_STD, LEVER_STD_M, PRINCIPAL_POINT_STD, WIDTH_PX, payload_std
from calibration.map.rotations import exp
from calibration.map.unknowns import PAYLOAD_LENS, PAYLOAD_LEVER, PAYLOAD_MOUNT, PER_PAYLOAD
from companion.core.arrays import Array
from companion.core.frames import quat_from_matrix, quat_normalized, rotation_matrix
from companion.planning.camera import PayloadCamera

FAR = 3.0  # standard deviations of the camera file, from which an error is named
FOCAL, CENTRE, K1 = PAYLOAD_LENS.start, slice(PAYLOAD_LENS.start + 1, PAYLOAD_LENS.start + 3), PAYLOAD_LENS.start + 3


def contradictions(adjusted: Adjusted, camera: PayloadCamera, path: Path) -> list[str]:
    """A line for each error of the camera file beyond `FAR` of its standard deviations; path: of the log that holds the file."""
    placed, u = adjusted.photographs, adjusted.unknowns
    if placed is None:
        return []
    std = payload_std(placed.photographs)
    first = u.first_of_payload - u.first_of_flight
    mine = slice(first, first + PER_PAYLOAD)
    found, size = freed(u.payload, std, adjusted.solver.covariance[mine, mine]), np.abs(u.payload) / std

    def far(part: slice) -> str:
        """How far, where it is far."""
        worst = float(size[part].max())
        return f"{worst:.1f} of its standard deviations" if worst > FAR else ""

    notes = []
    if how := far(slice(FOCAL, FOCAL + 1)):
        f = 1 + found[FOCAL]
        value = f"focal_length_mm = {camera.focal_length_mm * f:.2f}" if camera.focal_length_mm is not None else ""
        value = value or "fx_px = {:.1f} and fy_px = {:.1f}".format(*(f * px for px in camera.focal_px))
        notes.append(f"focal length {100 * found[FOCAL]:+.1f} %, {how} (1 %): enter {value}")
    if how := far(CENTRE):
        x, y = found[CENTRE]
        notes.append(
            f"principal point ({x:.0f}, {y:.0f}) px of {WIDTH_PX:.0f} from the middle, {how} ({PRINCIPAL_POINT_STD * WIDTH_PX:.0f} px): the "
            "camera file has no key for it; pictures must not be cut or shifted"
        )
    if how := far(slice(K1, K1 + 1)):
        notes.append(
            f"radial distortion k1 = {found[K1]:.3f}, {how} ({K1_STD:g}): the camera file has no key for it; let the camera correct its lens"
        )
    if how := far(PAYLOAD_LEVER):
        away = found[PAYLOAD_LEVER]
        value = ", ".join(f"{x:.3f}" for x in camera.p_BC + away)
        notes.append(f"place {100 * _norm(away):.1f} cm, {how} ({100 * LEVER_STD_M:g} cm): enter p_BC = [{value}]")
    if how := far(PAYLOAD_MOUNT):
        turn = found[PAYLOAD_MOUNT]
        q_BC = quat_from_matrix(rotation_matrix(quat_normalized(camera.q_BC)) @ exp(turn))
        value = ", ".join(f"{x:.6f}" for x in q_BC)
        notes.append(f"mount {np.degrees(_norm(turn)):.2f}°, {how} (control.mount_std_rad): enter q_BC = [{value}]")
    return [f"{path}: the pictures contradict the camera file in the log: {note}" for note in notes]


def freed(payload: Array, std: Array, covariance: Array) -> Array:
    """The unknowns (10,) without what the camera file says of those that are far from it; std (10,): of the file, covariance (10, 10).

    The file draws them to itself: a lens that is 6 % longer than a file that is known to 1 % is found 5 % longer.
    """
    found = payload.copy()
    far = np.flatnonzero(np.abs(payload) > FAR * std)
    information = np.linalg.inv(covariance[np.ix_(far, far)])
    alone = information - np.diag(std[far] ** -2.0)
    # What is known from the file alone stays as it is found.
    if len(far) and np.linalg.eigvalsh(alone)[0] > 0.1 * np.linalg.eigvalsh(information)[0]:
        found[far] = np.linalg.solve(alone, information @ payload[far])
    return found


def _norm(vector: Array) -> float:
    return float(np.linalg.norm(vector))
