"""What a preflight sees of the flight controller in a few seconds, and what can go wrong while it looks."""

import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from companion.core.enums import FcuMode, ImuFault
from companion.core.errors import UserError

T = TypeVar("T")
Number = int | float

LOCAL_HOSTS = ("127.0.0.1", "localhost")


class LinkFailed(UserError):
    """The autopilot cannot be reached or does not answer; the message is one line."""


class Unfit(StrEnum):
    """The part of a vehicle that the stack cannot fly."""

    AUTOPILOT = "autopilot"
    VEHICLE = "vehicle"


@dataclass
class Observation:
    """What was seen of the flight controller in a few seconds."""

    armed: bool = False
    landed: bool = False
    mode: FcuMode = FcuMode.UNKNOWN
    rc_ok: bool = False
    battery_voltage_v: float = math.nan  # the lowest of all battery modules, as in flight
    battery_remaining: float = math.nan  # 0..1, likewise
    gnss_fix: str = "NO_GPS"
    wrong: str = ""  # why this is not a vehicle for the stack, "" when it is one
    unfit: Unfit | None = None  # which part of it is wrong
    unhealthy: str = ""  # systems that PX4 reports as not healthy, as text
    vehicle_type: int = 0  # MAV_TYPE
    firmware: tuple[int, int, int] | None = None
    hardware: int = 0  # AUTOPILOT_VERSION.uid
    release: str = ""  # "RELEASE", "BETA", "DEV", …
    health: dict[str, bool] = field(default_factory=dict)  # MAVSDK's Health, by its field names
    satellites: int = 0
    gnss_uncertainty_m: float = math.nan  # horizontal
    # This computer's UTC minus the flight controller's UTC from GNSS.
    clock_offset_s: float | None = None
    imu_rate_hz: float = 0.0  # of HIGHRES_IMU; 0: it does not come
    imu_fault: ImuFault | None = None  # why the filter would not use it
    imu_problem: str = ""  # the same in words
    texts: list[str] = field(default_factory=list)
    rtts_s: list[float] = field(default_factory=list)  # of TIMESYNC
    offsets_s: list[float] = field(default_factory=list)  # companion minus flight controller, one per round trip


def forwarded_urls(forward: Iterable[str]) -> list[str]:
    """Where to listen for the data that the running stack forwards (fcu.forward) to this computer."""
    places = [url.removeprefix("udpout:") for url in forward]
    return [f"udpin:{place}" for place in places if place.rpartition(":")[0] in LOCAL_HOSTS]


def within(timeout_s: float, work: Callable[[], T]) -> T:
    """The result of `work`, done in a thread; raises TimeoutError when it takes longer, and abandons the thread."""
    done: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:  # noqa: BLE001 (raised again by the caller's thread)
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if raised:
        raise raised[0]
    if not done:
        raise TimeoutError(f"no answer in {timeout_s:g} s")
    return done[0]
