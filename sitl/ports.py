"""The UDP ports of a simulated flight, which every instance shifts by its number, as PX4 does."""

import socket

from companion.core.config import ConfigError
from sitl.autopilot.udp import GROUND_PORTS, ONBOARD_PORTS

INSTANCE_MAX = 999  # onboard ports stay below those of the ground; instances that differ by 40 share one
PX4_INSTANCE_MAX = 9  # PX4's start-up script gives all further ones the same port (px4-rc.mavlink)


def check_instance(instance: int, px4: bool = False) -> None:
    """Raise `ConfigError` with one line when there are no ports for this instance. px4: of PX4's own build."""
    most = PX4_INSTANCE_MAX if px4 else INSTANCE_MAX
    if not 0 <= instance <= most:
        whose = " with PX4, which gives further ones the same port" if px4 else ""
        raise ConfigError(f"--instance {instance}: allowed: 0 to {most}{whose}")
    if ONBOARD_PORTS[1] + instance == GROUND_PORTS[1]:
        raise ConfigError(f"--instance {instance}: its onboard port is the ground station's, {GROUND_PORTS[1]}")


def check_ports_free(instance: int, px4: bool = False) -> None:
    """Raise `ConfigError` with one line when a port of this instance is in use, or when there are none for it."""
    check_instance(instance, px4)
    for port in (ONBOARD_PORTS[1] + instance, ONBOARD_PORTS[0] + instance, GROUND_PORTS[0] + instance):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                raise ConfigError(
                    f"UDP port {port} is in use by another program, perhaps another simulated flight: "
                    f"choose other ports with --instance N (now {instance})"
                ) from None
