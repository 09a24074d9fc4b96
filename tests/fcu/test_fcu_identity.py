"""Version and parameters of the flight controller are read once on the ground, and published for the log."""

import msgspec
import pytest

from companion.core.messages import FcuInfo
from companion.core.px4_parameters import rules
from companion.fcu.identity import REQUEST_S, TRIES, Identity
from companion.fcu.link.decoded import AutopilotVersion, ParamValue
from companion.fcu.link.params import INT32, REAL32, encode_value, name_field

VENDOR_2_0_1, COMMIT = (0x01, 0x00, 0x02), (0xC4, 0xA1, 0x2D, 0xF1, 0xD6)  # the least significant byte first
PX4_1_17 = AutopilotVersion(0, 77, 0x011100FF, 0, 0, 0, 0, 0, (*VENDOR_2_0_1, *COMMIT), (0,) * 8, (0,) * 8, (0,) * 18)


def _text(field):
    return field.decode() if isinstance(field, bytes) else field


def parameter(name, value):
    kind = INT32 if isinstance(value, int) else REAL32
    return ParamValue(encode_value(value, kind), 0, 0, name_field(name).ljust(16, b"\0"), kind)


class Peer:
    """A flight controller that answers the requests it knows."""

    def __init__(self, vehicle, values, version=PX4_1_17):
        self.values, self.version, self.requests = values, version, []
        self.identity = Identity(vehicle, self.requests.append)

    def run(self, seconds, armed=False, start_s=0.0):
        published = []
        for i in range(int(seconds * 100)):
            if (info := self.identity.step(armed, start_s + i * 0.01)) is not None:
                published.append(info)
            for request in self.requests[-1:]:
                if request.get_type() == "COMMAND_LONG" and self.version is not None:
                    self.identity.put_version(self.version)
                elif request.get_type() == "PARAM_REQUEST_READ":
                    name = _text(request.param_id).rstrip("\0")
                    if name in self.values:
                        self.identity.put_parameter(parameter(name, self.values[name]))
        return published


def names(vehicle):
    return [rule.name for rule in rules(vehicle, None, vehicle.fcu.send_odometry)]


def test_version_and_parameters_are_published_once_when_all_are_known(vehicle):
    values = {name: 3 if index % 2 else 0.5 for index, name in enumerate(names(vehicle))}
    peer = Peer(vehicle, values)
    (info,) = peer.run(20.0)
    assert isinstance(info, FcuInfo)
    assert info.version == "1.17.0 release" and info.commit == "d6f12da1c4" and info.hardware_id == 77
    assert info.parameters == values
    assert len(peer.requests) == len(values) + 1, "nothing is requested twice"


def test_no_flight_begins_with_another_flight_controller_than_the_vehicle_files(vehicle):
    def problem(hardware_id, version):
        fcu = msgspec.structs.replace(vehicle.fcu, hardware_id=hardware_id)
        peer = Peer(msgspec.structs.replace(vehicle, fcu=fcu), {}, version=version)
        peer.run(5.0)
        return peer.identity.problem

    assert problem("", PX4_1_17) == problem(f"0x{PX4_1_17.uid:016x}", PX4_1_17) == ""
    assert problem("0x0000000000000001", PX4_1_17) == (
        f"its hardware id is 0x{PX4_1_17.uid:016x}, this vehicle file belongs to 0x0000000000000001 (fcu.hardware_id): "
        "wrong aircraft or wrong file"
    )
    assert problem("0x0000000000000001", None) == "its hardware id is not known yet"
    assert problem("", None) == ""


@pytest.mark.parametrize("armed", [False, True])
def test_a_version_that_the_vehicle_file_needs_is_requested_until_it_arrives(vehicle, armed):
    """Three lost answers, or a restart of the stack in flight, refused every flight until the next restart."""
    fcu = msgspec.structs.replace(vehicle.fcu, hardware_id=f"0x{PX4_1_17.uid:016x}")
    peer = Peer(msgspec.structs.replace(vehicle, fcu=fcu), {}, version=None)
    peer.run(20.0, armed)
    versions = [request for request in peer.requests if request.get_type() == "COMMAND_LONG"]
    assert 20 <= len(versions) <= 20 + TRIES and peer.identity.problem == "its hardware id is not known yet"
    peer.version = PX4_1_17
    peer.run(1.1, armed, start_s=20.0)
    assert peer.identity.problem == ""
    asked = len(peer.requests)
    peer.run(5.0, armed=True, start_s=21.1)
    assert len(peer.requests) == asked, "nothing is requested once it is known"


def test_what_never_answers_is_left_out_after_some_tries(vehicle):
    missing = names(vehicle)[0]
    values = {name: 1 for name in names(vehicle) if name != missing}
    peer = Peer(vehicle, values, version=None)
    (info,) = peer.run(30.0)
    assert info.version == "" and missing not in info.parameters and len(info.parameters) == len(values)
    requested = [_text(r.param_id).rstrip("\0") for r in peer.requests if r.get_type() == "PARAM_REQUEST_READ"]
    assert requested.count(missing) == TRIES


def test_nothing_is_requested_in_flight_and_no_more_often_than_the_period(vehicle):
    peer = Peer(vehicle, {})
    peer.run(5.0, armed=True)
    assert peer.requests == []
    peer.run(1.0, start_s=5.0)
    assert len(peer.requests) <= 1.0 / REQUEST_S + 1


def test_a_changed_parameter_is_published_again_and_a_restart_reads_all_again(vehicle):
    values = dict.fromkeys(names(vehicle), 1)
    peer = Peer(vehicle, values)
    peer.run(20.0)
    peer.identity.put_parameter(parameter(names(vehicle)[0], 2))
    (info,) = peer.run(0.1, start_s=20.0)
    assert info.parameters[names(vehicle)[0]] == 2
    peer.identity.reset()
    assert len(peer.run(20.0, start_s=21.0)) == 1


def test_other_parameters_and_broken_ones_are_ignored(vehicle):
    identity = Identity(vehicle, lambda message: None)
    identity.put_parameter(parameter("SYS_AUTOSTART", 6001))
    identity.put_parameter(ParamValue(1.0, 0, 0, name_field(names(vehicle)[0]).ljust(16, b"\0"), 200))
    infos = [info for i in range(5000) if (info := identity.step(False, i * 0.01)) is not None]
    assert infos[-1].parameters == {}
