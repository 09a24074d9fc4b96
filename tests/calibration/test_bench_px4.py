"""The motor test on real PX4 (its own simulation), where a build is at hand: pulse widths, stop, and expiry."""

import socket
import time

import msgspec
import pytest

from calibration.thrust.bench.bench_file import load_bench
from calibration.thrust.bench.motor import TIMEOUT_S, Motor
from calibration.thrust.bench.pause import PauseWatch, SystemClock
from companion.core.config import ConfigError
from companion.fcu.link.link import open_link
from sitl.px4.build import SIH_MODEL, find_build, prepare_run
from sitl.px4.process import Px4Process

READY_S, SETTLED_S = 40.0, 1.0
DISARMED_US = 950.0  # PX4's disarmed output is 900


@pytest.fixture
def motor(tmp_path, pytestconfig):
    try:
        build = find_build()
    except ConfigError as error:
        pytest.skip(str(error))
    instance = next((i for i in range(9, 0, -1) if _free(14540 + i) and _free(18570 + i)), None)
    if instance is None:
        pytest.skip("all of PX4's ports are in use")
    config = load_bench(pytestconfig.rootpath / "config/benches/hx711.toml").motor
    config = msgspec.structs.replace(config, url=f"udpin:127.0.0.1:{14540 + instance}")
    etc = prepare_run(build, tmp_path / "px4", SIH_MODEL, {"THR_MDL_FAC": 0.3})
    motor = Motor(open_link(config.url), config, SystemClock())
    px4 = Px4Process(build, tmp_path / "px4", etc, SIH_MODEL, instance)
    yield motor
    px4.stop()
    motor.close()


def _free(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait(motor, duration_s, pwm_us=None, until=lambda: False):
    end_s, cycle = time.monotonic() + duration_s, PauseWatch(SystemClock())
    if pwm_us is not None:
        motor.release()
    while time.monotonic() < end_s and not until():
        cycle.look()
        motor.poll(time.monotonic())
        if pwm_us is not None:
            motor.drive(pwm_us, cycle)
        time.sleep(0.02)


@pytest.mark.realtime
def test_px4_follows_the_motor_test_as_the_bench_assumes(motor):
    wait(motor, READY_S, until=lambda: motor.factor is not None and motor.voltage_v > 0 and motor.pwm_us > 0)
    assert motor.factor == pytest.approx(0.3) and not motor.armed
    for pwm_us in (1200.0, 1800.0):
        wait(motor, SETTLED_S, pwm_us)
        assert motor.pwm_us == pytest.approx(pwm_us, abs=1) and motor.refusal == ""
    motor.stop()
    wait(motor, 0.4)
    assert motor.pwm_us < DISARMED_US
    wait(motor, SETTLED_S, 1500.0)
    assert motor.pwm_us == pytest.approx(1500, abs=1)
    wait(motor, TIMEOUT_S + 0.6)  # no further commands
    assert motor.pwm_us < DISARMED_US
