"""A bundle that stood elsewhere: from when on nothing excuses it any more, and when it is used again.

`companion.estimation.witnesses` compares each observation with the flight controller's motion, and excuses what that motion
may be wrong by. When the flight controller corrects itself by metres, or was not heard for a time, this is metres, and a bundle
that was known to stand elsewhere would be used again. So evidence that lasts is kept: then the bundle must be back where it
stood, in sight all the time, for as many observations as a place needs to be learned.
"""

import numpy as np

from companion.core.arrays import Array

GIVEN_UP_S = 2.0  # of evidence; the mission backs away after as long (`bundle_displaced`)
ESTABLISHED_COUNT, ESTABLISHED_S = 8, 0.4  # observations before a place counts, and before it counts again
FRAME_S = 0.1  # between two observations in a row; what the place may be wrong by after longer is added up
SILENT_S = 0.3  # without a motion of the flight controller: evidence of less than `GIVEN_UP_S` is kept, too
HIDDEN_S = 1.0  # a bundle that was not seen for this long was out of sight: where it stood is not certain any more
CERTAIN_SHARE = 0.5  # of the distance between the two places: the sum of what the place may be wrong by


class GivenUp:
    """Of one bundle. `active`: it is not used, unless it comes back to where it stood."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.active = False
        self._for_good = False  # in this flight: where it stood is not known well enough
        self._since_s: float | None = None  # evidence without a break
        self._back: list[float] = []  # observations in a row where it stood
        self._uncertain_m = 0.0
        self._shift_W = np.zeros(3)

    @property
    def suspected(self) -> bool:
        """There is evidence, of whatever age: an observation that nothing judges is not used."""
        return self.active or self._since_s is not None

    def note_silence(self, lasts_s: float) -> None:
        """The flight controller's motion is not known for this long [s]."""
        if self.suspected and lasts_s > SILENT_S:
            self.active = True
            self._for_good |= lasts_s > HIDDEN_S

    def note_gap(self, lasts_s: float, error_m: float) -> None:
        """Nothing was seen for this long [s]; error_m: what the place may have become wrong by meanwhile."""
        if self.active:
            self._for_good |= lasts_s > HIDDEN_S
            self._uncertain_m += error_m if lasts_s > FRAME_S else 0.0

    def note_shift(self, shift_W: Array) -> None:
        """The place was moved with the bundle that stands elsewhere [m], (3,): that one may have moved, not the flight controller erred."""
        if self.active:
            self._shift_W = self._shift_W + shift_W

    def note(self, stamp_s: float, evidence: bool, displaced: bool, offset_m: float) -> None:
        """An observation. evidence: the last ones show a displaced bundle; displaced, offset_m: this one, and by how much [m]."""
        if self.active:
            uncertain_m = self._uncertain_m + float(np.linalg.norm(self._shift_W))
            self._for_good |= displaced and uncertain_m > CERTAIN_SHARE * offset_m
            self._back = (
                [] if displaced or (self._back and stamp_s - self._back[-1] > FRAME_S) else [*self._back, stamp_s]
            )
            back = len(self._back) >= ESTABLISHED_COUNT and stamp_s - self._back[0] >= ESTABLISHED_S
            if back and not self._for_good:
                self._begin()
        elif not evidence:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = stamp_s
        else:
            self.active = stamp_s - self._since_s >= GIVEN_UP_S
