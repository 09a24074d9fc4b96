"""The closed sets of words that messages and tables use; a word that is not in its set is an error at type check.

All are `StrEnum`: a member is its own text on the wire, in a log and in a message to a person.
"""

from enum import StrEnum
from typing import Literal


class ProcessName(StrEnum):
    """The processes of the table in `companion.runtime.processes`, and the simulator."""

    CAMERA = "camera"
    TRACKER = "tracker"
    ESTIMATOR = "estimator"
    CONTROLLER = "controller"
    FCU = "fcu"
    MISSION = "mission"
    PAYLOAD = "payload"  # present in an inspection with photographs only
    RECORDER = "recorder"
    SIMULATOR = "simulator"
    VIEW = "view"  # watches and asks; never in the loop


class FcuMode(StrEnum):
    """PX4's flight modes by the names of its commander."""

    MANUAL = "MANUAL"
    ALTCTL = "ALTCTL"
    POSCTL = "POSCTL"
    POSCTL_ORBIT = "POSCTL_ORBIT"
    POSCTL_SLOW = "POSCTL_SLOW"
    ACRO = "ACRO"
    OFFBOARD = "OFFBOARD"
    STABILIZED = "STABILIZED"
    RATTITUDE = "RATTITUDE"
    TERMINATION = "TERMINATION"
    AUTO_READY = "AUTO_READY"
    AUTO_TAKEOFF = "AUTO_TAKEOFF"
    AUTO_LOITER = "AUTO_LOITER"
    AUTO_MISSION = "AUTO_MISSION"
    AUTO_RTL = "AUTO_RTL"
    AUTO_LAND = "AUTO_LAND"
    AUTO_FOLLOW = "AUTO_FOLLOW"
    AUTO_PRECLAND = "AUTO_PRECLAND"
    AUTO_VTOL_TAKEOFF = "AUTO_VTOL_TAKEOFF"
    UNKNOWN = "UNKNOWN"  # none received yet, or a number that this version of the stack does not know


class FcuSystem(StrEnum):
    """Systems whose health the flight controller reports (SYS_STATUS)."""

    GYRO = "gyro"
    ACCELEROMETER = "accelerometer"
    COMPASS = "compass"
    BAROMETER = "barometer"
    GNSS = "GNSS"
    ATTITUDE = "attitude estimate"
    MOTORS = "motors"
    BATTERY = "battery"


class CommandAction(StrEnum):
    """What the mission may request from the flight controller."""

    ARM = "arm"
    DISARM = "disarm"
    TAKEOFF = "takeoff"
    OFFBOARD = "offboard"
    HOLD = "hold"
    LAND = "land"
    RETURN = "return"
    WITHDRAW = "withdraw"  # nothing leaves: what begins a flight and was not answered is not requested again
    TEXT = "text"  # a STATUSTEXT to the ground station


BEGINNING = (CommandAction.ARM, CommandAction.TAKEOFF, CommandAction.OFFBOARD)  # a flight, or its control


class OperatorAction(StrEnum):
    """What a person at a view may ask the mission for; the values are the words on the buttons."""

    START = "start"
    HOLD = "hold here"
    GO_ON = "go on"
    RETURN = "return"
    LAND = "land"
    STOP_STREAMING = "stop streaming"


class Sensor(StrEnum):
    """The measurements that the filter knows."""

    POSITION = "position"
    VELOCITY = "velocity"
    ATTITUDE = "attitude"
    MARKER = "marker"  # pose of a bundle
    CORNERS = "corners"  # corners of one marker
    SPECIFIC_FORCE = "specific_force"  # accelerometer: thrust, drag and disturbance
    PLUMB = "plumb"  # an axis of a bundle that a spirit level has made vertical; once for each bundle


class ImuFault(StrEnum):
    """Why the flight controller's inertial measurements are not used; names in `EstimatorStatus.rejected`, too."""

    DIRECTION = "imu_direction"  # the force does not point up on the ground, or along the thrust in flight
    TURNS = "imu_turns"  # angular rates against the attitude
    FORCES = "imu_forces"  # specific force against the velocity
    FROZEN = "imu_frozen"  # an axis keeps its value while others change
    SLOW = "imu_slow"
    STAMPS = "imu_stamps"  # of the time
    STOPPED = "imu_stopped"


class FilterOffset(StrEnum):
    """Constant or slow states of the filter that have bounds; names in `EstimatorStatus.rejected`, too."""

    GYRO_BIAS = "gyro_bias_runaway"
    ACCEL_BIAS = "accel_bias_runaway"
    CAMERA_DELAY = "camera_delay_runaway"
    THRUST_SCALE = "thrust_scale_runaway"
    MOUNT_OFFSET = "mount_offset_runaway"


class ControlSource(StrEnum):
    """Who computes the setpoint."""

    NMPC = "nmpc"
    PID = "pid"
    IDLE = "idle"  # nothing may be sent


class SearchArea(StrEnum):
    """The part of an image that the detector searched."""

    FULL = "full"
    ROI = "roi"


class Phase(StrEnum):
    """The phases of a mission; `companion.mission.transitions` has the transitions between them."""

    WAIT_READY = "WAIT_READY"  # on the ground (or flown by the pilot, start = "rc_switch"): start checks
    ARM = "ARM"
    TAKEOFF = "TAKEOFF"  # flown by PX4
    ENTER_OFFBOARD = "ENTER_OFFBOARD"  # references stream, PX4 still flies
    SEARCH = "SEARCH"
    APPROACH = "APPROACH"
    HOLD = "HOLD"
    TRANSFER = "TRANSFER"  # to the first point of the trajectory
    TRAJECTORY = "TRAJECTORY"
    INSPECT = "INSPECT"  # from station to station of an inspection, with its photographs
    PAUSE = "PAUSE"  # a safety monitor demands a hold; the mission goes on when it clears
    RETREAT = "RETREAT"  # back away from the structure
    RETURN = "RETURN"
    LAND = "LAND"  # flown by PX4
    DONE = "DONE"
    PX4_HOLD = "PX4_HOLD"  # this stack stopped streaming, PX4's own failsafe acts
    PILOT = "PILOT"  # the pilot or another station chose a mode
    FAILED = "FAILED"  # ended on the ground


class CaptureOutcome(StrEnum):
    """How the request of a photograph with the payload camera ended."""

    TAKEN = "taken"
    BLURRED = "blurred"  # taken although the aircraft moved: it did not become still in time
    REFUSED = "refused"  # by the camera or by this stack: no photograph was taken
    LOST = "lost"  # no answer in time; a late answer makes another `Capture` with the same id and attempt


class ExposureClock(StrEnum):
    """How the time of an exposure is known, from good to poor."""

    SYNCHRONISED = "synchronised"  # the camera's or flight controller's clock by TIMESYNC
    UTC = "utc"  # the camera's UTC against this computer's
    ARRIVAL = "arrival"  # the command's time and the camera file's delay
    NONE = ""


class SafetyAction(StrEnum):
    """The actions of the safety table, from mild to strong."""

    NONE = ""  # of a monitor that has cleared
    WARN = "warn"  # report to the ground station, go on
    HOLD = "hold"  # stay at the present position
    RETREAT = "retreat"  # back away from the structure
    RETURN = "return"  # fly home and land
    LAND = "land"  # PX4 lands on the spot
    STOP_STREAMING = "stop streaming"  # no setpoints; PX4's own failsafe acts
    RELINQUISH = "relinquish"  # another station is in charge: no setpoints, no requests


TopicName = Literal[
    "image",
    "stereo",
    "depth",
    "camera_imu",
    "range",
    "markers",
    "fcu_attitude",
    "fcu_position",
    "fcu_imu",
    "fcu_status",
    "fcu_info",
    "fcu_text",
    "fcu_command",
    "fcu_command_ack",
    "sent_setpoint",
    "link_rx",
    "link_tx",
    "state",
    "estimator",
    "reference",
    "setpoint",
    "control",
    "mission_status",
    "safety",
    "photo_request",
    "photo",
    "capture_request",
    "capture",
    "payload",
    "camera_rx",
    "camera_tx",
    "host",
    "health",
    "truth",
    "contact",
    "capture_truth",
    "operator_request",
]
