"""The MAVLink ids of the payload process.

It has a component of its own beside that of the fcu process, so that the answers to its commands are not taken for answers to
those of the other.
"""

from pymavlink.dialects.v20 import common

from companion.core.vehicle import Vehicle

STILL_COMPONENT = common.MAV_COMP_ID_CAMERA  # of a local camera, which speaks MAVLink inside the process
_FIRST, _SECOND = common.MAV_COMP_ID_ONBOARD_COMPUTER2, common.MAV_COMP_ID_ONBOARD_COMPUTER3


def payload_component(vehicle: Vehicle) -> int:
    """The component id of the payload process."""
    return int(_SECOND if vehicle.fcu.component_id == _FIRST else _FIRST)
