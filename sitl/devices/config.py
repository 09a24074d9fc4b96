"""The section ``[devices]`` of a scenario: each device has a table of its own, and none is needed."""

from companion.core.config import Section
from sitl.devices.camera_imu import CameraImuConfig
from sitl.devices.depth_camera import DepthCameraConfig
from sitl.devices.range_finder import RangeFinderConfig
from sitl.devices.stereo import StereoConfig


class DevicesConfig(Section, frozen=True):
    """The devices that are connected to the companion."""

    stereo: StereoConfig | None = None
    depth: DepthCameraConfig | None = None
    imu: CameraImuConfig | None = None
    range_finder: RangeFinderConfig | None = None

    @property
    def draws(self) -> bool:
        """Whether a device needs pictures."""
        return self.stereo is not None or self.depth is not None
