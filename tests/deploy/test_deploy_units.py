"""The systemd units are valid, sandboxed, complete, and agree with the manager of `companion fly`."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from unit_files import COMMON, ROOT, UNITS, processes, settings, span_s, unit

from companion.runtime.manager import START_MAX_S, WATCHDOG_S
from companion.runtime.processes import PROCESSES

EXPOSURE_MAX = 5.0  # of 10, as `systemd-analyze security` counts
REAL_TIME = {"fcu", "estimator", "controller"}
NEEDS_NETWORK = {"fcu", "payload"}  # the flight controller and a camera may be on Ethernet
NAMES = sorted(row.name for row in PROCESSES)
# settings whose values systemd collects; any other one has its last value alone (systemd.exec(5), systemd.unit(5))
LISTS = {
    "Service.DeviceAllow",
    "Service.Environment",
    "Service.EnvironmentFile",
    "Service.IPAddressAllow",
    "Service.RestrictAddressFamilies",
    "Service.SupplementaryGroups",
    "Service.SystemCallFilter",
    "Unit.After",
    "Unit.Documentation",
    "Unit.PartOf",
    "Unit.Wants",
}
# device group of the kernel (/proc/devices) → the module that registers it; those that are never modules
DRIVERS = {"ttyUSB": "usbserial", "ttyACM": "cdc_acm", "media": "mc", "video4linux": "videodev"}
BUILT_IN = {"ttyAMA", "ttyS", "dma_heap"}
RESUME = "resume-companion.service"  # reads the former flights once, before the mission

analyze = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def test_every_process_has_a_unit_and_every_unit_a_process():
    assert processes() == set(NAMES)
    assert sorted(set(wanted_by_the_target()) - set(modprobe(DRIVERS.values()))) == sorted(
        f"companion-{name}.service" for name in NAMES
    )


def wanted_by_the_target() -> list[str]:
    return " ".join(settings(UNITS / "companion.target")["Unit.Wants"]).split()


def modprobe(modules) -> list[str]:
    return [f"modprobe@{module}.service" for module in modules]


def device_groups(found) -> set[str]:
    allowed = [line.split() for line in found.get("Service.DeviceAllow", [])]
    assert all(group.startswith("char-") and access == "rw" for group, access in allowed)
    return {group.removeprefix("char-") for group, _ in allowed}


@pytest.mark.parametrize("name", NAMES)
def test_the_driver_of_every_allowed_device_is_loaded_before_the_start(name):
    """systemd skipped a group without its driver: an adapter that was plugged in later stayed closed to the process."""
    groups = device_groups(unit(name))
    assert groups <= DRIVERS.keys() | BUILT_IN
    needed = modprobe(DRIVERS[group] for group in groups - BUILT_IN)
    assert set(needed) <= set(wanted_by_the_target())
    # in the target alone, so that a process that starts again in flight does not wait for a module
    assert "modprobe@" not in " ".join(unit(name).get("Unit.Wants", []))
    after = " ".join(unit(name).get("Unit.After", [])).split()
    assert {other for other in after if other.startswith("modprobe@")} == set(needed)


@pytest.mark.parametrize("name", NAMES)
def test_the_common_settings_override_nothing_of_a_unit(name):
    """They are read last: the camera's limit of 64 tasks was 32."""
    own = settings(UNITS / f"companion-{name}.service")
    assert own.keys() & settings(COMMON).keys() <= LISTS
    assert all(len(values) == 1 for key, values in unit(name).items() if key not in LISTS)


def test_libcamera_has_its_threads():
    assert unit("camera")["Service.TasksMax"] == ["64"]


def test_a_camera_on_a_serial_link_has_the_ports_that_the_flight_controller_has():
    serial = {
        name: {line for line in unit(name)["Service.DeviceAllow"] if line.startswith("char-tty")}
        for name in ("fcu", "payload")
    }
    assert serial["payload"] == serial["fcu"] != set()


STEREO = ROOT / "systemd/stereo-camera.conf"


def test_a_stereo_device_is_open_to_the_camera_where_its_drop_in_is_installed():
    """As the page says; the drop-in is read after the common settings, by its name."""
    page = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    (installed,) = re.findall(r"install -D -m 644 \S+/systemd/stereo-camera.conf (\S+)", page)
    assert installed.startswith("/etc/systemd/system/companion-camera.service.d/")
    assert Path(installed).name > COMMON.name
    with_it = settings(UNITS / "companion-camera.service", COMMON, STEREO)
    assert "char-usb_device rw" in with_it["Service.DeviceAllow"]
    assert "modprobe@usbcore.service" in with_it["Unit.Wants"] and "modprobe@usbcore.service" in with_it["Unit.After"]
    assert with_it["Service.PrivateNetwork"][-1] == "no"  # the events of udev
    families = set(" ".join(with_it["Service.RestrictAddressFamilies"]).split())
    assert families == {"AF_UNIX", "AF_NETLINK"}


@pytest.mark.parametrize("vendor", ["03e7", "8086"], ids=["OAK", "RealSense"])
def test_a_stereo_device_belongs_to_a_group_of_the_cameras_unit(vendor):
    rules = (ROOT / "systemd/70-companion.rules").read_text(encoding="utf-8").splitlines()
    (rule,) = [line for line in rules if f'ATTR{{idVendor}}=="{vendor}"' in line]
    group = re.search(r'GROUP="(\w+)", MODE="0660"', rule)[1]
    assert rule.startswith('SUBSYSTEM=="usb"')
    assert group in " ".join(unit("camera")["Service.SupplementaryGroups"]).split()


@analyze
def test_systemd_finds_nothing_wrong_with_the_drop_in(installed, tmp_path):
    shutil.copytree(installed, tmp_path / "root", symlinks=True)
    folder = tmp_path / "root/etc/systemd/system/companion-camera.service.d"
    folder.mkdir()
    shutil.copy(STEREO, folder / "30-stereo-camera.conf")
    command = [
        "systemd-analyze",
        "verify",
        f"--root={tmp_path / 'root'}",
        "/etc/systemd/system/companion-camera.service",
    ]
    found = subprocess.run(command, capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


@analyze
@pytest.mark.parametrize("name", ["companion.target", RESUME, *(f"companion-{name}.service" for name in NAMES)])
def test_systemd_finds_nothing_wrong_with_a_unit(installed, name):
    command = ["systemd-analyze", "verify", f"--root={installed}", f"/etc/systemd/system/{name}"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_each_start_of_the_mission_lets_the_former_flights_be_read_and_no_unit_waits_for_it():
    """The mission refuses a file that is not of its files or not of all flights; in the air the one of power-on is at hand."""
    reads, mission = settings(UNITS / RESUME), unit("mission")
    assert reads["Service.Type"] == ["oneshot"] and "Service.RemainAfterExit" not in reads  # it runs at each start
    assert reads["Service.RuntimeDirectoryPreserve"] == ["yes"] and reads["Unit.StartLimitIntervalSec"] == ["0"]
    assert reads["Unit.PartOf"] == ["companion.target"]
    assert mission["Unit.Wants"] == [RESUME]
    assert all(RESUME not in " ".join(unit(name).get("Unit.After", [])) for name in NAMES)
    kept = Path(shlex.split(reads["Service.ExecStart"][0])[-3])
    assert str(kept.parent.relative_to("/var/lib")) in " ".join(reads["Service.StateDirectory"]).split()
    written = shlex.split(reads["Service.ExecStart"][0])[-1]
    assert shlex.split(mission["Service.ExecStart"][0])[-2:] == ["--former", written]
    assert written == f"/run/{reads['Service.RuntimeDirectory'][0]}/former.json"


@analyze
def test_systemd_finds_an_error(installed, tmp_path):
    shutil.copytree(installed, tmp_path / "root", symlinks=True)
    broken = tmp_path / "root/etc/systemd/system/companion-mission.service"
    broken.write_text(broken.read_text().replace("MemoryMax=", "MemoryMaximum="))
    command = [
        "systemd-analyze",
        "verify",
        f"--root={tmp_path / 'root'}",
        "/etc/systemd/system/companion-mission.service",
    ]
    assert "MemoryMaximum" in subprocess.run(command, capture_output=True, text=True).stderr


@analyze
@pytest.mark.parametrize("name", [RESUME, *(f"companion-{name}.service" for name in NAMES)])
def test_a_process_is_sandboxed(installed, name):
    command = ["systemd-analyze", "security", "--offline=true", f"--root={installed}", name]
    found = subprocess.run(command, capture_output=True, text=True)
    exposure = float(re.search(r"Overall exposure level for \S+: ([\d.]+)", found.stdout)[1])
    print(f"{name}: exposure {exposure}")
    assert exposure < EXPOSURE_MAX


@pytest.mark.parametrize("name", NAMES)
def test_a_process_that_dies_or_hangs_runs_again_within_two_seconds(name):
    service = unit(name)
    (restart, pause, watchdog, signal) = (
        service[f"Service.{key}"][-1] for key in ("Restart", "RestartSec", "WatchdogSec", "WatchdogSignal")
    )
    assert (service["Service.Type"], restart, signal) == (["notify"], "always", "SIGKILL")
    assert span_s(watchdog) == WATCHDOG_S  # one number for the manager and for systemd
    assert span_s(service["Service.TimeoutStartSec"][-1]) == START_MAX_S
    assert span_s(watchdog) + span_s(pause) < 1.5  # and the start itself takes some tenths
    assert service["Unit.StartLimitIntervalSec"] == ["0"]  # without a limit


@pytest.mark.parametrize("name", NAMES)
def test_only_the_control_loop_has_real_time_priority(name):
    service = unit(name)
    if name not in REAL_TIME:
        assert "Service.CPUSchedulingPolicy" not in service and "Service.CPUAffinity" not in service
        return
    assert service["Service.CPUSchedulingPolicy"] == ["fifo"]
    assert 1 <= int(service["Service.CPUSchedulingPriority"][0]) < 50  # below the kernel's own interrupt threads
    # An endless loop: the watchdog has another core, and the kernel ends the loop at last.
    assert {"0", "1"}.isdisjoint(service["Service.CPUAffinity"][0].split())
    assert len(service["Service.CPUAffinity"][0].split()) < len(REAL_TIME) + 0
    assert span_s(service["Service.LimitRTTIME"][0]) < START_MAX_S


@pytest.mark.parametrize("name", NAMES)
def test_a_process_that_leaks_or_forks_is_stopped_and_only_links_have_a_network(name):
    service = unit(name)
    assert service["Service.MemoryMax"] and service["Service.TasksMax"] and service["Service.LimitCORE"] == ["0"]
    assert service.get("Service.PrivateNetwork") == (None if name in NEEDS_NETWORK else ["yes"])
    families = " ".join(service["Service.RestrictAddressFamilies"]).split()
    assert ("AF_INET" in families) == (name in NEEDS_NETWORK) and "AF_UNIX" in families
    assert service["Service.User"] == ["companion"]


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_the_shell_scripts_are_clean():
    scripts = [ROOT / "systemd/install.sh", ROOT / "systemd/companion"]
    found = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout
