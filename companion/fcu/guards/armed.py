"""Whether the aircraft is armed, with more than one witness for "disarmed" in flight.

A mission ends when the aircraft is disarmed, so one wrong heartbeat must not decide it: in flight two heartbeats in a
row and PX4's land detector must agree. (PX4 reports "on ground" as soon as it is disarmed, a kill switch in the air
included.) "Armed" needs one heartbeat, and so does another mode: stopping for a pilot who is not there costs a hold by
PX4's failsafe, and continuing against a pilot who is there costs the aircraft.
"""

HEARTBEATS = 2  # in a row, that report "disarmed"
LANDED_REPORTS = 2  # in a row, after which one heartbeat is enough: the ordinary end of a flight


class ArmedState:
    """`armed`, from heartbeats and reports of the land detector."""

    def __init__(self) -> None:
        self.armed = False
        self._disarmed = 0  # heartbeats in a row
        self._landed = 0  # reports in a row

    @property
    def doubtful(self) -> bool:
        """A heartbeat reported "disarmed" and was not accepted yet: another one should be requested."""
        return self.armed and self._disarmed > 0

    def take_landed(self, landed: bool) -> None:
        """Take a report of the land detector."""
        self._landed = self._landed + 1 if landed else 0

    def take_heartbeat(self, armed: bool, landed_known: bool) -> None:
        """Take a heartbeat. landed_known: the land detector has reported lately."""
        self._disarmed = 0 if armed else self._disarmed + 1
        if armed:
            self.armed = True
            return
        stands = landed_known and self._landed >= LANDED_REPORTS
        agreed = self._disarmed >= HEARTBEATS and (self._landed > 0 or not landed_known)
        if stands or agreed:
            self.armed = False
