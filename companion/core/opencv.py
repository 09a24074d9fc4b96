"""What OpenCV takes from the environment of a process."""

import os

# OpenCV takes its longest wait for an image of a V4L2 device [s] from this variable at its first wait: 10 s by default.
WAIT_VARIABLE, WAIT_S = "OPENCV_VIDEOIO_V4L_SELECT_TIMEOUT", "2"


def limit_wait() -> None:
    """Shorten that wait; to be called before a device is opened. A value of the user's stays."""
    os.environ.setdefault(WAIT_VARIABLE, WAIT_S)
