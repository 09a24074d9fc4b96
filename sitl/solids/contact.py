"""Contact of the simulated aircraft with solids: the planes beside its contact shapes, and what they met.

Far from every solid the plant moves in whole steps of the world. Near one it moves by a millisecond at a time, and each
of its shapes gets the plane of the solid that it meets first; `queries.c` chooses it and remembers the side on which the
shape was.
"""

import msgspec
import numpy as np

from companion.core.arrays import Array, Mask, Vector
from companion.core.frames import rotation_matrix, skew
from companion.core.messages import Contact
from sitl.plant import FEET, STEP_S, Plant
from sitl.solids.queries import MEMORY, SHAPE
from sitl.solids.solids import Solids
from sitl.vectors import vec3

NEAR_M = 0.05  # between shapes and solids: nearer than this the plant moves by single milliseconds
APART_S = 0.2  # a solid that was not touched for this long is touched in a new contact
REPORT_S = 0.1  # after its beginning: longer than a blow lasts
LANDING_MAX_M_S = 1.5  # as the ground's (`sitl.flight_end`)
TOP_NORMAL_Z = 0.7  # a face this flat or flatter can be landed on, as STANDING_NORMAL_Z in physics.c


class SolidContact:
    """Moves a plant among solids; `contacts` are those of the flight, oldest first, stamped in the plant's time.

    One contact lasts until the solid has not been touched for `APART_S`; a landing is one of its own.
    """

    def __init__(self, solids: Solids, plant: Plant) -> None:
        self._solids, self._plant = solids, plant
        shapes = plant.contacts
        self._shapes = np.zeros(shapes, dtype=SHAPE)
        self._shapes["radius_m"] = plant.shape_radius_m
        self._shapes["ball_m"] = plant.shape_ball_m
        reaches_m = np.linalg.norm(plant.shapes_B, axis=1) + plant.shape_radius_m + plant.shape_ball_m
        self._reach_m = float(np.max(reaches_m)) + NEAR_M
        self._memory = np.zeros((shapes, len(solids.names)), dtype=MEMORY)
        self._planes_W = np.empty((shapes, 4))
        self._index = np.empty(shapes, dtype=np.int64)
        self._touching = np.zeros(shapes, dtype=bool)
        self._slow = np.zeros(shapes, dtype=bool)  # when it began to touch
        self.contacts: list[Contact] = []
        self._last_s: list[float] = []  # of each contact: its newest touch
        self._taken = 0

    def step(self, motor_commands: Vector, steps: int, wind_W: Vector, force_W: Vector) -> None:
        """`Plant.step` among the solids."""
        plant = self._plant
        speed_m_s = float(np.linalg.norm(plant.v_W))
        reach_m = self._reach_m + 2 * speed_m_s * steps * STEP_S
        if self._solids.nearest(plant.p_W).distance_m[0] > reach_m:
            self._memory["known"] = 0
            plant.surfaces_W[:] = 0.0
            self._touching[:] = False
            plant.step(motor_commands, steps, wind_W, force_W)
            return
        for _ in range(steps):
            self._lay_planes()
            before = plant.v_W.copy(), rotation_matrix(plant.q_WB) @ plant.omega_B, plant.p_W.copy()
            plant.step(motor_commands, 1, wind_W, force_W)
            touching = plant.contact_peak_n > 0.0
            if touching.any():
                self._note(touching, *before)
            self._touching = touching

    def take(self) -> list[Contact]:
        """The contacts that began `REPORT_S` ago, each once, with the largest force until now; copies."""
        first = self._taken
        while self._taken < len(self.contacts) and self._plant.time_s - self.contacts[self._taken].stamp_s >= REPORT_S:
            self._taken += 1
        return [msgspec.structs.replace(contact) for contact in self.contacts[first : self._taken]]

    def _lay_planes(self) -> None:
        plant, shapes = self._plant, self._shapes
        R = rotation_matrix(plant.q_WB)
        shapes["centre_W"] = plant.p_W + plant.shapes_B @ R.T
        shapes["velocity_W"] = plant.v_W + plant.shapes_B @ (R @ skew(plant.omega_B)).T
        shapes["axis_W"] = plant.shape_axis_B @ R.T
        self._solids.contact_planes(shapes, self._memory, STEP_S, self._planes_W, self._index)
        plant.surfaces_W[:] = self._planes_W

    def _note(self, touching: Mask, v_W: Array, omega_W: Array, p_W: Array) -> None:
        """Enter what was touched in the last millisecond, which began with this motion."""
        plant = self._plant
        for k in np.flatnonzero(touching):
            name, normal_W, place_W = self._solids.names[self._index[k]], self._planes_W[k, :3], plant.contact_W[k]
            speed_m_s = float(np.linalg.norm(v_W + np.cross(omega_W, place_W - p_W)))
            if not self._touching[k]:
                self._slow[k] = speed_m_s < LANDING_MAX_M_S
            landing = bool(k < FEET and normal_W[2] > TOP_NORMAL_Z and self._slow[k])
            same_W = plant.contact_force_W[touching & (self._index == self._index[k])].sum(axis=0)
            force_n = max(float(plant.contact_peak_n[k]), float(np.linalg.norm(same_W)))
            i = self._ongoing(name, landing)
            if i is not None:
                self._last_s[i] = plant.time_s
                self.contacts[i].force_n = max(force_n, self.contacts[i].force_n)
                continue
            self._last_s.append(plant.time_s)
            self.contacts.append(
                Contact(
                    stamp_s=plant.time_s - STEP_S,
                    solid=name,
                    p_W=vec3(place_W),
                    normal_W=vec3(normal_W),
                    speed_m_s=speed_m_s,
                    force_n=force_n,
                    landing=landing,
                )
            )

    def _ongoing(self, solid: str, landing: bool) -> int | None:
        """Index of the contact that a touch of this moment continues."""
        for i in reversed(range(len(self.contacts))):
            if self.contacts[i].solid == solid and self.contacts[i].landing == landing:
                return i if self._plant.time_s - self._last_s[i] < APART_S else None
        return None
