"""The error-state Kalman filter: a belief, its prediction and its measurement updates. Plain maths, no transport.

The equations are symbols in `acados_gen.eskf_model` and run here as compiled kernels; this module adds what is not
a formula: which noise applies, whether a measurement is believed, what happens when it is not.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from companion.core.frames import quat_multiply, rotation_matrix
from companion.core.kernel import Kernel, require
from companion.core.vehicle import Vehicle
from companion.estimation.adaptation import SCALE_MAX, Window, new_window
from companion.estimation.gating import Gate
from companion.estimation.innovation_monitor import MOVED_ALIKE, Contradiction, Lean, Streak
from companion.estimation.inputs import Inputs
from companion.estimation.layout import (
    BELIEF_P,
    BELIEF_SIZE,
    BELIEF_X,
    E_B,
    E_C,
    E_P,
    E_PM,
    E_THM,
    E_V,
    ERROR_SIZE,
    NAME,
    PM,
    QM,
    SENSORS,
    P,
    Q,
    S,
    V,
    eskf_fingerprint,
    kernel_name,
    shapes,
)
from companion.estimation.noise import forgetting_rates, initial_variances, process_variances

# A new level of the GNSS: position innovations rejected for this long that agree with each other.
LEVEL_TIME_S = 2.0
LEVEL_COUNT = 10

# A step between the flight controller's velocity and ours: so many rejections in a row. Few, because each of them
# also raises the adapted noise until the wrong velocity passes the gate: after 15 of them a step of 0.4 m/s did.
VELOCITY_STEP_COUNT = 3

BUNDLE = ("marker", "corners")  # sensors that see it
CORNERS_UNIT = np.eye(SENSORS["corners"])
LEAN_TIME_S = 0.3  # in which the velocity error made the offset
ESTABLISHED = 15  # accepted more than rejected sightings after which a bundle's place is believed


@dataclass(slots=True)
class Belief:
    """Everything the filter knows at one time; a copy is a snapshot to rewind to."""

    time_s: float
    numbers: np.ndarray  # state, covariance and memory of gusts in one piece, as the kernels take them
    windows: dict[str, Window]
    streaks: dict[str, Streak]
    accepted_s: dict[str, float]  # time of the last accepted measurement of each sensor
    marker_known: bool = False
    lean: Lean = Lean()
    contradiction: Contradiction = Contradiction()
    sightings: int = 0  # accepted less rejected ones since the bundle was placed, up to ESTABLISHED
    x: np.ndarray = field(init=False)  # (33,), a view
    P: np.ndarray = field(init=False)  # (31, 31), a view

    def __post_init__(self) -> None:
        self.x = self.numbers[BELIEF_X]
        self.P = self.numbers[BELIEF_P].reshape(ERROR_SIZE, ERROR_SIZE)

    def copy(self) -> "Belief":
        return Belief(
            self.time_s,
            self.numbers.copy(),
            self.windows.copy(),
            self.streaks.copy(),
            self.accepted_s.copy(),
            self.marker_known,
            self.lean,
            self.contradiction,
            self.sightings,
        )


class Update(NamedTuple):
    """Outcome of one measurement."""

    nis: float
    size: int
    accepted: bool
    noise_scale: float
    residual: np.ndarray


class Eskf:
    """The filter of one vehicle; works on a `Belief` that the caller owns.

    adapt: False keeps the measurement noise at its nominal value. Raises `companion.core.kernel.ArtifactMissing` when
    the kernels are not built.
    """

    def __init__(self, vehicle: Vehicle, adapt: bool = True) -> None:
        library = require(NAME, eskf_fingerprint())
        self._predict = Kernel(library, kernel_name("predict"), shapes("predict"))
        self._coast = Kernel(library, kernel_name("predict_coast"), shapes("predict_coast"))
        self._relative = Kernel(library, kernel_name("relative"))
        self._updates = {s: Kernel(library, kernel_name(f"update_{s}"), shapes(f"update_{s}")) for s in SENSORS}

        settings = vehicle.estimator
        self._settings = {sensor: getattr(settings, "marker" if sensor == "corners" else sensor) for sensor in SENSORS}
        self.gates = {s: Gate(self._settings[s].gate_probability, size) for s, size in SENSORS.items()}
        self.nominal = {s: self._settings[s].std ** 2 * np.eye(SENSORS[s]) for s in SENSORS if s not in BUNDLE}
        self._marker_factor = settings.marker.std**2
        self._initial = initial_variances(vehicle)
        self._adapt = adapt
        self._predict.inputs[3][:] = forgetting_rates(vehicle, coast=False)
        self._predict.inputs[4][:] = process_variances(vehicle, coast=False)
        self._predict.inputs[5][0] = settings.process.gust_factor**2
        self._coast.inputs[1][:] = forgetting_rates(vehicle, coast=True)
        self._coast.inputs[2][:] = process_variances(vehicle, coast=True)

        self.p_BC = np.array(vehicle.camera.p_BC)
        self.q_BC = np.array(vehicle.camera.q_BC) / np.linalg.norm(vehicle.camera.q_BC)
        for sensor in BUNDLE:
            self._updates[sensor].inputs[3][:] = self.p_BC
            self._updates[sensor].inputs[4][:] = self.q_BC

    def start(self, time_s: float, p_W, v_W, q_WB) -> Belief:
        """A belief that trusts the flight controller: bias and disturbance zero, all with their initial std."""
        windows = {sensor: new_window(sensor, self._settings[sensor].window) for sensor in SENSORS}
        belief = Belief(time_s, np.zeros(BELIEF_SIZE), windows, {}, {})
        x = belief.x
        x[P], x[V], x[Q] = p_W, v_W, q_WB
        x[QM] = (1.0, 0.0, 0.0, 0.0)
        x[S] = 1.0
        np.fill_diagonal(belief.P, self._initial)
        return belief

    # --- prediction

    def advance(self, belief: Belief, time_s: float, inputs: Inputs) -> None:
        """Predict the belief to time_s (not before its own time)."""
        for dt, command in inputs.segments(belief.time_s, time_s):
            if command is None:
                self.coast(belief, dt)
            else:
                self.predict(belief, command.control, command.parameters, dt)
        belief.time_s = max(belief.time_s, time_s)

    def predict(self, belief: Belief, control, parameters, dt: float) -> None:
        """Move state and covariance by dt [s] under a command; does not touch the belief's time."""
        kernel = self._predict
        before, u, k, _, _, _, step = kernel.inputs
        before[:] = belief.numbers
        u[:] = control
        k[:] = parameters
        step[0] = dt
        (belief.numbers[:],) = kernel()

    def coast(self, belief: Belief, dt: float) -> None:
        """Move state and covariance by dt [s] without a command; does not touch the belief's time."""
        kernel = self._coast
        kernel.inputs[0][:] = belief.numbers
        kernel.inputs[3][0] = dt
        (belief.numbers[:],) = kernel()

    # --- measurements

    def measure(self, belief: Belief, sensor: str, y) -> Update:
        """Position [m], velocity [m/s] or attitude (unit quaternion) of the flight controller at the belief's time.

        A position that stays at a new level is taken into the bias: after LEVEL_TIME_S of rejected innovations
        that agree with each other, the bias' covariance is inflated by the square of the level, so the update puts
        the jump there. p and p_M keep their covariance, and with it the position relative to the bundle.

        A velocity that steps may be the flight controller's error or a true one that the model did not expect: after
        VELOCITY_STEP_COUNT rejections in a row v and its bias both become as uncertain as the step is large, and the
        bundle, or the position, tells which it was. Left to its small covariance the bias would stay, the velocity
        would take most of the step, and the bundle that contradicts it would be rejected.
        """
        kernel = self._updates[sensor]
        kernel.inputs[1][:] = y
        nominal = self.nominal[sensor]
        update = self._apply(belief, sensor, nominal)
        if update.accepted:
            return update
        if sensor == "position" and self._is_new_level(belief):
            self._loosen(belief, (E_B,), belief.streaks[sensor].mean ** 2 + nominal.diagonal())
            del belief.streaks[sensor]
            update = self._apply(belief, sensor, nominal)
        elif sensor == "velocity" and belief.streaks[sensor].count % VELOCITY_STEP_COUNT == 0:
            self._loosen(belief, (E_V, E_C), belief.streaks[sensor].mean ** 2)
            update = self._apply(belief, sensor, nominal)
        return update

    @staticmethod
    def _loosen(belief: Belief, blocks, variances) -> None:
        """Add variances, (3,), to blocks of the covariance."""
        for block in blocks:
            diagonal = np.arange(*block.indices(ERROR_SIZE))
            belief.P[diagonal, diagonal] += variances

    def measure_marker(self, belief: Belief, p_CM, q_CM, covariance) -> Update:
        """Pose of the bundle in the camera frame; covariance (6, 6) in the tracker's convention.

        The first one places the bundle: nominal pose from the observation, large prior covariance, then a normal
        update, so that the bundle's errors are correlated with the aircraft's as they should be.
        """
        if not belief.marker_known:
            self._place_marker(belief, p_CM, q_CM)
        kernel = self._updates["marker"]
        kernel.inputs[1][:] = p_CM
        kernel.inputs[2][:] = q_CM
        R = self._marker_factor * covariance
        followed = not belief.contradiction.refused
        update = self._apply(belief, "marker", R, followed)
        if belief.sightings < ESTABLISHED:
            # One false pose may have placed the bundle: two that do not agree with it, and it is placed anew.
            belief.sightings += 1 if update.accepted else -1
            if belief.sightings < 0:
                self.forget_marker(belief)
            return update
        rejected = not update.accepted
        if self._leans(belief, kernel.outputs[1].tolist()):
            self._doubt_velocity(belief, p_CM)
            if rejected:
                update = self._apply(belief, "marker", R)
        self._weigh(belief, rejected, update.residual, R)
        return update if followed else update._replace(accepted=False)

    def measure_corners(self, belief: Belief, xy, corners_M, std: float) -> Update:
        """The four corners of one marker of a bundle that has its place.

        xy: normalised image coordinates, the lens undone, (8,); corners_M: on the bundle [m], (12,); std: of one
        coordinate.
        """
        kernel = self._updates["corners"]
        kernel.inputs[1][:] = xy
        kernel.inputs[2][:] = corners_M
        R = self._marker_factor * std * std * CORNERS_UNIT
        return self._apply(belief, "corners", R, not belief.contradiction.refused)

    def measure_bundle(self, belief: Belief, corners, std: float, choice) -> Update:
        """The corners of every marker of an established bundle, one marker after the other.

        corners: (image (8,), bundle (12,)) of each marker; std: of one coordinate; choice: pose and covariance of the
        whole bundle, None when two poses explain the image. Each marker has its gate, so that one wrong corner costs
        the four of its marker. Two poses are no matter here: corners do not ask which one was meant.
        """
        kernel = self._updates["marker"]
        if choice is not None:
            (p_CM, q_CM), covariance = choice
            for buffer, value in zip(kernel.inputs, (belief.numbers, p_CM, q_CM), strict=False):
                buffer[:] = value
            kernel.inputs[-1][:] = self._marker_factor * covariance
            if self._leans(belief, kernel()[1].tolist()):
                self._doubt_velocity(belief, p_CM)
        updates = [self.measure_corners(belief, xy, corners_M, std) for xy, corners_M in corners]
        good, followed = [update for update in updates if update.accepted], not belief.contradiction.refused
        if good:
            if followed:
                belief.accepted_s["marker"] = belief.time_s
            belief.streaks.pop("marker", None)
        elif choice is not None:
            belief.streaks["marker"] = self._continued(belief, "marker", kernel.outputs[0], kernel.inputs[-1])
        else:
            streak = belief.streaks.get("marker") or Streak(belief.time_s, 0, np.zeros(6))
            belief.streaks["marker"] = streak._replace(count=streak.count + 1)
        if choice is not None:
            self._weigh(belief, not good, kernel.outputs[0].copy(), kernel.inputs[-1])
        told = good or updates
        size = sum(update.size for update in told)
        return Update(sum(u.nis for u in told), size, bool(good) and followed, told[-1].noise_scale, told[-1].residual)

    @staticmethod
    def _leans(belief: Belief, whitened) -> bool:
        """True when the bundle has been seen beside its place for some time, and is to be believed."""
        belief.lean, leans = belief.lean.after(whitened)
        return leans and not belief.contradiction.refused

    def _weigh(self, belief: Belief, rejected: bool, residual, nominal) -> None:
        """Count a sighting of an established bundle for or against it; nominal: its noise, (6, 6)."""
        contradiction = belief.contradiction
        if contradiction.refused and not rejected:
            rejected = contradiction.scatters(residual, SCALE_MAX**2 * nominal, self.gates["marker"].limit)
        belief.contradiction = contradiction.after(rejected, belief.time_s, residual)

    def _doubt_velocity(self, belief: Belief, p_CM) -> None:
        """Make position, velocity and its bias as uncertain as the bundle seen at p_CM says they are wrong."""
        x = belief.x
        p_BM = self.p_BC + rotation_matrix(self.q_BC) @ p_CM
        offset = x[PM] - x[P] - rotation_matrix(x[Q]) @ p_BM
        self._loosen(belief, (E_P,), offset**2)
        self._loosen(belief, (E_V, E_C), (offset / LEAN_TIME_S) ** 2)

    def forget_marker(self, belief: Belief) -> None:
        """The next observation places the bundle anew."""
        belief.marker_known = False
        belief.sightings, belief.lean, belief.contradiction = 0, Lean(), Contradiction()
        belief.streaks.pop("marker", None)
        belief.windows["marker"] = new_window("marker", self._settings["marker"].window)

    def expected_rotation(self, belief: Belief) -> np.ndarray:
        """q_BM that the belief expects, (4,)."""
        w, x, y, z = belief.x[Q]
        return quat_multiply((w, -x, -y, -z), belief.x[QM])

    def relative(self, belief: Belief) -> tuple[np.ndarray, np.ndarray]:
        """Position in the bundle's frame [m], (3,), and its covariance, (3, 3)."""
        self._relative.inputs[0][:] = belief.x
        self._relative.inputs[1][:] = belief.P
        position, covariance = self._relative()
        return position.copy(), covariance.copy()

    def _place_marker(self, belief: Belief, p_CM, q_CM) -> None:
        x = belief.x
        p_BM = self.p_BC + rotation_matrix(self.q_BC) @ p_CM
        x[PM] = x[P] + rotation_matrix(x[Q]) @ p_BM
        q_WM = quat_multiply(x[Q], quat_multiply(self.q_BC, q_CM))
        x[QM] = q_WM / np.linalg.norm(q_WM)
        for block in (E_PM, E_THM):
            belief.P[block, :] = 0.0
            belief.P[:, block] = 0.0
            diagonal = np.arange(*block.indices(ERROR_SIZE))
            belief.P[diagonal, diagonal] = self._initial[block]
        belief.marker_known = True

    def _apply(self, belief: Belief, sensor: str, nominal, followed: bool = True) -> Update:
        """Judge a measurement and, unless it is not to be followed, put it in; `accepted` is the gate's word."""
        window, gate = belief.windows[sensor], self.gates[sensor]
        R = window.noise(nominal) if self._adapt else nominal
        kernel = self._updates[sensor]
        kernel.inputs[0][:] = belief.numbers
        kernel.inputs[-1][:] = R
        nu, _, nis_, corrected, matched, expected = kernel()
        nis = float(nis_[0])
        accepted = gate.accepts(nis)
        if self._adapt:
            clip = gate.clip_factor(nis)
            belief.windows[sensor] = window.with_innovation(matched, expected, clip, gate.limit)
        if accepted:
            if followed:
                belief.numbers[:] = corrected
                belief.accepted_s[sensor] = belief.time_s
            belief.streaks.pop(sensor, None)
        else:
            belief.streaks[sensor] = self._continued(belief, sensor, nu, nominal)
        return Update(nis, len(nu), accepted, window.noise_scale, nu.copy())

    def _continued(self, belief: Belief, sensor: str, nu, nominal) -> Streak:
        """The streak with one more rejection.

        Positions must all agree to be a level. Of a bundle most must: it was moved, and here and there is a flip.
        Agreement is judged with nominal noise: an adapted one would call scattered outliers a level.
        """
        streak = belief.streaks.get(sensor)
        if streak is None:
            return Streak(belief.time_s, 1, nu.copy())
        apart = self.gates[sensor].limit * 2 * nominal.diagonal().max()
        if sensor == "position" and not streak.agrees(nu, apart):
            return Streak(belief.time_s, 1, nu.copy())
        if sensor == "marker" and not streak.agrees(nu, max(apart, MOVED_ALIKE**2 * (streak.mean @ streak.mean))):
            return streak.outvoted() or Streak(belief.time_s, 1, nu.copy())
        return streak.after(nu)

    @staticmethod
    def _is_new_level(belief: Belief) -> bool:
        streak = belief.streaks["position"]
        return streak.count >= LEVEL_COUNT and belief.time_s - streak.start_s >= LEVEL_TIME_S
