"""A small world for the mission node: a vehicle that follows references perfectly and answers commands.

Kinematic, no dynamics: the tests are about the mission's decisions. Scripts change `World`'s public fields or the
messages through `edit` while time runs.
"""

import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from companion.core.config import load
from companion.core.enums import CaptureOutcome, FcuMode, Phase
from companion.core.frames import facing_yaw, quat_from_matrix, quat_from_rpy, wrap_angle
from companion.core.messages import (
    WORLD,
    Capture,
    CaptureRequest,
    ControlStatus,
    EstimatorStatus,
    FcuAttitude,
    FcuCommand,
    FcuCommandAck,
    FcuPosition,
    FcuStatus,
    Health,
    HostStatus,
    ImuReport,
    Innovation,
    MapBundle,
    Markers,
    Message,
    MissionStatus,
    PayloadStatus,
    Photo,
    PhotoRequest,
    Reference,
    SafetyEvent,
    SentSetpoint,
    State,
)
from companion.core.trajectories import duration_s, sample
from companion.core.vehicle import Vehicle
from companion.mission import reference_geometry as geometry
from companion.mission.curves import Curve
from companion.mission.mission_node import MissionNode
from companion.mission.plan import load_plan, site_of

REPOSITORY = Path(__file__).parents[2]
STEP_S = 0.05
CLIMB_M_S = 1.0
PIER_Q_WM = tuple(quat_from_matrix([[0, 0, -1], [-1, 0, 0], [0, 1, 0]]))  # faces west, x of the face looks south
OFF_US, ON_US = 1100, 1900
PROCESSES = ("recorder", "tracker", "estimator", "controller", "fcu")


def vehicle() -> Vehicle:
    return load(REPOSITORY / "config/vehicles/f550.toml", Vehicle)


def bridge_plan(**changes):
    """The example mission with a short hold, so that tests are quick; `changes` replace whole tables."""
    plan = load_plan(REPOSITORY / "config/missions/bridge_hover.toml")
    quick = {"hold": msgspec.structs.replace(plan.hold, duration_s=10.0)}
    quick["photographs"] = msgspec.structs.replace(plan.photographs, at_s=[1.0, 3.0, 5.0, 8.0])
    return msgspec.structs.replace(plan, **{**quick, **changes})


def switch_plan():
    """The same mission, started by the pilot's switch."""
    switch = load_plan(REPOSITORY / "config/missions/hover_marker.toml").rc_switch
    return bridge_plan(start="rc_switch", rc_switch=switch)


FAR = (100.0, 0.0, 4.0)  # a bundle that is never seen


def line_plan(**changes):
    """No bundle: take off, fly a line back and forth, return."""
    table = {
        "kind": "line", "frame": "world", "start_m": [1.0, 0.0, 4.0], "end_m": [4.0, 0.0, 4.0], "yaw_rad": 0.2,
        "speed_m_s": 1.0, "acceleration_m_s2": 1.0, "stop_s": 1.0, "laps": 1,
    }  # fmt: skip
    without = dict.fromkeys(("marker_file", "bundle", "search", "standoff", "hold", "photographs"))
    return bridge_plan(**(without | {"trajectory": msgspec.convert(table, Curve)} | changes))


def face_plan(**changes):
    """The hold at the pier, then a scan of its face."""
    table = {
        "kind": "raster", "frame": "pier", "centre_m": [0.0, 0.0, 2.5], "width_m": 2.0, "height_m": 1.0,
        "spacing_m": 0.5, "yaw_rad": 0.0, "speed_m_s": 1.0, "acceleration_m_s2": 1.0, "stop_s": 0.5,
    }  # fmt: skip
    return bridge_plan(**({"trajectory": msgspec.convert(table, Curve)} | changes))


def inspection_plan(**changes):
    """Two piers and the underside of the deck between them, in few photographs and fast; `changes` of the table [inspection]."""
    plan = load_plan(REPOSITORY / "config/missions/two_piers_inspection.toml")
    few = [
        msgspec.structs.replace(item, overlap_along=along)
        for item, along in zip(plan.inspection.item, (0.5, 0.35, 0.5), strict=True)
    ]
    quick = {"settle_s": 0.2, "speed_m_s": 3.0, "acceleration_m_s2": 3.0, "item": few}
    inspection = msgspec.structs.replace(plan.inspection, **{**quick, **changes})
    return msgspec.structs.replace(plan, start="auto", rc_switch=None, inspection=inspection)


def answered(request: CaptureRequest, outcome: str, attempt: int = 1, reason: str = "") -> Capture:
    """An answer of the payload process."""
    nowhere = (math.nan,) * 3
    return Capture(
        stamp_s=0.0, id=request.id, item=request.item, row=request.row, column=request.column, attempt=attempt,
        outcome=CaptureOutcome(outcome), reason=reason, image_index=request.id, file="", blur_px=0.2, gsd_m=8e-4,
        p_WC=nowhere, q_WC=(1.0, 0.0, 0.0, 0.0), bundle="", p_MC=nowhere, q_MC=(1.0, 0.0, 0.0, 0.0),
        position_std_m=0.02, attitude_std_rad=0.003,
    )  # fmt: skip


def taken(request: CaptureRequest, attempt: int) -> Capture | None:
    """A camera that takes every photograph at once."""
    return answered(request, "taken", attempt)


class World:
    """Time, vehicle, autopilot, controller, estimator and camera around one `MissionNode`."""

    def __init__(self, plan=None, home=(2.0, -1.0, 0.3), bundle_p_home=(12.0, 0.0, 4.0), **node_options) -> None:
        self.plan = plan or bridge_plan()
        self.vehicle = vehicle()
        self.node = MissionNode(self.vehicle, self.plan, site_of(self.plan), **node_options)
        self.now_s = 100.0
        self.home = home
        self.p, self.yaw, self.v = tuple(home), 0.5, (0.0, 0.0, 0.0)
        self.p_WM = tuple(a + b for a, b in zip(home, bundle_p_home, strict=True))
        self.q_WM = PIER_Q_WM
        self.mode, self.armed, self.landed = FcuMode.AUTO_LOITER, False, True
        self.notices_ground = True  # PX4's land detector works
        self.refuse: set[str] = set()  # actions the autopilot refuses
        self.ignore: set[str] = set()  # actions it never answers
        self.others: dict[
            str, tuple[float, float, float]
        ] = {}  # places of further bundles, with the attitude of the first
        self._others_s: dict[str, float] = {}
        self.captures: Callable[[CaptureRequest, int], Capture | None] = taken
        self.capture_requests: list[CaptureRequest] = []
        self.bundle_in_view = True
        self.view_distance_m = 8.0
        self.controller_dead = False
        self.intended: FcuMode | None = None  # what PX4 was asked for, where its failsafe flies another mode
        self.intended_changes = 0
        self._intended_before: FcuMode | None = None
        self.foreign_stream = False  # of another sender: PX4 stays in offboard on it
        self.channel_us = OFF_US  # of the mission switch
        self.hands_on_sticks = True  # of the pilot: they move a little
        self.edit: dict[type[Message], Callable[[Message], Message | None]] = {}
        self.photographs_work = True
        self.reference: Reference | None = None
        self.reference_p, self.reference_yaw, self.finished = self.p, self.yaw, False
        self._heard_s = -math.inf
        self.setpoint_s = -math.inf  # of the newest setpoint
        self._seen_s = -math.inf
        self._ever_seen = False
        self.takeoff_height_m, self.climb_m_s = 0.0, CLIMB_M_S  # of PX4's take-off
        self._inbox: list[Message] = []
        self.steps = 0
        self.commands: list[FcuCommand] = []
        self.references: list[tuple[float, Reference]] = []
        self.statuses: list[MissionStatus] = []
        self.events: list[SafetyEvent] = []
        self.photo_requests: list[tuple[float, PhotoRequest]] = []
        self.log: list[tuple[str, str]] = []
        self.reference_jumps_m: list[float] = []

    # --- what tests read ---

    @property
    def phase(self) -> Phase:
        return self.node.phase

    @property
    def status(self) -> MissionStatus:
        return self.node.status(self.now_s)

    def asked(self, action: str) -> int:
        return sum(c.action == action for c in self.commands)

    def phases(self) -> list[str]:
        return [phase for phase, _ in self.log]

    def restart_node(self) -> None:
        self.node = MissionNode(self.vehicle, self.plan, site_of(self.plan))
        self.log.clear()
        self.commands.clear()
        self.references.clear()

    # --- time ---

    def run(self, seconds: float) -> "World":
        for _ in range(round(seconds / STEP_S)):
            self.step()
        return self

    def run_until(self, phase: str, limit_s: float = 200.0) -> "World":
        """Until the mission is in `phase`; fails when it does not enter it."""
        end_s = self.now_s + limit_s
        while self.phase != phase:
            assert self.now_s < end_s, f"not in {phase}: {self.log}, {self.status}"
            self.step()
        return self

    def step(self) -> None:
        self.now_s += STEP_S
        self.steps += 1
        self._fly()
        for message in self.messages():
            edit = self.edit.get(type(message))
            message = edit(message) if edit else message
            if message is not None:
                assert list(self.node.handle(message, self.now_s)) == []
        before = self.phase
        for message in self.node.step(self.now_s):
            self._receive(message)
        if self.phase != before:
            self.log.append((self.phase, self.node.reason))

    # --- vehicle and autopilot ---

    def _fly(self) -> None:
        before = self.p
        sending = self._follow()
        if self.mode == "OFFBOARD":
            if self.now_s - self.setpoint_s > 1.0 and not self.foreign_stream:
                self.mode = "POSCTL"
            elif sending:
                self.p, self.yaw = self.reference_p, self.reference_yaw
        elif self.mode == "AUTO_TAKEOFF" and self.armed:
            self.landed = False
            top = self.home[2] + self.takeoff_height_m
            self.p = (self.p[0], self.p[1], min(self.p[2] + self.climb_m_s * STEP_S, top))
            if self.p[2] >= top:
                self.mode = "AUTO_LOITER"
        elif self.mode == "AUTO_LAND":
            self.p = (self.p[0], self.p[1], max(self.p[2] - CLIMB_M_S * STEP_S, self.home[2]))
            if self.p[2] <= self.home[2] and self.notices_ground:
                self.landed, self.armed = True, False
        self.v = tuple((a - b) / STEP_S for a, b in zip(self.p, before, strict=True))

    def _follow(self) -> bool:
        """The controller: follows the reference; True while it sends setpoints."""
        fresh = self.reference is not None and self.now_s - self._heard_s < 0.5
        if not fresh or self.controller_dead:
            self.finished = False
            return False
        self.setpoint_s = self.now_s
        r, t = self.reference, self.reference.trajectory
        samples = sample(t, r.start_s, np.array([self.now_s]))
        p, yaw = tuple(samples.p_W[0].tolist()), float(samples.yaw[0])
        self.finished = self.now_s - r.start_s >= duration_s(t)
        if r.frame != WORLD:
            p, yaw = geometry.to_world(p, yaw, self.place(r.frame), self.q_WM)
        if self.mode == "OFFBOARD":
            self.reference_jumps_m.append(math.dist(p, self.reference_p))
        self.reference_p, self.reference_yaw = p, yaw
        return True

    def place(self, bundle: str) -> tuple[float, float, float]:
        """Where a bundle really stands."""
        return self.others.get(bundle, self.p_WM)

    def sending(self) -> bool:
        return self.now_s - self.setpoint_s < STEP_S / 2

    def in_view(self, bundle: str = "") -> bool:
        p_M, yaw_M = geometry.to_bundle(self.p, self.yaw, self.place(bundle), self.q_WM)
        if bundle in self.others and abs(p_M[0]) - HALF_WIDTHS_M.get(bundle, 0.0) > 0.5 * p_M[2]:
            return False
        return self.bundle_in_view and 0 < p_M[2] < self.view_distance_m and abs(yaw_M) < 0.5

    # --- messages ---

    def messages(self) -> list[Message]:
        now, q = self.now_s, tuple(quat_from_rpy(0.0, 0.0, self.yaw))
        if self.in_view():
            self._seen_s, self._ever_seen = now, True
        self._others_s |= {name: now for name in self.others if self.in_view(name)}
        # No estimate of an aircraft in the air repeats its numbers; these too small ones change nothing else.
        noise = 1e-9 * (self.steps % 1000)
        q_noisy = (q[0], q[1] + noise, q[2], q[3])
        messages, self._inbox = self._inbox, []
        messages += [
            FcuAttitude(stamp_s=now, q_WB=q, omega_B=(noise, 0.0, 0.0)),
            FcuPosition(stamp_s=now, p_W=(self.p[0] + noise, *self.p[1:]), v_W=self.v),
            Markers(stamp_s=now, observations=[], detect_time_s=0.003, search="full"),
            State(
                stamp_s=now,
                p_W=self.p,
                v_W=self.v,
                q_WB=q_noisy,
                disturbance_W=(0.0, 0.0, 0.0),
                gnss_bias_W=(0.0, 0.0, 0.0),
                velocity_bias_W=(0.0, 0.0, 0.0),
                bundle=self.plan.bundle if self._ever_seen else "",
                p_WM=self.p_WM if self._ever_seen else (0.0, 0.0, 0.0),
                q_WM=self.q_WM if self._ever_seen else (1.0, 0.0, 0.0, 0.0),
                marker_age_s=now - max(self._seen_s, *self._others_s.values(), -math.inf),
                bundles=tuple(
                    MapBundle(name, self.others[name], self.q_WM, now - at_s) for name, at_s in self._others_s.items()
                ),
                position_std_m=0.3,
                relative_std_m=0.05 if self._ever_seen else math.inf,
                covariance_diag=(0.01,) * 24,
                battery_voltage_v=15.5,
                reset_count=1,
            ),
            ControlStatus(
                stamp_s=now,
                active="nmpc" if self.sending() else "idle",
                reason="" if self.sending() else "no reference",
                reference_id=self.reference.id if self.reference else 0,
                reference_finished=self.finished,
                reference_p_W=self.reference_p,
                reference_yaw_rad=wrap_angle(self.reference_yaw),
                position_error_m=math.dist(self.p, self.reference_p) if self.sending() else 0.0,
                yaw_error_rad=0.0,
                solver_status=0,
                solve_time_s=0.002,
                cycle_time_s=0.003,
                fallback_cycles=0,
                deadline_misses=0,
                solver_failures=0,
            ),
        ]
        if self.steps % 2 == 0:
            messages.append(self.fcu_status())
        messages.append(self._estimator_status())
        if self.sending():
            messages.append(
                SentSetpoint(
                    stamp_s=now, roll_rad=0.0, pitch_rad=0.0, yaw_rad=self.yaw, yaw_rate_rad_s=0.0, thrust=0.35
                )
            )
        if self.steps % 10 == 0:
            messages += [self.health(process) for process in PROCESSES]
        if self.steps % 10 == 0:
            messages.append(PayloadStatus(stamp_s=now, connected=True, problem=""))
        if self.steps % 20 == 0:
            messages.append(
                HostStatus(
                    stamp_s=now,
                    disk_free_mb=8000.0,
                    cpu_load=0.4,
                    cpu_temperature_c=60.0,
                    throttled=False,
                    memory_free_mb=900.0,
                )
            )
        return messages

    def _estimator_status(self) -> EstimatorStatus:
        sensors = {"position": 3, "velocity": 3, "attitude": 3} | ({"marker": 6} if self.in_view() else {})
        innovations = [
            Innovation(
                stamp_s=self.now_s,
                sensor=sensor,
                nis=0.8 * dof,
                dof=dof,
                accepted=True,
                noise_scale=1.0,
                late_s=0.0,
            )
            for sensor, dof in sensors.items()
        ]
        return EstimatorStatus(
            stamp_s=self.now_s,
            innovations=innovations,
            rejected={},
            dropped_late=0,
            update_time_s=0.001,
            imu=ImuReport(200.0),
        )

    def fcu_status(self) -> FcuStatus:
        if (intended := self.intended or self.mode) != self._intended_before:
            self._intended_before, self.intended_changes = intended, self.intended_changes + 1
        return FcuStatus(
            stamp_s=self.now_s,
            connected=True,
            armed=self.armed,
            mode=self.mode,
            landed=self.landed,
            battery_voltage_v=15.5,
            battery_remaining=0.8,
            rc_ok=True,
            rc_channels_us=self._channels_us(),
            gnss_ok=True,
            home_W=self.home,
            timesync_offset_s=0.0,
            timesync_rtt_s=0.002,
            timesync_age_s=0.2,
            link_errors=0,
            gnss_h_acc_m=0.5,
            gnss_v_acc_m=0.6,
            position_resets=7,
            cells_v=(3.9, 3.87, 3.88, 3.85),
            ground_station_age_s=0.4,
            intended_mode=self.intended or self.mode,
            intended_known=True,
            intended_changes=self.intended_changes,
            mode_s=self.now_s,
        )

    def _channels_us(self) -> tuple[int, ...]:
        channels = [1500] * 8
        channels[0] += 30 * (self.hands_on_sticks and self.steps % 4 == 0)
        if self.plan.rc_switch is not None:
            channels[self.plan.rc_switch.channel - 1] = self.channel_us
        return tuple(channels)

    def health(self, process: str) -> Health:
        return Health(
            stamp_s=self.now_s,
            process=process,
            pid=1,
            steps_per_s=20.0,
            nominal_steps_per_s=20.0,
            late_steps=0,
            errors=0,
            last_error="",
            step_time_max_s=0.001,
            cpu_s=1.0,
            memory_mb=50.0,
        )

    def _receive(self, message: Message) -> None:
        if isinstance(message, Reference):
            self.references.append((self.now_s, message))
            self.reference, self._heard_s = message, self.now_s
        elif isinstance(message, FcuCommand):
            self.commands.append(message)
            self._command(message)
        elif isinstance(message, MissionStatus):
            self.statuses.append(message)
        elif isinstance(message, SafetyEvent):
            self.events.append(message)
        elif isinstance(message, PhotoRequest):
            self.photo_requests.append((self.now_s, message))
            if self.photographs_work:
                self._inbox.append(Photo(stamp_s=self.now_s, id=message.id, png=b"png"))
        elif isinstance(message, CaptureRequest):
            self.capture_requests.append(message)
            attempt = sum(request.id == message.id for request in self.capture_requests)
            if (answer := self.captures(message, attempt)) is not None:
                self._inbox.append(msgspec.structs.replace(answer, stamp_s=self.now_s))
        else:
            raise AssertionError(f"the mission may not publish {type(message).__name__}")

    def _command(self, command: FcuCommand) -> None:
        if command.action in self.ignore:
            return
        accepted = command.action not in self.refuse
        self._inbox.append(
            FcuCommandAck(stamp_s=self.now_s, id=command.id, accepted=accepted, reason="" if accepted else "denied")
        )
        if not accepted:
            return
        match command.action:
            case "arm":
                self.armed = True
            case "disarm":
                assert self.landed, "disarmed in flight"
                self.armed = False
            case "takeoff":
                self.mode, self.takeoff_height_m = "AUTO_TAKEOFF", command.height_m
            case "offboard":
                self.mode, self.reference_p = "OFFBOARD", self.p
            case "land":
                self.mode = "AUTO_LAND"

    # --- a pilot ---

    def pilot_takes_off(self, height_m: float = 4.0) -> None:
        self.armed, self.landed, self.mode = True, False, "POSCTL"
        self.run(2 * STEP_S)  # the status that it flies comes before the first metre
        self.p = (self.home[0], self.home[1], self.home[2] + height_m)
        self.yaw = 0.0

    def facing_yaw(self) -> float:
        return facing_yaw(self.q_WM)


# --- an inspection ------------------------------------------------------------------------------------------------------

HOME = (2.0, -1.0, 0.3)
PLACES = {"deck": (14.0, 6.0, 3.2), "second_pier": (12.0, 12.0, 4.0)}  # as the mission assumes them
HALF_WIDTHS_M = {"deck": 3.6, "second_pier": 1.7}  # of the markers, to both sides of a bundle's origin


def site_world(plan=None, shift=(0.0, 0.0, 0.0), **options) -> World:
    """Two piers and the boards for the deck. shift: of all boards but the first, from where the mission assumes them."""
    world = World(plan or inspection_plan(), home=HOME, bundle_p_home=(12.0, 0.0, 4.0), **options)
    world.others = {
        name: tuple(h + p + s for h, p, s in zip(HOME, place, shift, strict=True)) for name, place in PLACES.items()
    }
    world.view_distance_m = 12.0
    return world
