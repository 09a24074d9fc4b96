from pathlib import Path

import pytest
from fcu_peer import Peer

from companion.core.config import load
from companion.core.vehicle import Vehicle
from companion.fcu.fcu_node import FcuNode

F550 = Path(__file__).parents[2] / "config" / "vehicles" / "f550.toml"


@pytest.fixture(scope="session")
def vehicle():
    return load(F550, Vehicle)


@pytest.fixture
def peer(vehicle):
    """An FcuNode and a scripted flight controller that has not sent anything yet."""
    return Peer(FcuNode(vehicle))


@pytest.fixture
def flying(peer):
    """The same pair, connected, synchronised and streaming."""
    peer.run(3.0)
    assert peer.node.connected and peer.node.timesync.synced
    return peer
