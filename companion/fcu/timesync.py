"""Companion time minus flight-controller boot time, from TIMESYNC round trips.

A request carries the companion's time ts1; the answer repeats it with the flight controller's time tc1. With
the answer at t2 and equal delays both ways, offset = (ts1 + t2)/2 - tc1 (Cristian's algorithm). The samples run
through a second-order filter (offset and skew) like that of PX4's own `timesync` module: gains fall from
0.05 to 0.003 over a window of 500 samples, samples with a long round trip are gated out, and a persistent jump
is followed. Four things differ. The first samples are averaged, so that the offset is usable after one second. The
round-trip gate follows the observed minimum of a slow serial link. The weight of a sample falls with the excess of its
round trip over that minimum, because the excess is a one-sided delay of unknown side. The offset stays within the
bound that a round trip proves: whatever the delays each way, the true offset lies within half the round trip of the
sample. The filter therefore follows a clock that slips, such as a simulated PX4's on a busy machine (1 % and more). No
crystal does that, and with the small gains alone the offset would lag by a tenth of a second.
"""

import math
from collections import deque

RTT_GATE_S = 0.010  # as PX4
RTT_GATE_FACTOR = 1.5  # times the observed minimum, for links slower than the gate
RTT_WINDOW = 100  # round trips the minimum is taken over; longer than a burst of slow ones
PROOF_MARGIN_S = 0.002  # added to half the round trip: a simulated PX4's clock moves in steps of 4 ms
RTT_EXCESS_S = 0.002  # excess over the minimum that halves the gain
GAIN_INITIAL = 0.05  # as PX4, for offset and skew
GAIN_FINAL = 0.003
GAIN_WINDOW = 500  # accepted samples over which the gains fall
SETTLED_SAMPLES = GAIN_WINDOW // 4
SYNC_SAMPLES = 10  # accepted samples before stamps are valid: one second of the first requests
JUMP_S = 0.100  # as PX4: a deviation no clock drift explains
JUMP_SAMPLES = 4  # after so many in a row the new offset is accepted
BACKWARD_S = 0.1  # flight-controller time that goes back by more may be a reboot
RESTART_ANSWERS = 3  # so many in a row that agree are one; a single answer may be wrong, or forged
SLIP_MAX_S = 0.040  # the offset follows one answer by no more than this, and a second one that agrees up to JUMP_S
FUTURE_S = 0.050  # a message that seems to be made later than this after its arrival is no measure for others
SKEW_MAX = 5e-4  # 500 ppm, ten times a bad crystal
TYPICAL_DELAY_S = 0.003  # one way, over serial at 921600 baud or loopback; used before synchronisation
STAMP_AGE_MAX_S = 0.5  # a mapped stamp further in the past than this indicates a reboot, not a delay


class TimeSync:
    """Filter of the clock offset between companion and flight controller. Times in seconds."""

    def __init__(self) -> None:
        self.resets = -1
        self.restarts = 0  # how often the flight controller's clock went back
        self.rejected = 0  # answers gated out or not ours
        self.slips = 0  # answers that proved the offset wrong
        self.rtt_s = math.nan  # of the newest answer
        self.answered_s = -math.inf  # arrival of the newest answer that was used
        self.reset()

    def reset(self) -> None:
        """Discard all estimates of this clock."""
        self.resets += 1
        self.offset_s = math.nan  # at `_offset_time_s`
        self.skew = 0.0  # d(offset)/dt
        self.samples = 0
        self._offset_time_s = 0.0
        self._jumps = 0
        self._backward = 0  # answers in a row with a clock that went back
        self._backward_offset_s = math.nan  # of the newest of them
        self._slip_s = 0.0  # of the newest answer, when it was too large to be followed at once
        self._rtts: deque[float] = deque(maxlen=RTT_WINDOW)
        self._pending: deque[int] = deque(maxlen=20)
        self._fcu_s = -math.inf

    @property
    def synced(self) -> bool:
        """True when the offset is good enough to stamp messages with."""
        return self.samples >= SYNC_SAMPLES

    @property
    def settled(self) -> bool:
        """True when the gains have fallen to a quarter of the way: requests may come less often."""
        return self.samples >= SETTLED_SAMPLES and not self._backward

    def request(self, now_s: float) -> int:
        """Begin a round trip; returns ts1 [ns] for the TIMESYNC message (tc1 = 0)."""
        ts1_ns = max(1, round(now_s * 1e9))
        self._pending.append(ts1_ns)
        return ts1_ns

    def answer(self, tc1_ns: int, ts1_ns: int, arrival_s: float) -> bool:
        """Take an answer that arrived at `arrival_s`; returns whether it was used."""
        if ts1_ns not in self._pending:  # of another sender, or answered already
            self.rejected += 1
            return False
        self._pending.remove(ts1_ns)
        fcu_s = tc1_ns * 1e-9
        rtt_s = arrival_s - ts1_ns * 1e-9
        if not 0.0 <= rtt_s < 10.0 or self._went_back(fcu_s, arrival_s):
            self.rejected += 1
            return False
        self.rtt_s = rtt_s
        self._rtts.append(rtt_s)
        fastest_s = min(self._rtts)
        sample_s = 0.5 * (ts1_ns * 1e-9 + arrival_s) - fcu_s
        self._follow_slip(sample_s, arrival_s, 0.5 * rtt_s + PROOF_MARGIN_S)
        if rtt_s > max(RTT_GATE_S, RTT_GATE_FACTOR * fastest_s):
            self.rejected += 1
            return False
        used = self._update(sample_s, arrival_s, rtt_s - fastest_s)
        if used:
            self.answered_s, self._fcu_s = arrival_s, fcu_s
        return used

    def _went_back(self, fcu_s: float, arrival_s: float) -> bool:
        """Whether an answer contradicts the order of the clock; the last of several that agree is a restart."""
        if fcu_s >= self._fcu_s - BACKWARD_S:
            self._backward = 0
            return False
        offset_s = arrival_s - fcu_s
        agrees = abs(offset_s - self._backward_offset_s) <= JUMP_S
        self._backward = self._backward + 1 if self._backward and agrees else 1
        self._backward_offset_s = offset_s
        if self._backward < RESTART_ANSWERS:
            return True
        self.restarts += 1
        self.reset()
        return False

    def _follow_slip(self, sample_s: float, now_s: float, bound_s: float) -> None:
        """Move an offset that lies outside sample ± bound onto that bound; a jump has its own rule."""
        error_s = sample_s - self.offset_at(now_s)
        confirmed = abs(error_s) <= SLIP_MAX_S or abs(error_s - self._slip_s) <= SLIP_MAX_S
        self._slip_s = 0.0 if abs(error_s) <= SLIP_MAX_S else error_s
        if self.synced and bound_s < abs(error_s) <= JUMP_S and confirmed:
            self.slips += 1
            self.offset_s = sample_s - math.copysign(bound_s, error_s)
            self._offset_time_s = now_s
            self.samples = min(self.samples, SETTLED_SAMPLES // 2)  # request often again, with larger gains

    def _update(self, offset_s: float, now_s: float, excess_s: float) -> bool:
        if self.samples == 0:
            self.offset_s, self._offset_time_s, self.samples = offset_s, now_s, 1
            return True
        dt_s = max(0.0, now_s - self._offset_time_s)
        predicted_s = self.offset_s + self.skew * dt_s
        error_s = offset_s - predicted_s
        if abs(error_s) > JUMP_S:
            self._jumps += 1
            if self._jumps < JUMP_SAMPLES:
                self.rejected += 1
                self.samples = min(self.samples, SETTLED_SAMPLES // 2)  # request often: all stamps may be wrong
                return False
            # So many in a row are not outliers: continue with the new offset, and request often. A start without an
            # offset would leave the stack without valid stamps for a second in flight.
            self.resets += 1
            self._jumps, self.skew = 0, 0.0
            self.offset_s, self._offset_time_s = offset_s, now_s
            return True
        self._jumps = 0
        weight = 1.0 / (1.0 + (excess_s / RTT_EXCESS_S) ** 2)
        gain = self._gain()
        self.offset_s = predicted_s + weight * max(gain, 1.0 / (self.samples + 1)) * error_s
        if self.synced and dt_s > 0:
            # critically damped pair for small gains: skew gain = gain² / 4 per sample interval
            self.skew += weight * 0.25 * gain * gain * error_s / dt_s
            self.skew = min(SKEW_MAX, max(-SKEW_MAX, self.skew))
        self._offset_time_s = now_s
        self.samples += 1
        return True

    def _gain(self) -> float:
        """Falls smoothly from the initial to the final gain as samples come in."""
        progress = min(1.0, self.samples / GAIN_WINDOW)
        smooth = progress * progress * (3.0 - 2.0 * progress)
        return GAIN_INITIAL + smooth * (GAIN_FINAL - GAIN_INITIAL)

    def offset_at(self, now_s: float) -> float:
        """Companion time minus flight-controller boot time at `now_s` [s]; NaN before the first answer."""
        return self.offset_s + self.skew * max(0.0, now_s - self._offset_time_s)

    def is_future(self, fcu_s: float, arrival_s: float) -> bool:
        """True when boot time `fcu_s` lies behind the arrival by the synchronised clock."""
        return self.synced and fcu_s + self.offset_at(arrival_s) > arrival_s + FUTURE_S

    def stamp(self, fcu_s: float, arrival_s: float) -> tuple[float, bool]:
        """Companion time [s] of flight-controller boot time `fcu_s`, and whether it is valid.

        Before synchronisation, and when the two clocks clearly disagree (a reboot not yet detected), the stamp is
        the arrival less a typical delay and the answer False. A stamp is never after the arrival.
        """
        if self.synced:
            stamp_s = fcu_s + self.offset_at(arrival_s)
            if arrival_s - STAMP_AGE_MAX_S <= stamp_s <= arrival_s + STAMP_AGE_MAX_S:
                return min(stamp_s, arrival_s), True
        return arrival_s - TYPICAL_DELAY_S, False
