"""The flight model of docs/method.md, simulated through the windows of a flight, and its residuals.

`calibration.identification.forces` has the equations and fits it.
"""

import numpy as np

from calibration.identification.windows import STEP_S, Windows, run
from companion.core.arrays import Array
from companion.core.frames import GRAVITY_M_S2

THIN = 2  # every other step of the grid is compared with the accelerometer
NOISE = (0.1, 1.0)  # velocity [m/s], accelerometer [m/s²]: for the first weights


class FlightModel:
    """Residuals as a function of the nonlinear parameters p, by name (RANGES); the linear ones are solved for.

    Linear are, in this order: k_T; the constant, east and north where the horizontal velocity is used; the curvature of
    thrust or the rotor drag if they are asked for; the accelerometer's biases.

    Rows: velocity samples of every used axis, then the accelerometer's. `weights`: one per row.
    rotor_velocity: velocities (windows, samples, 3) that make rotor drag; with it linear drag in the plane is left out.
    curved: thrust k_T u + c (u / ū - 1) u instead of k_T u, ū its mean. adrift: each window has constants of its own, an
    acceleration and a bias of the accelerometer on every axis: slow wind, and slow errors of attitude and velocity.
    """

    def __init__(self, windows: Windows, axes: tuple[bool, bool], reference_v: float) -> None:
        self.w, self.reference_v = windows, reference_v
        self.axes = [i for i, used in enumerate((axes[0], axes[0], axes[1])) if used]
        n, grid = len(windows.t_s), windows.grid[:, ::THIN]
        self.group = np.zeros(n * len(self.axes), dtype=int)
        self.t_s = np.tile(windows.t_s, len(self.axes))
        self.window = np.tile(windows.window, len(self.axes))
        if windows.accelerometer is not None:
            m = grid.size * len(self.axes)
            self.group = np.concatenate([self.group, np.ones(m, dtype=int)])
            self.t_s = np.concatenate([self.t_s, np.tile(grid.ravel(), len(self.axes))])
            index = np.repeat(np.arange(len(windows)), grid.shape[1])
            self.window = np.concatenate([self.window, np.tile(index, len(self.axes))])
        self.weights = 1.0 / np.array(NOISE)[self.group]
        self.rotor_velocity: Array | None = None
        self.curved = False
        self.adrift = False

    @property
    def extra(self) -> int:
        """Index of the curvature or the rotor drag among the linear parameters."""
        return 1 + sum(i < 2 for i in self.axes)

    def force(self, p: dict[str, float]) -> Array:
        """Thrust over k_T, (windows, samples)."""
        w = self.w
        scale = 1.0 if w.voltage is None else (w.voltage / self.reference_v) ** p["exponent"]
        return w.thrust(0.5 * p["thrust_lag_s"], 0.5 * p["thrust_lag_s"]) * scale

    def _accelerations(self, p: dict[str, float]) -> list[Array]:
        """Accelerations (windows, samples, 3): gravity, then one for a unit of each linear parameter."""
        force = self.force(p)
        gravity = np.zeros((*force.shape, 3))
        gravity[..., 2] = -GRAVITY_M_S2
        parts = [gravity, force[..., None] * self.w.axis]
        for i in self.axes[:-1] if 2 in self.axes else self.axes:
            constant = np.zeros_like(gravity)
            constant[..., i] = 1.0
            parts.append(constant)
        if self.rotor_velocity is not None:
            share = np.sqrt(np.maximum(force, 0.0) / max(float(force.mean()), 1e-9))
            v, axis = self.rotor_velocity, self.w.axis
            parts.append(-share[..., None] * (v - np.sum(v * axis, axis=2, keepdims=True) * axis))
        if self.curved:
            parts.append((force * (force / force.mean() - 1.0))[..., None] * self.w.axis)
        return parts

    def drags(self, p: dict[str, float]) -> tuple[float, float, float]:
        """Linear drag of the axes of W [1/s]."""
        flat = 0.0 if self.rotor_velocity is not None else p["drag_horizontal"]
        return flat, flat, p["drag_vertical"]

    def velocities(self, p: dict[str, float]) -> list[Array]:
        """Velocities from rest, for each of `_accelerations`."""
        drags = self.drags(p)
        return [np.stack([run(a[..., i], drags[i]) for i in range(3)], axis=2) for a in self._accelerations(p)]

    def starts(self, p: dict[str, float]) -> Array:
        """Share of a start velocity that remains, (samples, 3)."""
        remaining: Array = np.exp(-np.outer(STEP_S * np.arange(self.w.grid.shape[1]), self.drags(p)))
        return remaining

    def rows(self, p: dict[str, float]) -> tuple[Array, Array, Array]:
        """Weighted (measurement less gravity (n,), columns of linear parameters (n, m), of start velocities (n, 3)).

        adrift: six more columns after the start velocities, of the constants of each window.
        """
        w, drags = self.w, self.drags(p)
        parts, accelerations = self.velocities(p), self._accelerations(p)
        left = np.broadcast_to(self.starts(p), w.velocity.shape)
        known, columns, starts = [], [], []
        for i in self.axes:
            values = [w.at_samples(part[..., i]) for part in parts]
            known.append(w.measured[:, i] - values[0])
            columns.append(np.column_stack(values[1:]))
            own = [np.outer(w.at_samples(left[..., i]), np.eye(3)[i])]
            if self.adrift:
                own += [np.outer(w.at_samples(run(np.ones(w.grid.shape), drags[i])), np.eye(6)[i])]
            starts.append(np.hstack(own))
        if w.accelerometer is not None:
            biases = len(self.axes)
            columns = [np.column_stack([c, np.zeros((len(c), biases))]) for c in columns]
            R_WB, left = w.R_WB[:, ::THIN], left[:, ::THIN]
            # Specific force is all but gravity: in W, then in B. The constant counts as horizon error: no force.
            felt = [a - np.array(drags) * v for a, v in zip(accelerations, parts, strict=True)]
            felt[0] = felt[0] - accelerations[0]
            for j in range(2, 1 + self.extra):
                felt[j] = felt[j] - accelerations[j]
            seen = [np.einsum("wtij,wti->wtj", R_WB, f[:, ::THIN]) for f in felt]
            measured = w.accelerometer[:, ::THIN]
            for number, i in enumerate(self.axes):
                known.append((measured[..., i] - seen[0][..., i]).ravel())
                ones = np.outer(np.ones(measured[..., i].size), np.eye(biases)[number])
                columns.append(np.column_stack([*(s[..., i].ravel() for s in seen[1:]), ones]))
                own = [(-R_WB[..., :, i] * np.array(drags) * left).reshape(-1, 3)]
                if self.adrift:
                    own += [np.outer(np.ones(len(own[0])), np.eye(6)[3 + i])]
                starts.append(np.hstack(own))
        weights = self.weights[:, None]
        return np.concatenate(known) * self.weights, np.concatenate(columns) * weights, np.concatenate(starts) * weights

    def reduced(self, p: dict[str, float]) -> tuple[Array, Array]:
        """`rows` less the best start velocity of every window."""
        known, columns, starts = self.rows(p)
        both = np.column_stack([known, columns])
        both = both - np.einsum("ni,nij->nj", starts, self._start_solutions(starts, both)[self.window])
        return both[:, 0], both[:, 1:]

    def _start_solutions(self, starts: Array, both: Array) -> Array:
        """Least-squares start velocities (and constants) of every window for every column, (windows, 3, columns)."""
        count, own = len(self.w), range(starts.shape[1])
        normal = np.stack([np.stack([self._sum(starts[:, i] * starts[:, j], count) for j in own]) for i in own])
        right = np.stack([np.stack([self._sum(starts[:, i] * c, count) for c in both.T]) for i in own])
        normal = np.moveaxis(normal, 2, 0) + 1e-9 * np.eye(len(own))
        return np.linalg.solve(normal, np.moveaxis(right, 2, 0)).astype(np.float64, copy=False)

    def _sum(self, values: Array, count: int) -> Array:
        sums: Array = np.bincount(self.window, values, count).astype(np.float64, copy=False)
        return sums

    def solve(self, p: dict[str, float]) -> tuple[Array, Array]:
        """(linear parameters (m,), weighted residual (n,))."""
        known, columns = self.reduced(p)
        linear = np.linalg.lstsq(columns, known, rcond=None)[0].astype(np.float64, copy=False)
        return linear, columns @ linear - known

    def weigh(self, residual: Array) -> None:
        """Weights from the residual of each kind of measurement."""
        left = residual / self.weights
        rms = [np.sqrt(np.mean(left[self.group == g] ** 2)) for g in range(self.group.max() + 1)]
        self.weights = 1.0 / np.maximum(rms, 1e-4)[self.group]

    def simulated(self, p: dict[str, float], linear: Array) -> Array:
        """Velocities with the fitted parameters, from the best start velocity of each window, (windows, samples, 3)."""
        known, columns, starts = self.rows(p)
        rest = known - columns @ linear
        start = self._start_solutions(starts, rest[:, None])[..., 0]
        parts = self.velocities(p)
        total = parts[0] + sum(k * part for k, part in zip(linear, parts[1:], strict=False))
        velocity: Array = total + start[:, None, :] * self.starts(p)
        return velocity

    def velocity_rms(self, p: dict[str, float], linear: Array) -> float:
        """Error of the simulated velocity over all used axes [m/s]."""
        simulated = self.simulated(p, linear)
        errors = [self.w.at_samples(simulated[..., i]) - self.w.measured[:, i] for i in self.axes]
        return float(np.sqrt(np.mean(np.square(errors))))
