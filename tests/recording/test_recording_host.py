"""The state of the computer: read where the machine provides it, NaN where it does not, published once a second and logged."""

import math

import pytest

from companion.core.messages import HostStatus
from companion.recording.host import Host
from companion.recording.log import read_log
from companion.recording.recorder import RecorderNode
from companion.recording.writer import LogWriter


def system(tmp_path, files: dict[str, str]):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


PI = {
    "class/thermal/thermal_zone0/type": "cpu-thermal\n",
    "class/thermal/thermal_zone0/temp": "61234\n",
    "devices/platform/soc/soc:firmware/get_throttled": "0\n",
}


def test_a_raspberry_pi_provides_temperature_and_throttling(tmp_path):
    host = Host(tmp_path, system(tmp_path, PI))
    assert host(1.0).cpu_temperature_c == pytest.approx(61.234)
    assert not host(1.0).throttled
    firmware = tmp_path / "devices/platform/soc/soc:firmware/get_throttled"
    for bits, throttled in (("50000", False), ("50005", True), ("8", True), ("nonsense", False)):
        firmware.write_text(bits)
        assert host(1.0).throttled is throttled, bits


def test_under_voltage_is_read_from_its_alarm_where_the_firmware_file_is_missing(tmp_path):
    files = {"class/hwmon/hwmon0/name": "nvme\n", "class/hwmon/hwmon1/name": "rpi_volt\n"}
    host = Host(tmp_path, system(tmp_path, files | {"class/hwmon/hwmon1/in0_lcrit_alarm": "1\n"}))
    assert host(1.0).throttled
    (tmp_path / "class/hwmon/hwmon1/in0_lcrit_alarm").write_text("0\n")
    assert not host(1.0).throttled


def test_of_several_sensors_the_processors_is_read(tmp_path):
    zones = {"0": ("acpitz", 27800), "1": ("iwlwifi_1", 40000), "2": ("x86_pkg_temp", 71000)}
    files = {f"class/thermal/thermal_zone{i}/type": name for i, (name, _) in zones.items()}
    files |= {f"class/thermal/thermal_zone{i}/temp": str(millidegrees) for i, (_, millidegrees) in zones.items()}
    assert Host(tmp_path, system(tmp_path, files))(1.0).cpu_temperature_c == 71.0


def test_what_a_machine_does_not_tell_is_not_a_number(tmp_path):
    status = Host(tmp_path / "no such folder", tmp_path)(1.0)
    assert math.isnan(status.cpu_temperature_c) and math.isnan(status.disk_free_mb)
    assert status.throttled is False
    assert 0 <= status.cpu_load <= 1 and status.memory_free_mb > 1


def test_a_sensor_that_goes_away_or_talks_nonsense_raises_nothing(tmp_path):
    host = Host(tmp_path, system(tmp_path, PI))
    (tmp_path / "class/thermal/thermal_zone0/temp").write_text("hot")
    assert math.isnan(host(1.0).cpu_temperature_c)
    (tmp_path / "class/thermal/thermal_zone0/temp").unlink()
    (tmp_path / "devices/platform/soc/soc:firmware/get_throttled").unlink()
    status = host(1.0)
    assert math.isnan(status.cpu_temperature_c) and not status.throttled


def test_the_recorder_publishes_it_once_a_second_and_logs_what_it_publishes(tmp_path):
    def read(now_s: float) -> HostStatus:
        facts = {"disk_free_mb": 1e3, "cpu_load": 0.5, "cpu_temperature_c": math.nan, "memory_free_mb": 500.0}
        return HostStatus(stamp_s=now_s, throttled=False, **facts)

    node = RecorderNode(LogWriter(tmp_path / "flight.mcap", {}), read)
    published = [m for i in range(41) for m in node.step(100.0 + i / node.rate_hz)]
    node.close()
    assert [m.stamp_s for m in published] == [100.0 + i for i in range(11)]
    assert [m.stamp_s for m in read_log(tmp_path / "flight.mcap")["host"]] == [m.stamp_s for m in published]
