"""Groups of the phases of a mission (`companion.core.enums.Phase`); `companion.mission.transitions` connects them.

Two phases request nothing: PILOT (the pilot or another station chose a mode) and PX4_HOLD (this stack stopped
streaming and PX4's own failsafe acts). They lead only to WAIT_READY, by a deliberate act of the pilot. There is one
exception: while PX4 follows the setpoints of another sender in offboard, and no person has chosen a mode, Hold is
requested and, if that is refused, Land once. No pilot flies then, and PX4's failsafe does not act while a stream lasts.
"""

from companion.core.enums import Phase

AT_BUNDLE = (Phase.APPROACH, Phase.HOLD)
ON_TRAJECTORY = (Phase.TRANSFER, Phase.TRAJECTORY)  # at the bundle as well, if the trajectory is flown in its frame
WORKING = (Phase.SEARCH, *AT_BUNDLE, *ON_TRAJECTORY, Phase.INSPECT)  # the mission proper
CONTROLLING = (*WORKING, Phase.PAUSE, Phase.RETREAT, Phase.RETURN)  # OFFBOARD, by this stack
BEFORE_CONTROL = (Phase.TAKEOFF, Phase.ENTER_OFFBOARD)  # in the air, PX4 flies
BEFORE_START = (Phase.WAIT_READY, Phase.ARM, Phase.ENTER_OFFBOARD)  # a start may still be refused, or given up
UNDER_WAY = (Phase.ARM, *BEFORE_CONTROL, *CONTROLLING, Phase.LAND)
OBSERVING = (Phase.PX4_HOLD, Phase.PILOT)
ENDED = (Phase.DONE, Phase.FAILED)
