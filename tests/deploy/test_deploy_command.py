"""The installed command has the environment of the systemd units, so that it means the same vehicle and mission."""

import os
import stat
import subprocess

import pytest
from unit_files import ROOT, environment, processes

PRINT = "#!/bin/sh\nenv\nprintf 'ARGUMENTS'\nprintf ' %s' \"$@\"\n"
OURS = ("COMPANION_VEHICLE", "COMPANION_MISSION", "COMPANION_FCU", "OMP_NUM_THREADS")


@pytest.fixture
def command(tmp_path):
    """The command with a program in the place of the installed one that prints its environment."""
    program = tmp_path / "opt/companion/current/venv/bin/companion"
    program.parent.mkdir(parents=True)
    program.write_text(PRINT)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    script = tmp_path / "companion"
    text = (ROOT / "systemd/companion").read_text()
    script.write_text(text.replace("/opt/companion/current", f"{tmp_path}/opt/companion/current"))
    script.chmod(0o755)

    def run(env_file, *words, **variables: str) -> tuple[dict[str, str], str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("COMPANION", "OMP"))}
        done = subprocess.run(
            [script, *words], env=inherited | {"COMPANION_ENV_FILE": str(env_file)} | variables,
            capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        lines, _, arguments = done.stdout.partition("ARGUMENTS ")
        return dict(line.split("=", 1) for line in lines.splitlines() if "=" in line), arguments

    return run


def test_the_command_has_the_variables_of_the_units(command):
    env_file = ROOT / "systemd/companion.env"
    found, arguments = command(env_file, "preflight", "--json", "a file.json")
    wanted = environment(sorted(processes())[0], env_file)
    assert {name: found[name] for name in OURS} == {name: wanted[name] for name in OURS}
    assert found["COMPANION_BUILD_DIR"] == wanted["COMPANION_BUILD_DIR"]
    assert found["COMPANION_CONFIG_DIR"] == "/etc/companion"
    assert arguments == "preflight --json a file.json"


def test_a_variable_that_is_set_wins_even_when_it_is_empty(command):
    env_file = ROOT / "systemd/companion.env"
    found, _ = command(env_file, "preflight", COMPANION_VEHICLE="/my/own.toml", COMPANION_FCU="")
    assert (found["COMPANION_VEHICLE"], found["COMPANION_FCU"]) == ("/my/own.toml", "")


def test_the_file_is_read_and_never_executed(command, tmp_path):
    env_file = tmp_path / "companion.env"
    env_file.write_text(
        "# comment\n; comment\n\nnot a variable\n=value\n1X=1\nA B=2\n"
        f"COMPANION_VEHICLE=$(touch {tmp_path}/executed)\n"
        'COMPANION_MISSION="/with a space.toml"\n'
        "COMPANION_FCU='serial:/dev/x:57600'\n"
        "PLAIN=a=b\\c `touch x`\n"
        "LAST=without a line end"
    )
    found, _ = command(env_file, "preflight")
    assert found["COMPANION_VEHICLE"] == f"$(touch {tmp_path}/executed)"
    assert found["COMPANION_MISSION"] == "/with a space.toml" and found["COMPANION_FCU"] == "serial:/dev/x:57600"
    assert found["PLAIN"] == "a=b\\c `touch x`" and found["LAST"] == "without a line end"
    assert not (tmp_path / "executed").exists()


def test_the_last_line_of_a_variable_counts_as_with_systemd(command, tmp_path):
    env_file = tmp_path / "companion.env"
    env_file.write_text(
        "COMPANION_VEHICLE=/first.toml\nCOMPANION_MISSION=/first.toml\nCOMPANION_FCU=udpin:first\n"
        "\t COMPANION_VEHICLE = /second.toml \t\n  # COMPANION_VEHICLE=/comment.toml\n"
        ' COMPANION_MISSION= "/with a space.toml" \n'
        "COMPANION_FCU=\nPLAIN=one\r\n"
    )
    found, _ = command(env_file, "preflight")
    assert (found["COMPANION_VEHICLE"], found["COMPANION_MISSION"]) == ("/second.toml", "/with a space.toml")
    assert (found["COMPANION_FCU"], found["PLAIN"]) == ("", "one")
    found, _ = command(env_file, "preflight", COMPANION_VEHICLE="/my/own.toml")
    assert found["COMPANION_VEHICLE"] == "/my/own.toml"


def test_without_the_file_the_command_still_runs(command, tmp_path):
    found, arguments = command(tmp_path / "absent.env", "watch")
    assert arguments == "watch" and "COMPANION_VEHICLE" not in found
    assert found["COMPANION_BUILD_DIR"] == "/opt/companion/build"
