"""The motor test on real PX4 (its own simulation), where a build is at hand: pulse widths, stop, expiry, arming."""

import socket
import time

import msgspec
import pytest
from pymavlink.dialects.v20 import common

from calibration.thrust.bench.bench_file import load_bench
from calibration.thrust.bench.motor import TIMEOUT_S, Motor
from calibration.thrust.bench.output import OFF, state_since
from calibration.thrust.bench.pause import PauseWatch, SystemClock
from companion.core.config import ConfigError
from companion.fcu.link.link import open_link
from companion.fcu.link.sender import Sender
from sitl.px4.build import SIH_MODEL, find_build, prepare_run
from sitl.px4.process import Px4Process

READY_S, SETTLED_S = 40.0, 1.0
DISARMED_US = 950.0  # PX4's disarmed output is 900
PARAMETERS = {"THR_MDL_FAC": 0.3, "COM_RC_IN_MODE": 4, "NAV_DLL_ACT": 0}  # arms without RC and ground station
FORCED = 21196.0  # MAV_CMD_COMPONENT_ARM_DISARM without the checks of a flight


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
    etc = prepare_run(build, tmp_path / "px4", SIH_MODEL, PARAMETERS)
    motor = Motor(open_link(config.url, sender=Sender(1, 1)), config, SystemClock())
    px4 = Px4Process(build, tmp_path / "px4", etc, SIH_MODEL, instance)
    yield motor
    px4.stop()
    motor.close()


@pytest.fixture
def px4_is_healthy(motor, monkeypatch):
    """Wait until PX4 can be armed."""
    states, take = [0], motor._take

    def note(message, now_s):
        if message.get_type() == "HEARTBEAT":
            states.append(message.system_status)
        take(message, now_s)

    monkeypatch.setattr(motor, "_take", note)
    wait(motor, READY_S, until=lambda: states[-1] == common.MAV_STATE_STANDBY and motor.pwm_us > 0)
    assert states[-1] == common.MAV_STATE_STANDBY, "PX4 was not ready to arm"


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


LOW_US = 1020.0  # does not tip over the simulated aircraft, whose attitude failure would end everything


def arm(motor, forced_arm):
    motor._command(common.MAV_CMD_COMPONENT_ARM_DISARM, float(forced_arm), FORCED)


def state(motor):
    """The motor's state as the bench asks for it, within 0.3 s."""
    asked_s, found = time.monotonic(), []

    def known():
        found[:] = [state_since(motor, asked_s, 900.0, motor._config)]
        return found[0] is not None

    motor.stop()
    motor.request_state()
    wait(motor, 0.3, until=known)
    return found[0]


def outputs(motor, duration_s):
    """The outputs received in a time, without commands."""
    seen = []
    wait(motor, duration_s, until=lambda: seen.append(motor.pwm_us))
    return seen


@pytest.mark.realtime
def test_px4_has_the_outputs_that_the_bench_assumes_in_each_state(motor, px4_is_healthy):
    """The table of `calibration.thrust.bench.output`; and the heartbeat comes when it is requested."""
    assert motor.pwm_us == 900 and not motor.killed and state(motor) == OFF
    wait(motor, 0.4, LOW_US)
    arm(motor, True)
    wait(motor, 0.4, LOW_US, until=lambda: motor.refusal != "")
    assert "denied (armed" in motor.refusal
    armed = state(motor)
    assert not armed.off and "is armed and drives the motor (output 1000 µs" in armed.text
    wait(motor, SETTLED_S)
    assert motor.pwm_us == 1000 and motor.armed, "idle at PWM_MAIN_MIN: not the disarmed 900, nor that of the test"
    arm(motor, False)
    wait(motor, SETTLED_S)
    assert state(motor) == OFF and motor.pwm_us == 900

    wait(motor, 0.4, LOW_US)
    assert motor.pwm_us == LOW_US and motor.unanswered_s == 0.0, "every command is answered"
    arm(motor, True)
    during = outputs(motor, 0.15)
    arm(motor, False)
    after = outputs(motor, 0.2)
    assert 1000 in during and LOW_US in after, "a test that has not expired goes on after the disarming"
    assert state(motor) == OFF

    arm(motor, True)
    wait(motor, 0.3)
    assert motor.pwm_us == 1000
    motor._command(common.MAV_CMD_DO_FLIGHTTERMINATION, 1.0)
    wait(motor, SETTLED_S + 0.3)
    assert motor.armed and motor.killed, "the heartbeat says it; PX4's simulated outputs send nothing any more"
    arm(motor, False)
    wait(motor, SETTLED_S + 0.3)
    assert not motor.armed and motor.killed
