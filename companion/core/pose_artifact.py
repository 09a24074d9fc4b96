"""Name and fingerprint of the tracker's compiled corners and reprojection error, for generator and tracker."""

from pathlib import Path

from companion.core.kernel import GENERATORS, fingerprint, require

NAME = "pose"
SOURCES = (GENERATORS / "edges.c", GENERATORS / "pose.c")


def pose_fingerprint() -> str:
    """Fingerprint of the library; all vehicles share it, because the camera is an argument."""
    return fingerprint([*SOURCES, GENERATORS / "compile.py"])  # compile.py holds the compiler's flags


def require_pose() -> Path:
    """The library; raises `companion.core.kernel.ArtifactMissing` with one line."""
    return require(NAME, pose_fingerprint())
