"""The UDP ports of a simulated flight, which every instance shifts by its number, as PX4 does."""

import socket

from companion.core.config import ConfigError
from sitl.autopilot.udp import GROUND_PORTS, ONBOARD_PORTS

INSTANCE_MAX = 999  # onboard ports stay below those of the ground; instances that differ by 40 share one


def check_ports_free(instance: int) -> None:
    """Raise `ConfigError` with one line when a port of this instance is in use."""
    for port in (ONBOARD_PORTS[1] + instance, ONBOARD_PORTS[0] + instance, GROUND_PORTS[0] + instance):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                raise ConfigError(
                    f"UDP port {port} is in use by another program, perhaps another simulated flight: "
                    f"choose other ports with --instance N (now {instance})"
                ) from None
