"""How far the inspection of one flight is, and where the frames of its items are now."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from companion.core.bundle_poses import bundle_pose
from companion.core.enums import CaptureOutcome
from companion.core.messages import WORLD, State
from companion.core.trajectory_messages import Vec3
from companion.mission.captures import Captures
from companion.mission.inspection_route import UPRIGHT, Pose, Route

NAMED = 3  # missing photographs in the cause; the log has all


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
        the way from take-off is free, as the way home from it is."""
        stop, stops = 0, self.route.stops
        while stop < len(stops) and self.captures.has(stops[stop].photograph):
            stop += 1
        while 0 < stop < len(stops) and not stops[stop].clear_home:
            stop -= 1
        self.captures.give_another_chance()
        return Inspecting(self.route, self.captures, stop=stop)

    def retraced(self) -> list[int]:
        """Stops to fly back over, from which the way home is free; empty where it is from here."""
        reached = self.stop if self.arrived_s is not None else self.stop - 1
        reached = min(reached, len(self.route.stops) - 1)
        found: list[int] = []
        while reached >= 0 and not self.route.stops[reached].clear_home:
            found.append(reached)
            reached -= 1
        return [*found, reached] if found and reached >= 0 else found

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


def _sight_s(state: State, name: str) -> float:
    """When a bundle was last observed [s]."""
    if name == state.bundle:
        return state.stamp_s - state.marker_age_s
    ages = [other.age_s for other in state.bundles if other.name == name]
    return state.stamp_s - ages[0] if ages else float("-inf")
