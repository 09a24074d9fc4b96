"""The live view: rates and ages by the table, silent and failing processes, safety monitors while they are active."""

import socket
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from companion.cli import main
from companion.core.bus import ZmqBus
from companion.core.clock import monotonic_s
from companion.core.config import ConfigError
from companion.core.enums import FcuMode, ProcessName
from companion.core.messages import (
    EstimatorStatus,
    FcuStatus,
    FcuText,
    Health,
    Innovation,
    MissionStatus,
    SafetyEvent,
    SentSetpoint,
    State,
)
from companion.runtime.bus_folders import newest_bus
from companion.view import watch
from sitl.lockstep import Lockstep
from sitl.scenario import load_scenario

ROOT = Path(__file__).parents[2]


def shown(view: watch.StackView, now_s: float) -> str:
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(view.render(now_s, now_s))
    return capture.get()


def row(text: str, name: str) -> list[str]:
    """The words after a name in the first line that has it."""
    words = next(line.split() for line in text.splitlines() if name in line.split())
    return words[words.index(name) + 1 :]


def health(stamp_s=10.0, process="controller", **changes) -> Health:
    fields = {
        "pid": 7, "steps_per_s": 50.0, "nominal_steps_per_s": 50.0, "late_steps": 3, "errors": 0, "last_error": "",
        "step_time_max_s": 0.004, "cpu_s": 1.0, "memory_mb": 45.0,
    }  # fmt: skip
    return Health(stamp_s=stamp_s, process=process, **(fields | changes))


def event(active: bool) -> SafetyEvent:
    return SafetyEvent(
        stamp_s=10.0, monitor="marker_lost", active=active, value=4.0, limit=3.0, action="hold", text="marker lost"
    )


def setpoints(view: watch.StackView, rate_hz: float, until_s: float) -> None:
    for i in range(int(3 * rate_hz)):
        at_s = until_s - 3.0 + i / rate_hz
        sent = SentSetpoint(stamp_s=at_s, roll_rad=0, pitch_rad=0, yaw_rad=0, yaw_rate_rad_s=0, thrust=0.3)
        view.take(sent, at_s)


def test_a_topic_has_its_rate_the_nominal_one_and_its_age():
    view = watch.StackView()
    setpoints(view, 50.0, until_s=10.0)
    assert row(shown(view, 10.0), "sent_setpoint")[:2] == ["50.0", "50"]
    assert row(shown(view, 11.0), "sent_setpoint")[:4] == ["25.0", "50", "1", "s"]
    assert row(shown(view, 13.0), "sent_setpoint")[0] == "0.0"


def test_a_topic_without_messages_is_not_listed():
    assert "setpoint" not in shown(watch.StackView(), 10.0)
    assert "flight controller: no status" in shown(watch.StackView(), 10.0)


def test_a_process_has_its_steps_and_the_share_of_a_core_it_takes():
    view = watch.StackView()
    view.take(health(9.5, cpu_s=1.0), 9.5)
    view.take(health(10.0, cpu_s=1.1), 10.0)
    assert row(shown(view, 10.0), "controller") == ["50", "50", "3", "0", "4.0", "20%", "45"]


def test_a_silent_process_is_shown_with_its_silence_and_a_restarted_one_without_a_share():
    view = watch.StackView()
    view.take(health(10.0, cpu_s=100.0), 10.0)
    assert row(shown(view, 15.0), "controller") == ["silent", "for", "5", "s"]
    view.take(health(15.5, pid=8, cpu_s=0.1), 15.5)
    assert "%" not in " ".join(row(shown(view, 15.5), "controller"))


def test_an_error_is_shown_unchanged():
    view = watch.StackView()
    view.take(health(errors=2, last_error="ValueError: [red]x[/]"), 10.0)
    assert "ValueError: [red]x[/]" in shown(view, 10.0)


def test_a_safety_monitor_is_shown_while_it_is_active_and_its_text_stays():
    view = watch.StackView()
    view.take(event(True), 10.0)
    assert "SAFETY marker_lost: marker lost (4.00, limit 3.00) → hold" in shown(view, 10.0)
    view.take(event(False), 11.0)
    text = shown(view, 11.0)
    assert "SAFETY" not in text and "safety marker_lost: marker lost → hold" in text


def test_the_newest_texts_are_kept_and_no_more():
    view = watch.StackView()
    for i in range(watch.TEXTS + 3):
        view.take(FcuText(stamp_s=10.0, severity=6, text=f"text {i}"), 10.0)
    text = shown(view, 10.0)
    assert "px4: text 8" in text and "px4: text 2" not in text


def test_innovations_are_counted_by_sensor():
    view = watch.StackView()
    updates = [
        Innovation(stamp_s=10.0, sensor="marker", nis=nis, dof=6, accepted=nis < 20, noise_scale=1, late_s=0)
        for nis in (3.0, 9.0, 60.0)
    ]
    view.take(EstimatorStatus(stamp_s=10.0, innovations=updates, rejected={}, dropped_late=0, update_time_s=0), 10.0)
    zero, upright = (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)
    state = State(
        stamp_s=10.0, valid=False, p_W=zero, v_W=zero, q_WB=upright, disturbance_W=zero, gnss_bias_W=zero,
        velocity_bias_W=zero, bundle="", p_WM=zero, q_WM=upright, marker_age_s=1e9, position_std_m=0.1,
        relative_std_m=1e9, covariance_diag=(), battery_voltage_v=16.0, reset_count=0,
    )  # fmt: skip
    view.take(state, 10.0)
    text = shown(view, 10.0)
    assert "marker NIS 4.00, 67% used" in text and "NOT CONVERGED; position ± 10 cm" in text


def test_resets_of_the_filter_are_those_that_the_view_has_seen():
    """The count of a process begins at tenths of seconds since boot."""
    view = watch.StackView()
    zero, upright = (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)
    for stamp_s, resets in ((10.0, 81234), (10.1, 81234), (10.2, 81235), (10.3, 83000)):
        state = State(
            stamp_s=stamp_s, p_W=zero, v_W=zero, q_WB=upright, disturbance_W=zero, gnss_bias_W=zero,
            velocity_bias_W=zero, bundle="", p_WM=zero, q_WM=upright, marker_age_s=1e9, position_std_m=0.1,
            relative_std_m=1e9, covariance_diag=(), battery_voltage_v=16.0, reset_count=resets,
        )  # fmt: skip
        view.take(state, stamp_s)
    assert "resets 2" in shown(view, 10.3)


@pytest.mark.parametrize(("rate_hz", "words"), [(198.4, "IMU at 198 Hz"), (0.0, "NO IMU DATA"), (float("nan"), None)])
def test_the_rate_of_the_imu_is_shown_in_words(rate_hz, words):
    view = watch.StackView()
    status = FcuStatus(
        stamp_s=10.0, connected=True, armed=False, mode=FcuMode.POSCTL, landed=True, battery_voltage_v=16.0,
        battery_remaining=0.9, rc_ok=True, rc_channels_us=(), gnss_ok=True, home_W=None, timesync_offset_s=0.0,
        timesync_rtt_s=0.002, link_errors=0, imu_rate_hz=rate_hz,
    )  # fmt: skip
    view.take(status, 10.0)
    text = shown(view, 10.0)
    assert words in text if words else "IMU" not in text


def test_the_whole_view_fits_80_columns_without_cutting_a_figure():
    lockstep = Lockstep(load_scenario(ROOT / "config/scenarios/bridge_hover.toml", camera_mode="corners"), seed=1)
    lockstep.start()
    lockstep.run_until(lambda: lockstep.now_s > 9.95)
    view = watch.StackView()
    for messages in lockstep.messages.values():
        for message in messages:
            view.take(message, message.stamp_s)
    for name in ProcessName:
        view.take(health(9.5, name, cpu_s=1.0), 9.5)
        changes = {"steps_per_s": 4000.0, "nominal_steps_per_s": 4000.0, "late_steps": 12345, "step_time_max_s": 0.1234}
        view.take(health(10.0, name, cpu_s=1.5, memory_mb=250.0, errors=12, last_error="x" * 60, **changes), 10.0)
    view.take(event(True), 10.0)
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        console.print(view.render(10.0, 10.0))
    text = capture.get()
    assert max(map(len, text.splitlines())) <= 80 and "…" not in text
    assert row(text, "controller") == ["4000", "4000", "12345", "12", "123.4", "100%", "250"]
    assert row(text, "fcu_attitude")[1] == "50" and row(text, "state")[1] == "100"


def test_the_bus_that_was_used_last_is_watched(tmp_path):
    with pytest.raises(ConfigError, match="no running stack"):
        newest_bus(tmp_path, tmp_path / "system")
    buses = [ZmqBus(tmp_path / f"companion-{name}", "controller", ()) for name in "ab"]
    try:
        assert newest_bus(tmp_path, tmp_path / "system") == tmp_path / "companion-b"
    finally:
        for bus in buses:
            bus.close()


def test_the_command_listens_and_shows(tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "ONCE_S", 1.0)
    bus, stop = ZmqBus(tmp_path, "mission", ()), threading.Event()

    def publish() -> None:
        while not stop.is_set():
            bus.publish(mission_status(monotonic_s()))
            time.sleep(0.05)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        result = CliRunner().invoke(main, ["watch", str(tmp_path), "--once"])
        left = [path.name for path in tmp_path.iterdir()]
    finally:
        stop.set()
        thread.join()
        bus.close()
    assert result.exit_code == 0, result.output
    assert left == ["mission.sock"]
    assert "HOLD" in result.output and float(row(result.output, "mission_status")[0]) > 3.0


def left_by_a_killed_process(folder: Path, name: str) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(folder / f"{name}.sock"))
        killed.listen()


def test_what_a_killed_stack_left_behind_is_not_watched(tmp_path):
    """A newer folder with the sockets of a killed stack was shown as one that is starting."""
    bus = ZmqBus(tmp_path / "companion-a", "mission", ())
    try:
        (tmp_path / "companion-b").mkdir()
        left_by_a_killed_process(tmp_path / "companion-b", "mission")
        assert newest_bus(tmp_path, tmp_path / "system") == tmp_path / "companion-a"
    finally:
        bus.close()
    with pytest.raises(ConfigError, match="no running stack"):
        newest_bus(tmp_path, tmp_path / "system")
    result = CliRunner().invoke(main, ["watch", str(tmp_path / "companion-b"), "--once"])
    assert result.exit_code == 2 and "no stack runs on this bus" in result.output


def mission_status(stamp_s: float) -> MissionStatus:
    return MissionStatus(stamp_s=stamp_s, phase="HOLD", reason="", phase_time_s=1, finished=False, success=False,
                         photographs=0)  # fmt: skip


def test_a_mission_that_sends_no_status_is_not_shown_as_one_that_starts():
    view = watch.StackView()
    view.take(health(), 10.0)
    text = shown(view, 10.0)
    assert "starting  " not in text and "mission: no status so far" in text
    view.take(mission_status(10.0), 10.0)
    assert "HOLD" in shown(view, 10.1) and "mission:" not in shown(view, 10.1)
    assert "mission: NO STATUS for 5 s, its phase was HOLD" in shown(view, 15.0)


def test_a_view_shown_once_waits_longer_while_the_mission_has_not_reported():
    view = watch.StackView()
    assert not view.is_complete(watch.ONCE_S) and view.is_complete(watch.ONCE_MAX_S)
    view.take(health(), 10.0)
    assert not view.is_complete(watch.ONCE_S) and view.is_complete(watch.ONCE_MAX_S)
    view.take(mission_status(10.0), 10.0)
    assert not view.is_complete(watch.ONCE_S - 0.1) and view.is_complete(watch.ONCE_S)


def test_a_bus_on_which_nothing_is_published_is_said_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "ONCE_MAX_S", 0.3)
    bus = ZmqBus(tmp_path, "mission", ())
    try:
        result = CliRunner().invoke(main, ["watch", str(tmp_path), "--once"])
    finally:
        bus.close()
    assert result.exit_code == 2 and "nothing was published in 0.3 s" in result.output


def test_a_folder_without_a_stack_is_refused_with_one_line(tmp_path):
    result = CliRunner().invoke(main, ["watch", str(tmp_path)])
    assert result.exit_code == 2 and "no stack runs on this bus" in result.output
