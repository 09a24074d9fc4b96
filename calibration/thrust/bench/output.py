"""The state of the motor from the output of the flight controller and from its heartbeat.

PX4 1.17 (`Commander::handleCommandActuatorTest`, `MixingOutput::update` and `output_limit_calc`, `ActuatorTest::update`):

| state | output of the motor | motor test |
|---|---|---|
| disarmed | PWM_MAIN_DIS | accepted |
| motor test | PWM_MAIN_MIN to PWM_MAIN_MAX; all other motors PWM_MAIN_DIS | accepted |
| motor test expired or ended | PWM_MAIN_DIS | accepted |
| armed | PWM_MAIN_MIN or more, the controllers' command; out of a motor test at once, else within 0.5 s | denied |
| disarmed before a motor test expired | the pulse width of that test again, in one step, until its expiry or a stop | accepted |
| kill switch, lockdown | PWM_MAIN_DIS | accepted, without effect |
| termination | PWM_MAIN_FAIL, if not set PWM_MAIN_DIS | as before it |
| restart | no pulses; then disarmed | no answer |

So a pulse width of PWM_MAIN_MIN is a motor test at its lowest value or an armed flight controller, and where
PWM_MAIN_DIS equals PWM_MAIN_MIN no pulse width distinguishes disarmed from armed, only the heartbeat does.
"""

from typing import NamedTuple

from calibration.thrust.bench.bench_file import MotorConfig
from calibration.thrust.bench.motor import Motor


class MotorState(NamedTuple):
    """Whether the motor is known to be off, and the words for it."""

    off: bool
    text: str


OFF = MotorState(True, "motor off")
UNCONFIRMED = MotorState(
    False, "the motor should be off (its test expires by itself), but this is not confirmed: pull the battery plug"
)


def armed_text(pwm_us: float, config: MotorConfig) -> str:
    """What an armed flight controller does with the motor, and what a person can do."""
    return (
        f"the flight controller is armed and drives the motor (output {pwm_us:.0f} µs, idle {config.pwm_min_us:.0f} or "
        "more): the propeller may turn; disarm by RC or ground station, or pull the battery plug"
    )


def is_disarmed_level(pwm_us: float, rest_us: float, config: MotorConfig) -> bool:
    """Whether an output is no higher than `rest_us`, which was read while the flight controller was disarmed."""
    return pwm_us <= rest_us + config.tolerance_us


def state_since(motor: Motor, asked_s: float, rest_us: float, config: MotorConfig) -> MotorState | None:
    """The motor's state by messages received after `asked_s`; None while they are missing or the output is not down."""
    if motor.heartbeat_s <= asked_s or motor.pwm_s <= asked_s:
        return None
    if motor.armed:
        return MotorState(False, armed_text(motor.pwm_us, config))
    return OFF if is_disarmed_level(motor.pwm_us, rest_us, config) else None
