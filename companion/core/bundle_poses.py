"""The pose of a bundle in a state: the mission's, or another one of the filter's map."""

from companion.core.messages import State
from companion.core.trajectory_messages import Quat, Vec3


def bundle_pose(state: State, name: str) -> tuple[Vec3, Quat] | None:
    """(p_WM, q_WM) of a bundle; None while the state does not contain it."""
    if name and name == state.bundle:
        return state.p_WM, state.q_WM
    return next(((other.p_WM, other.q_WM) for other in state.bundles if other.name == name), None)
