"""Names that have changed: the one table by which old logs and old vehicle files stay readable.

A topic, field or value is renamed here and nowhere else. The reader of logs applies the table to a message that does
not fit its present type; `companion.core.config.load` applies the table of keys to configuration files.
"""

from collections.abc import Callable, Mapping
from typing import Any

from companion.core.enums import FcuMode, SafetyAction, TopicName

TOPICS: Mapping[str, TopicName] = {
    "pilot": "mission_status",
}

# Topic → old name of a field → its present name.
FIELDS: Mapping[TopicName, Mapping[str, str]] = {
    "safety": {"row": "monitor"},
}


def _mode(value: str) -> str:
    """A mode without a name was written with its number, "UNKNOWN(50593792)"."""
    return FcuMode.UNKNOWN if value.startswith("UNKNOWN(") else value


def _action(value: str) -> str:
    return {"stop": SafetyAction.STOP_STREAMING, "yield": SafetyAction.RELINQUISH}.get(value, value)


# Topic → field (present name) → old value to present value.
VALUES: Mapping[TopicName, Mapping[str, Callable[[str], str]]] = {
    "fcu_status": {"mode": _mode},
    "safety": {"action": _action},
}

# Name of a configuration schema → old key → present key, both with the tables they stand in ("safety.old_s").
KEYS: Mapping[str, Mapping[str, str]] = {}

# Name of a configuration schema → key that logs made before it do not hold → the value with which those flights were
# flown, as far as the log can tell; a key may be a whole table. A file on disk must have every key: there are no defaults (docs/development.md).
ADDED: Mapping[str, Mapping[str, Any]] = {
    "Vehicle": {
        "safety.gnss_lost_work_s": 3600.0,  # those flights had no such limit
        "thrust.model_factor": 0.0,  # not known: PX4's default, and that of the simulated aircraft
        # Those flights had no HIGHRES_IMU, and the filter had none of these states: the smallest values that are allowed.
        "fcu.imu_rate_hz": 0.0,
        "tracking.marker_size_std": 0.0,
        "estimator.camera": {
            "rotation_rad": 1e-6,
            "lever_m": 1e-5,
            "delay_s": 1e-5,
            "bundle_scale": 1e-6,
            "slow_pose": 1e-3,
            "slow_pose_time_s": 10.0,
        },
        # Later flights: each pose was that of one image.
        "estimator.camera.corner_drift_px": 0.0,
        "estimator.camera.corner_drift_time_s": 10.0,
        # Not used without HIGHRES_IMU; as in config/vehicles/f550.toml, in case such a log is flown again with it.
        "estimator.imu": {
            "gyro_rad_sqrt_s": 0.002,
            "accel_m_s_sqrt_s": 0.03,
            "gyro_bias_rad_s": 0.003,
            "accel_bias_m_s2": 0.2,
            "bias_time_s": 100.0,
            "disturbance_m_s2_sqrt_s": [2.0, 2.0, 0.4],
        },
        "estimator.specific_force": {"std": 0.2, "window": 50, "gate_probability": 0.999},
    },
}


def topic_of(name: str) -> str:
    """The present name of a topic."""
    return TOPICS.get(name, name)


def renamed_message(topic: TopicName, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a message under their present names and with the present values."""
    names = FIELDS.get(topic, {})
    renamed = {names.get(name, name): value for name, value in fields.items()}
    for name, change in VALUES.get(topic, {}).items():
        if isinstance(renamed.get(name), str):
            renamed[name] = change(renamed[name])
    return renamed


def renamed_keys(schema: str, tables: dict[str, Any]) -> dict[str, Any]:
    """The tables of a configuration file with old keys moved to their present place.

    A key that stands under both names keeps the present one; the old one stays and is refused as unknown.
    """
    result = tables
    for old, new in KEYS.get(schema, {}).items():
        result = _moved(result, old.split("."), new.split("."))
    return result


def completed(schema: str, tables: dict[str, Any]) -> dict[str, Any]:
    """The tables of a file inside a log: present names, and the keys that are newer than the log.

    A key is added only to a table that the log holds; the given tables stay as they are.
    """
    result = renamed_keys(schema, tables)
    for key, value in ADDED.get(schema, {}).items():
        *parents, name = key.split(".")
        if isinstance(_get(result, parents), dict) and _get(result, [*parents, name]) is None:
            result = _copied(result)
            _get(result, parents)[name] = _copied(value) if isinstance(value, dict) else value
    return result


def _moved(tables: dict[str, Any], old: list[str], new: list[str]) -> dict[str, Any]:
    if _get(tables, old) is None or _get(tables, new) is not None:
        return tables
    result = _copied(tables)
    table = result
    for name in old[:-1]:
        table = table[name]
    value = table.pop(old[-1])
    table = result
    for name in new[:-1]:
        table = table.setdefault(name, {})
    table[new[-1]] = value
    return result


def _get(tables: Any, path: list[str]) -> Any:
    for name in path:
        tables = tables.get(name) if isinstance(tables, dict) else None
    return tables


def _copied(tables: dict[str, Any]) -> dict[str, Any]:
    return {key: _copied(item) if isinstance(item, dict) else item for key, item in tables.items()}
