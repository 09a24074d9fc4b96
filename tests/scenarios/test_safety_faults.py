"""The faults of a scenario: complete or refused, and the health and computer messages of the lockstep run."""

from pathlib import Path

import msgspec
import pytest
from pymavlink.dialects.v20 import common

from companion.core.config import ConfigError
from companion.core.messages import Health, HostStatus, Image, LinkTx
from sitl.faults import EFFECTS, without_timesync
from sitl.lockstep import Lockstep
from sitl.scenario import FAULT_NUMBERS, Fault, FaultKind, load_scenario

SCENARIO = Path(__file__).parents[2] / "config/scenarios/safety/hold.toml"


def test_every_kind_of_fault_can_be_injected():
    kinds = set(FaultKind)
    assert set(EFFECTS) == kinds and set(FAULT_NUMBERS) <= kinds


@pytest.mark.parametrize(
    "fault, problem",
    [
        ('kind = "gust", value = [1.0]', r"fault\[0\] \(gust\): value has 1 numbers, needs 3"),
        ('kind = "link_lost", value = [1.0]', r"fault\[0\] \(link_lost\): value has 1 numbers, needs 0"),
        ('kind = "process_dead", name = "pilot"', "name = 'pilot': no such process"),
        ('kind = "meteor"', "kind"),
        ('kind = "motors_weak", value = [0.5, 0.5, 0.5, 0.5]', "value has 4 numbers, needs 1 or 6: the airframe has 6"),
        ('kind = "motor_stops", value = [6]', r"value = \[6.0\]: the motors of the airframe are 0 to 5"),
        ('kind = "motor_stops", value = [0.5]', r"value = \[0.5\]: the motors of the airframe are 0 to 5"),
        ('kind = "motor_stops"', "value has 0 numbers, needs 1 to 16"),
    ],
)
def test_a_fault_that_is_not_complete_is_refused_with_one_line(tmp_path, fault, problem):
    text = SCENARIO.read_text().replace('"../bridge_hover.toml"', f'"{SCENARIO.parents[1]}/bridge_hover.toml"')
    text = text.replace('"mission.toml"', f'"{SCENARIO.parent}/mission.toml"').replace(
        '"../../vehicles/', f'"{SCENARIO.parents[2]}/vehicles/'
    )
    file = tmp_path / "broken.toml"
    head, scene = text.split("[scene]")
    file.write_text(f"{head}fault = [{{ at_s = 1.0, {fault} }}]\n[scene]{scene}")
    with pytest.raises(ConfigError, match=problem) as error:
        load_scenario(file)
    assert "\n" not in str(error.value)


def test_only_timesync_is_taken_out_of_the_bytes_for_the_autopilot():
    mavlink = common.MAVLink(None, srcSystem=1, srcComponent=191)
    heartbeat = common.MAVLink_heartbeat_message(18, 8, 0, 0, 4, 3).pack(mavlink)
    timesync = common.MAVLink_timesync_message(0, 12345678901).pack(mavlink)
    for data, kept in (
        (timesync, b""),
        (heartbeat, heartbeat),
        (heartbeat + timesync + heartbeat, heartbeat + heartbeat),
        (timesync[:7], timesync[:7]),
        (b"noise" + timesync, b"noise" + timesync),
    ):
        assert without_timesync(LinkTx(stamp_s=0.0, data=data)).data == kept


def run(*faults: Fault, until_s: float = 4.0) -> Lockstep:
    loaded = load_scenario(SCENARIO)
    scenario = msgspec.structs.replace(loaded.scenario, fault=list(faults))
    lockstep = Lockstep(msgspec.structs.replace(loaded, scenario=scenario), 1)
    lockstep.start()
    lockstep.run_until(lambda: lockstep.now_s >= until_s)
    return lockstep


def test_lockstep_publishes_health_and_computer_state_as_a_flight_does():
    lockstep = run(Fault(at_s=2.1, kind="process_dead", name="tracker"))
    health: list[Health] = lockstep.messages["health"]
    assert {m.process for m in health} == set(lockstep.runners)
    for name in ("estimator", "controller", "fcu"):
        own = [m for m in health if m.process == name]
        assert len(own) >= 7 and all(abs(m.steps_per_s / m.nominal_steps_per_s - 1) < 0.05 for m in own[1:])
    assert max(m.stamp_s for m in health if m.process == "tracker") <= 2.1
    host: list[HostStatus] = lockstep.messages["host"]
    assert len(host) == 4 and not any(m.throttled for m in host)


@pytest.mark.parametrize("assumed_s", [0.06, 0.05])
def test_an_image_is_as_old_as_the_camera_is_slow_when_it_arrives(assumed_s):
    loaded = load_scenario(SCENARIO, camera_mode="corners")
    latency = msgspec.structs.replace(loaded.vehicle.latency, camera_s=assumed_s)
    vehicle = msgspec.structs.replace(loaded.vehicle, latency=latency)
    arrivals: list[tuple[float, float]] = []

    def note(message, now_s: float) -> None:
        if isinstance(message, Image):
            arrivals.append((message.stamp_s, now_s))

    lockstep = Lockstep(msgspec.structs.replace(loaded, vehicle=vehicle), 1, note)
    lockstep.start()
    lockstep.run_until(lambda: len(arrivals) >= 10)
    assert loaded.scenario.camera.latency_s == 0.06
    assert [now_s - stamp_s for stamp_s, now_s in arrivals] == pytest.approx([assumed_s] * 10, abs=1e-6)
    exposed_s = [now_s - 0.06 for _, now_s in arrivals]  # at the end of a step of the world, 30 times a second
    assert exposed_s == pytest.approx([0.032 * i for i in range(1, 11)], abs=1e-6)


def test_faults_of_the_computer_begin_and_end():
    lockstep = run(
        Fault(at_s=1.5, kind="disk_full", value=[50.0], duration_s=1.0),
        Fault(at_s=1.5, kind="cpu_starved", value=[0.5], duration_s=1.1),
    )
    free = [m.disk_free_mb for m in lockstep.messages["host"]]
    assert free[1] == 50.0 and free[0] == free[2] > 1000.0
    slow = [m.steps_per_s for m in lockstep.messages["health"] if m.process == "controller" and 2.0 <= m.stamp_s <= 2.5]
    assert slow and all(20 <= rate <= 30 for rate in slow)


def test_a_run_in_pieces_is_the_run_in_one_piece():
    loaded = load_scenario(SCENARIO)
    scenario = msgspec.structs.replace(loaded.scenario, duration_max_s=6.0)
    loaded = msgspec.structs.replace(loaded, scenario=scenario)
    whole, pieces = Lockstep(loaded, 3), Lockstep(loaded, 3)
    whole.run()
    pieces.start()
    assert pieces.run_until(lambda: pieces.now_s >= 2.0) and not pieces.run_until(lambda: False)
    first, second = (repr(run.messages) for run in (whole, pieces))  # NaN equals itself as text
    assert first == second and len(whole.messages["state"]) > 100
