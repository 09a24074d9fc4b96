"""The command line of the remote: what a user can get wrong is one line."""

import os
import socket
import ssl
from urllib.request import urlopen

import pytest
from click.testing import CliRunner, Result

from companion.cli import main
from companion.core.config import ConfigError
from companion.core.errors import UserError
from companion.remote.aircraft import Aircraft
from companion.remote.command import open_tls, read_token
from companion.remote.station import Station
from tests.remote.latency import certificate, serving


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["remote", *arguments])


@pytest.mark.parametrize(
    "arguments, line",
    [
        (["--listen", "0.0.0.0"], "needs --tls-cert, --tls-key and --token-file"),
        (["--listen", "pilot.local"], "must be an address"),
        (["--tls-cert", "cert.pem"], "belong together"),
        (["--tls-cert", "nothing.pem", "--tls-key", "nothing.pem"], "nothing.pem: no such file"),
        (["--token-file", "nothing.txt"], "--token-file nothing.txt: no such file"),
        (["--gamepad", "/dev/input/js99"], "--gamepad /dev/input/js99: no such file"),
        (["--fcu", "udp:somewhere"], "link 'udp:somewhere': not one of"),
        (["--fcu", "udpin:127.0.0.1:14999", "--scenario", "bridge_hover"], "only with --fcu sim"),
        (["--port", "99999"], "--port"),
        (["--expo", "2"], "--expo"),
    ],
)
def test_a_wrong_option_is_one_line(arguments, line):
    result = run(*arguments)
    assert result.exit_code == 2 and line in result.stderr, result.stderr
    assert result.stderr.count("\n") == 1


def test_a_port_in_use_is_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run("--fcu", "udpout:127.0.0.1:9", "--port", str(port))
    assert result.exit_code == 2 and f"127.0.0.1:{port}: " in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "127.8.9.1"])
def test_loopback_needs_no_tls(address):
    assert open_tls(address, None, None, None) is None


@pytest.mark.parametrize("text", ["", "short", "with a space in it all", "é" * 20, "x" * 15])
def test_a_weak_token_is_refused(tmp_path, text):
    file = tmp_path / "token"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    with pytest.raises(ConfigError, match="at least 16"):
        read_token(file)


def test_a_token_file_is_the_owners_alone(tmp_path):
    file = tmp_path / "token"
    file.write_text("a-long-token-of-letters_and_digits_1\n")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_token(file)
    file.chmod(0o600)
    assert read_token(file) == "a-long-token-of-letters_and_digits_1"
    os.remove(file)
    with pytest.raises(UserError, match="no such file"):
        read_token(file)


def test_the_page_is_served_by_tls_with_the_token_of_a_file(tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    context = certificate(tmp_path)
    with pytest.raises(ConfigError, match="needs --tls-cert"):
        open_tls("0.0.0.0", cert, key, None)
    with serving(Station(Aircraft(), "x" * 16), "udpout:127.0.0.1:9", context) as (port, _):
        trusting = ssl.create_default_context(cafile=cert)
        trusting.check_hostname = False
        with urlopen(f"https://127.0.0.1:{port}/", timeout=10, context=trusting) as answer:
            assert b"Remote" in answer.read()
