"""A MAVSDK 4 client flies the PX4 emulator, as it flies PX4: from the first heartbeat to disarming."""

import math
import time

import pytest
from autopilot_process import running_autopilot
from mavsdk.connection_result import ConnectionResult
from mavsdk.logging import log_subscribe
from mavsdk.mavsdk import Configuration, Mavsdk
from mavsdk.plugins.action import Action
from mavsdk.plugins.info import Info
from mavsdk.plugins.offboard import Attitude, Offboard
from mavsdk.plugins.param import Param, ParamError, ParamResult
from mavsdk.plugins.telemetry import FlightMode, LandedState, Telemetry

CLIMB_M = 2.5
PITCH_DEG = -5.0
HOVER_THRUST = 0.344  # MPC_THR_HOVER of the F550


def wait_for(condition, timeout_s: float, what: str) -> None:
    until_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until_s, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.02)


@pytest.mark.realtime
def test_a_mavsdk_client_flies_from_connecting_to_disarming():
    log_subscribe(lambda *_: True)
    with running_autopilot() as url:
        mavsdk = Mavsdk(Configuration.create_manual(245, 190, False))
        try:
            assert mavsdk.add_any_connection(url.replace(":", "://", 1)) == ConnectionResult.SUCCESS
            system = mavsdk.first_autopilot(20.0)
            assert system is not None
            fly(system)
        finally:
            mavsdk.destroy()


def fly(system) -> None:
    telemetry, action = Telemetry(system), Action(system)
    identity_and_health(system, telemetry)
    parameters(Param(system))

    action.set_takeoff_altitude(CLIMB_M)
    action.arm()
    wait_for(telemetry.armed, 3.0, "armed")
    action.takeoff()
    wait_for(lambda: telemetry.position().relative_altitude_m > 0.8 * CLIMB_M, 15.0, "climb")
    wait_for(lambda: telemetry.flight_mode() == FlightMode.HOLD, 10.0, "hold after take-off")
    assert telemetry.in_air()

    offboard_by_attitude(Offboard(system), telemetry)
    action.hold()
    wait_for(lambda: telemetry.flight_mode() == FlightMode.HOLD, 3.0, "hold")

    action.land()
    wait_for(lambda: telemetry.landed_state() == LandedState.ON_GROUND, 25.0, "landing")
    wait_for(lambda: not telemetry.armed(), 10.0, "disarmed after landing")


def identity_and_health(system, telemetry) -> None:
    info = Info(system)
    wait_for(lambda: version_of(info) is not None, 5.0, "version")
    assert version_of(info) == (1, 17)
    wait_for(lambda: telemetry.health().is_armable, 15.0, "ready to arm")
    wait_for(telemetry.health_all_ok, 5.0, "health")
    wait_for(lambda: telemetry.battery().voltage_v > 14.0, 5.0, "battery")
    wait_for(lambda: telemetry.gps_info().num_satellites >= 8, 5.0, "satellites")
    assert telemetry.rc_status().is_available
    assert abs(telemetry.attitude_euler().roll_deg) < 3.0
    assert not telemetry.armed() and not telemetry.in_air()


def version_of(info: Info) -> tuple[int, int] | None:
    try:
        version = info.get_version()
    except Exception:  # noqa: BLE001 (not received yet)
        return None
    return version.flight_sw_major, version.flight_sw_minor


def parameters(param: Param) -> None:
    """One of each type is read, set and read again; another type or an unknown name is refused."""
    assert param.get_param_int("COM_OBL_RC_ACT") == 0
    param.set_param_int("COM_OBL_RC_ACT", 4)
    assert param.get_param_int("COM_OBL_RC_ACT") == 4
    param.set_param_float("COM_OF_LOSS_T", 0.75)
    assert param.get_param_float("COM_OF_LOSS_T") == 0.75
    listed = param.get_all_params()
    assert {p.name: p.value for p in listed.int_params}["COM_OBL_RC_ACT"] == 4
    assert {p.name: p.value for p in listed.float_params}["COM_OF_LOSS_T"] == 0.75
    with pytest.raises(ParamError) as refused:
        param.get_param_float("COM_OBL_RC_ACT")
    assert refused.value.result == ParamResult.WRONG_TYPE


def offboard_by_attitude(offboard: Offboard, telemetry) -> None:
    """Level first, then a nose-down attitude that is reached, then level again."""
    yaw_deg = telemetry.attitude_euler().yaw_deg
    offboard.set_attitude(Attitude(0.0, 0.0, yaw_deg, HOVER_THRUST))
    offboard.start()
    wait_for(lambda: telemetry.flight_mode() == FlightMode.OFFBOARD, 3.0, "offboard")
    offboard.set_attitude(Attitude(0.0, PITCH_DEG, yaw_deg, HOVER_THRUST))
    wait_for(lambda: abs(telemetry.attitude_euler().pitch_deg - PITCH_DEG) < 1.0, 3.0, "pitch")
    time.sleep(0.5)
    reached = telemetry.attitude_euler()
    assert reached.pitch_deg == pytest.approx(PITCH_DEG, abs=1.0) and abs(reached.roll_deg) < 1.5
    velocity = telemetry.velocity_ned()
    forward = velocity.north_m_s * math.cos(math.radians(yaw_deg)) + velocity.east_m_s * math.sin(math.radians(yaw_deg))
    assert forward > 0.1  # nose down flies forward
    offboard.set_attitude(Attitude(0.0, 0.0, yaw_deg, HOVER_THRUST))
    offboard.stop()
