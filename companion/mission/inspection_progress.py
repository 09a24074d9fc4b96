"""How far the inspection of one flight is, and where the frames of its items are now."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from companion.core.bundle_poses import bundle_pose
from companion.core.enums import CaptureOutcome
from companion.core.messages import WORLD, State
from companion.core.trajectory_messages import Vec3
from companion.mission.captures import Captures
from companion.mission.inspection_entry import entry_of
from companion.mission.inspection_route import UPRIGHT, Corner, Pose, Route, Stop, to_frame, to_world
from companion.planning.stations import HELD_M

NAMED = 3  # missing photographs in the cause; the log has all


Waypoint = tuple[Vec3, float]  # in the world, and the heading there [rad]


class Reached(NamedTuple):
    """A stop that this flight has been at."""

    stop: int
    place: Corner  # where the aircraft was, in the frame that guided it
    free: bool  # the way home from it, as far as it is known


class Sight(NamedTuple):
    """Of the bundles of an inspection: any of them counts as seen, the one that guides is that of the present move."""

    age_s: float  # since one was observed, at the time of the state
    std_m: float  # of the position relative to the one that guides
    at_bundle: bool  # a bundle guides


@dataclass
class Inspecting:
    """The state of an inspection in one flight."""

    route: Route
    captures: Captures = field(default_factory=Captures)
    begun: bool = False
    stop: int = 0  # index in the route, of the station that is flown to or held
    first: int = 0  # the stop at which the work of this flight begins; those before it lead to it
    entry: int | None = None  # the stop with which it begins, as decided when a pilot handed over; None: the first one
    begins_at: Waypoint | None = None  # where the aircraft was when it began
    reached: list[Reached] = field(default_factory=list)  # one after the other: the way that was flown
    arrived_s: float | None = None
    frame: str = WORLD  # of the present move
    seen_since_s: dict[str, float] = field(default_factory=dict)
    confirmed: set[str] = field(default_factory=set)  # bundles that were seen without a break for long enough
    problem: str = ""  # why the inspection ends here

    @property
    def own_frame(self) -> bool:
        """The present move is in the frame of the stop's item."""
        return self.complete or self.frame == self.route.stops[self.stop].frame

    @property
    def complete(self) -> bool:
        """The last stop of this flight is behind."""
        return self.stop >= len(self.route.stops)

    def sight(self, state: State) -> "Sight":
        """How the position relative to the structure is known, in the inspection."""
        newest_s = max(_sight_s(state, name) for name in (state.bundle, *(other.name for other in state.bundles)))
        found = [other.relative_std_m for other in state.bundles if other.name == self.frame]
        std_m = found[0] if found and not math.isnan(found[0]) else state.relative_std_m
        return Sight(state.stamp_s - newest_s, std_m, self.frame != WORLD)

    def note_bundles(self, state: State | None, seen_s: float, confirm_s: float, now_s: float) -> None:
        """Follow which bundles are in sight; called in every step in the air. seen_s: age up to which one counts as seen."""
        for name in self.route.frames - self.confirmed:
            if state is None or _sight_s(state, name) < now_s - seen_s:
                self.seen_since_s.pop(name, None)
            elif now_s - self.seen_since_s.setdefault(name, now_s) >= confirm_s:
                self.confirmed.add(name)

    def poses(self, state: State | None, home_W: Vec3 | None) -> dict[str, Pose]:
        """Of all frames: by the filter where a bundle was confirmed, else by the plan from the nearest one that was."""
        if state is None or home_W is None:
            return {}
        found = {WORLD: Pose(home_W, UPRIGHT)}
        for name in self.confirmed:
            if (pose := bundle_pose(state, name)) is not None:
                found[name] = Pose(*pose)
        known = set(found) - {WORLD} or {WORLD}
        for name in self.route.frames - known:
            by = self.route.nearest_to(name, known)
            found[name] = self.route.predicted(name, by, found[by])
        return found

    def guide(self, frame: str) -> str:
        """The frame in which a station of `frame` is flown to: its own, or that of the nearest bundle that was confirmed."""
        if frame == WORLD or frame in self.confirmed or not self.confirmed:
            return frame if frame in self.confirmed else WORLD
        return self.route.nearest_to(frame, self.confirmed)

    def again(self) -> "Inspecting":
        """Of the next flight of the same process: from the first photograph that is missing, or from the stop before it to which
        the way from take-off is free; over the stops that lead there."""
        first, stops = 0, self.route.stops
        while first < len(stops) and self.captures.has(stops[first].photograph):
            first += 1
        while 0 < first < len(stops) and not stops[first].clear_out:
            first -= 1
        self.captures.give_another_chance()
        begins = 0 if self.route.lead_in and first < len(stops) else first
        return Inspecting(self.route, self.captures, stop=begins, first=first)

    def decide_entry(self, way_W: Sequence[Vec3], poses: dict[str, Pose]) -> str:
        """Decide with which stop this flight begins where a pilot hands it over; why it cannot be decided, "" when it is.

        way_W: that was flown since the take-off, to here. poses: of all frames.
        """
        stops, lead_in = self.route.stops, self.route.lead_in
        work, self.entry = max(self.first, lead_in), None
        if self.stop >= lead_in or work >= len(stops):
            return ""
        leads = stops[self.stop : lead_in]
        *places, station = (self._place(stop, poses) for stop in (*leads, stops[work]))
        before = self._place(stops[work - 1], poses) if work > lead_in else None
        entry = entry_of(places, station, way_W, before)
        if entry is None:
            away_m, item = math.dist(way_W[-1], station), stops[work].item
            return (
                f"{away_m:.1f} m from the first station of '{item}', and not flown there over '{leads[-1].item}': "
                f"fly over it, or hand over at '{leads[0].item}'"
            )
        self.entry = work if entry == len(leads) else self.stop + entry
        return ""

    @staticmethod
    def _place(stop: Stop, poses: dict[str, Pose]) -> Vec3:
        return to_world(stop.p, stop.yaw_rad, stop.frame, poses[stop.frame])[0]

    def begin(self, here: Waypoint | None) -> None:
        """The work of this flight begins here."""
        self.begun, self.begins_at = True, here
        if self.entry is not None:
            self.stop = self.entry

    def advance(self) -> None:
        """To the next stop."""
        self.stop += 1
        if self.stop >= self.route.lead_in:
            self.stop = max(self.stop, self.first)

    def is_passed(self) -> bool:
        """At the present stop nothing is to be done: it leads to the first one, or its photograph was taken before a hand-over."""
        stop = self.route.stops[self.stop]
        return self.stop < self.first or (stop.photograph is not None and self.captures.has(stop.photograph))

    # --- the way home ---

    def note_reached(self, here: Waypoint, first_home_W: Vec3, poses: dict[str, Pose]) -> None:
        """The aircraft is at the present stop. first_home_W: first place of its way home behind the inspection."""
        stop = self.route.stops[self.stop]
        leads = self._leads(self.stop, poses)
        free = stop.clear_home and self._is_free(here[0], leads, first_home_W, poses)
        if self.reached and self.reached[-1].stop == self.stop:
            self.reached.pop()  # the same one, in the frame of another bundle before
        place = Corner(self.frame, *to_frame(*here, self.frame, poses[self.frame]))
        self.reached.append(Reached(self.stop, place, free))

    def return_path(self, here_W: Vec3, first_home_W: Vec3, poses: dict[str, Pose]) -> list[Waypoint]:
        """Places from here to the way home behind the inspection, of which first_home_W is the first: over the stops that lead home.

        Where the straight way there is not free, back over the stops that this flight has reached up to one from which it is;
        if there is none, to where the inspection began. What was not flown in this flight is never flown back over.
        """
        leads = self._leads(self.reached[-1].stop, poses) if self.reached else []
        if self._may_be_free() and self._is_free(here_W, leads, first_home_W, poses):
            return leads
        found: list[Waypoint] = []
        for reached in reversed(self.reached):
            found += _all_placed([reached.place], poses)
            if reached.free:
                return [*found, *self._leads(reached.stop, poses)]
        return found if self.begins_at is None else [*found, self.begins_at]

    def _leads(self, stop: int, poses: dict[str, Pose]) -> list[Waypoint]:
        """Over which the way home leads from a stop: as planned, or over those of the way there with which this flight began.

        What is before them lies beyond the place of the hand-over.
        """
        stops = self.route.stops
        if not self.entry:
            return _all_placed(stops[stop].home, poses)
        flown = stops[self.entry : min(stop + 1, self.route.lead_in)]
        return _all_placed([Corner(other.frame, other.p, other.yaw_rad) for other in reversed(flown)], poses)

    def _may_be_free(self) -> bool:
        """By the stop at which the aircraft is, or by one of the two between which it flies."""
        if not self.reached or self.reached[-1].free:
            return True
        return self.arrived_s is None and not self.complete and self.route.stops[self.stop].clear_home

    def _is_free(self, here_W: Vec3, leads: list[Waypoint], first_home_W: Vec3, poses: dict[str, Pose]) -> bool:
        """The ways from a place over those that lead home to the first place behind them."""
        ways = pairwise([here_W, *(p for p, _ in leads), first_home_W])
        return all(self.route.obstacle(*way, poses, HELD_M) is None for way in ways)

    @property
    def shortfall(self) -> str:
        """Which photographs of the plan this flight and those before it did not take; "" none."""
        route, captures = self.route, self.captures
        taken = captures.taken + route.before
        if taken >= route.wanted:
            return ""
        missing = [n for n, o in captures.outcomes.items() if o in (CaptureOutcome.REFUSED, CaptureOutcome.LOST)]
        named = ", ".join(f"{n}: {captures.reasons.get(n) or captures.outcomes[n]}" for n in missing[:NAMED])
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        detail = f", missing {named}{more}" if missing else ""
        later = f", {route.later} left for the next battery" if route.later and self.complete else ""
        return f"{taken} of {route.wanted} photographs taken{detail}{later}; go on with --resume"


def inspection_counts(progress: Inspecting) -> dict[str, int]:
    """Fields of `MissionStatus`."""
    return {
        "station": min(progress.stop + (progress.arrived_s is not None), len(progress.route.stops)),
        "stations": len(progress.route.stops),
        "photographs_wanted": progress.route.wanted,
        "photographs_before": progress.route.before,
        "photographs_blurred": progress.captures.count(CaptureOutcome.BLURRED),
        "photographs_missing": progress.captures.missing,
    }


def _all_placed(corners: Sequence[Corner], poses: dict[str, Pose]) -> list[Waypoint]:
    """In the world, of those whose frame is known."""
    return [to_world(c.p, c.yaw_rad, c.frame, poses[c.frame]) for c in corners if c.frame in poses]


def _sight_s(state: State, name: str) -> float:
    """When a bundle was last observed [s]."""
    if name == state.bundle:
        return state.stamp_s - state.marker_age_s
    ages = [other.age_s for other in state.bundles if other.name == name]
    return state.stamp_s - ages[0] if ages else float("-inf")
