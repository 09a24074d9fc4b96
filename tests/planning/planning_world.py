"""Missions with an inspection for the tests of companion/planning."""

import math
from pathlib import Path

import numpy as np

from companion.core.config import parse
from companion.core.site import Site
from companion.planning.camera import PayloadCamera, seen
from companion.planning.planner import Leg, Surroundings, make_plan
from companion.planning.sections import Battery, Inspection
from companion.planning.stations import Planning, plan_item

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "config/missions/two_piers_inspection.toml"
CAMERA = {
    "name": "test camera",
    "width_px": 6000,
    "height_px": 4000,
    "focal_length_mm": 35.0,
    "pixel_pitch_um": 6.0,
    "p_BC": [0.2, 0.0, -0.1],
    "q_BC": [0.5, -0.5, 0.5, -0.5],
    "pitch_range_rad": [-1.5708, 1.5708],
    "exposure_s": 0.01,
    "trigger_period_s": 1.0,
    "nearest_focus_m": 0.3,
    "mass_kg": 0.5,
}
BATTERY = {
    "name": "test battery",
    "cells": 4,
    "capacity_ah": 5.0,
    "cell_v": 3.7,
    "usable_share": 0.8,
    "hover_power_w": 172.0,
    "hover_mass_kg": 1.8,
    "avionics_power_w": 12.0,
}
RASTER = {"gsd_mm_px": 1.0, "overlap_along": 0.8, "overlap_between": 0.7, "margin_m": 0.1}
WALL = {
    **RASTER,
    "kind": "rectangle",
    "name": "wall",
    "frame": "world",
    "centre_m": [12.0, 0.0, 8.0],
    "rpy_rad": [math.pi / 2, 0.0, -math.pi / 2],  # looks west
    "size_m": [10.0, 7.0],
    "along": "x",
    "standoff_m": 5.0,
}
PIER = {
    **RASTER,
    "kind": "cylinder",
    "name": "pier",
    "frame": "world",
    "base_m": [15.0, 0.0, 0.0],
    "radius_m": 1.2,
    "height_m": 5.0,
    "angle_start_rad": 0.0,
    "angle_rad": 2 * math.pi,
    "standoff_m": 4.0,
}
DECK = {
    **RASTER,
    "kind": "underside",
    "name": "deck",
    "frame": "world",
    "centre_m": [5.0, 5.0, 9.0],
    "yaw_rad": 0.4,
    "size_m": [9.0, 6.0],
}


def camera(**changes) -> PayloadCamera:
    return parse(CAMERA | changes, PayloadCamera, "camera")


def planning(items, camera_changes=(), standoff_min_m=1.0, site=None, folder=Path("."), **changes) -> Planning:
    tables = {
        "camera": "c.toml",
        "battery": "b.toml",
        "resumable": True,
        "speed_m_s": 1.0,
        "acceleration_m_s2": 0.5,
        "yaw_rate_rad_s": 0.4,
        "settle_s": 2.0,
        "item": items,
    }
    inspection = parse(tables | changes, Inspection, "mission.toml")
    return Planning(inspection, camera(**dict(camera_changes)), site or Site(bundle=[]), folder, standoff_min_m)


def around(refusal=lambda point: "", **changes) -> Surroundings:
    leg = Leg(1.0, 0.5, 0.4)
    return Surroundings(4.0, [], leg, 0.0, 4.0, leg, leg._replace(speed_m_s=0.7), 0.4, refusal, 2.3)._replace(**changes)


def battery(**changes) -> Battery:
    return parse(BATTERY | changes, Battery, "battery")


def plan_of(items, battery_changes=(), refusal=lambda point: "", **changes):
    world = planning(items, **changes)
    return world, make_plan("test", "mission.toml", world, battery(**dict(battery_changes)), around(refusal))


def planned_surface(item, **changes):
    """An item alone: (planning, its planned form, photographs of its first order)."""
    world = planning([item], **changes)
    planned = plan_item(0, world, "mission.toml: ")
    return world, planned, [station.photograph for station in planned.orders[0]]


def shown(world, surface, photographs, uv):
    """GSD [m] of each photograph at coordinates of a surface, inf where it does not show them; (photographs, n)."""
    points, normals = surface.points(uv), surface.normals(uv)
    return np.array([seen(world.camera, p.pose, points, normals).gsd_m for p in photographs])
