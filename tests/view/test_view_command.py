"""The command: what it refuses with one line, and a view on another address by tokens and TLS."""

import json
import re
import shutil
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner
from running_view import running_view
from test_view_access import FILE

from companion.cli import main
from companion.core.bus import ZmqBus
from companion.core.config import ConfigError
from companion.core.folders import Hold
from companion.core.messages import FcuText
from companion.view.command import access_of, files_of_flight
from companion.view.live import LiveSource

ROOT = Path(__file__).parents[2]
LOG = str(ROOT / "tests/recording/golden/2026-11-22_by_command.mcap")
VEHICLE = ROOT / "config/vehicles/f550.toml"


def refused(*words: str) -> str:
    """The one line with which the command refuses."""
    result = CliRunner().invoke(main, ["view", *words])
    assert result.exit_code == 2, result.output
    lines = result.output.strip().splitlines()
    assert "Traceback" not in result.output
    return lines[-1]


@pytest.mark.parametrize(
    "words, line",
    [
        (("absent.mcap",), "no such log or bus folder"),
        ((str(VEHICLE),), "not a flight log"),
        ((LOG, "--window", "2"), "has 1"),
        ((LOG, "--listen", "0.0.0.0"), "view_access.token_file"),
        ((LOG, "--listen", "0.0.0.0"), "ssh -L 8717:127.0.0.1:8717"),
        ((LOG, "--listen", "0.0.0.0", "--commands"), "only on loopback"),
        ((LOG, "--listen", "192.0.2.7", "--vehicle", str(VEHICLE)), ".certificate_file"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_one_line(words, line):
    assert line in refused(*words)


def test_a_folder_without_a_stack_is_refused(tmp_path):
    assert "no stack runs on this bus" in refused(str(tmp_path))


def test_without_the_extra_one_line_names_it(monkeypatch):
    for name in [n for n in sys.modules if n.split(".")[0] == "websockets" or n == "companion.view.server"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "websockets", None)
    assert "companion[view]" in refused(LOG)


def test_a_second_view_of_a_bus_is_refused(tmp_path):
    first = LiveSource(tmp_path, {})
    with pytest.raises(ConfigError, match="view already runs on the bus"):
        LiveSource(tmp_path, {})
    first.close()
    LiveSource(tmp_path, {}).close()


def test_what_was_said_before_a_page_is_open_is_kept(tmp_path):
    fcu = ZmqBus(tmp_path, "fcu", ())
    source = LiveSource(tmp_path, {})
    for _ in range(200):
        fcu.publish(FcuText(stamp_s=source.digest.base_s + 1.0, severity=6, text="hello"))
        source._subscriber.poller.poll(20)
        source.work()
        if source.digest.events:
            break
    assert source.digest.events[0]["text"] == "hello"
    source.close()
    fcu.close()


def test_the_files_of_a_flight_are_those_of_its_processes(tmp_path):
    assert files_of_flight(tmp_path) == {"--vehicle": None, "--mission": None, "--scenario": None}
    held = Hold(tmp_path, "mission")  # by this test, which was started without such words
    assert set(files_of_flight(tmp_path).values()) == {None}
    held.release()


def test_loopback_commands_with_a_key_that_is_new_each_time():
    keys = {access_of("127.0.0.1", None, True)[2] for _ in range(5)}
    assert len(keys) == 5 and all(len(key) >= 20 for key in keys)
    assert access_of("127.0.0.1", None, False) == ([], None, "")


@pytest.fixture
def closed_vehicle(tmp_path) -> Path:
    """A vehicle file with tokens and a certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this computer makes a certificate")
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=aircraft -keyout key.pem -out cert.pem"
    subprocess.run(["openssl", *words.split()], cwd=tmp_path, check=True, capture_output=True)
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(FILE)
    tokens.chmod(0o600)
    table = '\n[view_access]\ntoken_file = "tokens.toml"\ncertificate_file = "cert.pem"\nkey_file = "key.pem"\n'
    path = tmp_path / "vehicle.toml"
    path.write_text(VEHICLE.read_text() + table)
    return path


def test_another_address_is_served_by_tokens_and_tls(closed_vehicle):
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    with running_view(LOG, "--listen", "0.0.0.0", "--vehicle", str(closed_vehicle)) as view:
        url = re.sub(r"0\.0\.0\.0", "127.0.0.1", view.url)
        assert url.startswith("https://")

        def get(path: str, **headers: str):
            return urllib.request.urlopen(
                urllib.request.Request(url + path, headers=headers), context=trusting, timeout=10
            )

        assert json.load(get("who"))["right"] is None
        answer = get("login", Authorization="Bearer " + "b" * 24)
        assert json.load(answer) == {"right": "watch", "name": "ben"}
        assert "Secure" in answer.headers["Set-Cookie"]


@pytest.mark.parametrize("listen", ["127.0.0.1", "127.0.0.2", "localhost"])
def test_an_address_of_loopback_that_is_printed_is_answered(listen):
    with running_view(LOG, "--listen", listen) as view:
        assert f"//{listen}:" in view.url
        assert json.load(urllib.request.urlopen(view.url + "who", timeout=10))["right"] == "watch"


def test_a_certificate_that_is_none_is_one_line(closed_vehicle):
    (closed_vehicle.parent / "cert.pem").write_text("nothing")
    assert "not a certificate and its key" in refused(LOG, "--listen", "0.0.0.0", "--vehicle", str(closed_vehicle))
