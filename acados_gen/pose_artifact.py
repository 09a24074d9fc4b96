"""Name and fingerprint of the tracker's compiled reprojection error, for who builds it and who loads it."""

from pathlib import Path

from companion.kernel import fingerprint, require

NAME = "pose"
SOURCE = Path(__file__).with_name("pose.c")


def pose_fingerprint() -> str:
    """Fingerprint of the library; all vehicles share it, because the camera is an argument."""
    return fingerprint([SOURCE, Path(__file__).with_name("compile.py")])  # which has the compiler's flags


def require_pose() -> Path:
    """The library; raises `companion.kernel.ArtifactMissing` with one line."""
    return require(NAME, pose_fingerprint())
