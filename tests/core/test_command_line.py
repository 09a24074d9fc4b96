"""What all commands share: every error of a user is one line with its exit status, outputs are checked beforehand."""

import errno
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from companion import cli
from companion.cli import main
from companion.core import command_line
from companion.core.command_line import (
    LazyGroup,
    Number,
    OutputFile,
    check_output_file,
    check_output_folder,
    one_line_errors,
    write_output,
)
from companion.core.errors import OutputError, UserError

ROOT = Path(__file__).parents[2]


def commands(group: click.Group, words: tuple[str, ...] = ()):
    """Every command below a group, as its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*words, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))


@pytest.mark.parametrize("words", [(), *commands(main)], ids=" ".join)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_every_command_lists_its_options(words, option):
    result = CliRunner().invoke(main, [*words, option])
    assert result.exit_code == 0 and result.output.startswith("Usage: companion"), result.output


@pytest.mark.parametrize(
    ("error", "line", "status"),
    [
        (UserError("no such key"), "companion: no such key", 2),
        (UserError("two\nlines"), "companion: two lines", 2),
        (PermissionError(errno.EACCES, "Permission denied", "/x/y"), "companion: /x/y: permission denied", 2),
        (OSError(errno.ENOSPC, "No space left on device"), "companion: no space left on device", 2),
        (KeyboardInterrupt(), "companion: interrupted", 130),
        (click.Abort(), "companion: interrupted", 130),
        (EOFError(), "companion: interrupted", 130),
        (
            ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib.figure"),
            "companion: the package matplotlib is not installed: install companion[report]",
            2,
        ),
        (
            ModuleNotFoundError("No module named 'mavsdk'", name="mavsdk"),
            "companion: the package mavsdk is not installed: install companion[preflight]",
            2,
        ),
    ],
)
@pytest.mark.parametrize("decorated", [True, False])
def test_an_error_is_one_line_and_its_exit_status(error, line, status, decorated):
    def fail() -> None:
        raise error

    group = LazyGroup("companion")
    group.add_command(click.command("fail")(one_line_errors(fail) if decorated else fail))
    result = CliRunner().invoke(group, ["fail"])
    assert (result.exit_code, result.stderr.strip().splitlines()) == (status, [line])


def test_an_error_of_the_program_keeps_its_traceback():
    @one_line_errors
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["simm"], "'simm'"),
        (["sim"], "SCENARIO"),
        (["sim", "bridge_hover", "--sed", "3"], "--sed"),
        (["sim", "bridge_hover", "--stack", "ful"], "'ful' is not one of"),
        (["compare", "bridge_hover", "--stacks", "ful"], "did you mean 'full'?"),
        (["fly", "bridge_hover", "--instance", "-1"], "-1"),
        (["calibrate", "camra"], "'camra'"),
    ],
)
def test_a_wrong_command_line_is_one_line(words, expected):
    result = CliRunner().invoke(main, words)
    lines = result.stderr.strip().splitlines()
    assert result.exit_code == 2 and len(lines) == 1 and lines[0].startswith("companion: ") and expected in lines[0], (
        lines
    )


# --- outputs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/dev/null/result.json", "/dev/null is not a folder"),
        ("/proc/nowhere/result.json", "cannot be written"),
        ("/proc/version", "cannot be written"),
        (".", "is a folder, must be a file"),
    ],
)
def test_an_output_file_that_cannot_be_written_is_refused(path, words):
    with pytest.raises(OutputError, match=words):
        check_output_file(Path(path))


def test_checking_an_output_leaves_nothing_behind_and_an_existing_file_alone(tmp_path):
    check_output_file(tmp_path / "a/b/result.json")
    check_output_folder(tmp_path / "flights")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old.json").write_text("old")
    check_output_file(tmp_path / "old.json")
    assert (tmp_path / "old.json").read_text() == "old"
    check_output_file(None)
    check_output_file(Path("-"))


def test_an_output_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "flights").write_text("")
    with pytest.raises(OutputError, match="is a file, must be a folder"):
        check_output_folder(tmp_path / "flights")


def test_a_result_that_cannot_be_written_is_printed_and_the_line_says_so(capsys):
    with pytest.raises(OutputError) as refused:
        write_output(Path("/dev/full"), '{"completed": true}\n')
    assert str(refused.value) == (
        "/dev/full: cannot be written: no space left on device; the result is on standard output instead"
    )
    assert capsys.readouterr().out == '{"completed": true}\n'


@pytest.mark.parametrize(
    "words",
    [
        ["sim", "bridge_hover", "--json", "/dev/null/x"],
        ["sim", "bridge_hover", "--log", "/dev/null/x"],
        ["compare", "bridge_hover", "--json", "/dev/null/x"],
        ["compare", "bridge_hover", "--plot", "/dev/null/x.png"],
        ["compare", "bridge_hover", "--plot", "x.nosuchformat"],
        ["fly", "bridge_hover", "--fcu", "sim", "--out", "/dev/null/x"],
        ["preflight", "--json", "/dev/null/x"],
        ["report", "flight.mcap", "--out", "/dev/null/x"],
    ],
    ids=" ".join,
)
def test_an_output_is_checked_before_anything_is_done(words, monkeypatch, tmp_path):
    def never(*_args, **_kwargs):
        raise AssertionError("this must not be reached")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sitl.kernels.build_missing", never)
    monkeypatch.setattr("sitl.lockstep.Lockstep.__init__", never)
    monkeypatch.setattr("companion.preflight.command.Preflight", never)
    monkeypatch.setattr("companion.recording.report.write_report", never)
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2 and len(result.stderr.strip().splitlines()) == 1, result.output
    assert list(tmp_path.iterdir()) == []


LOGS = {"f.mcap": b"\x89MCAP0\r\n", "f.ulg": b"ULog\x01\x12\x35\x01"}


def files_of_a_person(folder: Path) -> dict[str, bytes]:
    """Logs and tables in a folder, by name."""
    written = {**LOGS, "sticks.csv": b"t_s,ahead,right,climb,yaw\n0,0,0,0,0\n", "p.toml": b"[parameters]\nm = 0.2\n"}
    for name, content in written.items():
        (folder / name).write_bytes(content)
    (folder / "link.csv").symlink_to("sticks.csv")
    return written


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("tune f.ulg --json f.ulg", "f.ulg: log exists already"),
        ("tune sticks.csv --out sticks.csv", "given as LOG... and as --out"),
        ("tune sticks.csv f.ulg --out x --json x", "given as --out and as --json"),
        ("tune sticks.csv --parameters p.toml --out p.toml", "given as --parameters and as --out"),
        ("teleop --csv f.mcap", "f.mcap: log exists already"),
        ("teleop --results f.ulg", "f.ulg: log exists already"),
        ("teleop --results t.csv --csv t.csv", "name two files"),
        ("teleop --results t.csv --csv ./t.csv", "name two files"),
        ("teleop --results t.csv --log t.csv", "name two files"),
        ("teleop --sticks sticks.csv --csv sticks.csv", "given as --sticks and as --csv"),
        ("teleop --sticks sticks.csv --csv link.csv", "given as --sticks and as --csv"),
        ("teleop --parameters p.toml --csv p.toml", "name two files"),
        ("sim bridge_hover --json f.mcap", "f.mcap: log exists already"),
        ("sim bridge_hover --json x --log x", "name two files"),
        ("compare bridge_hover --json x --plot x", "name two files"),
        ("preflight --json f.ulg", "f.ulg: log exists already"),
        ("refly f.mcap --json f.mcap", "f.mcap: log exists already"),
        ("log foxglove f.mcap f.ulg", "f.ulg: log exists already"),
        ("log align f.mcap f.ulg --out f.ulg", "f.ulg: log exists already"),
        ("identify f.ulg --json f.ulg", "f.ulg: log exists already"),
        ("calibrate thrust --fit sticks.csv --json sticks.csv", "name two files"),
        ("calibrate extrinsics f.mcap --json f.mcap", "f.mcap: log exists already"),
        ("campaign p.toml --only 1 --log x --json x", "x: given as --log and as --json"),
    ],
)
def test_an_output_is_no_input_no_other_output_and_no_log(words, expected, monkeypatch, tmp_path):
    """`tune f.ulg --json f.ulg` made JSON of the flight log."""
    written = files_of_a_person(tmp_path)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, words.split())
    assert result.exit_code == 2 and len(result.stderr.strip().splitlines()) == 1, result.output
    assert expected in result.stderr, result.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if not path.is_symlink()} == written


def test_different_outputs_and_those_that_are_no_files_are_written(tmp_path):
    @click.command()
    @click.option("--out", type=OutputFile())
    @click.option("--json", "json_file", type=OutputFile())
    @click.option("--source")
    @one_line_errors
    def write(out: Path, json_file: Path, source: str) -> None:
        click.echo(f"{out} {json_file}")

    same = str(tmp_path / "x")
    for words in ("--out - --json -", "--out /dev/null --json /dev/null", f"--out {same} --json {same}.json"):
        result = CliRunner().invoke(write, [*words.split(), "--source", "a" * 300 + "/b"])
        assert result.exit_code == 0, result.output


# --- numbers --------------------------------------------------------------------------------------------------------


def test_every_number_on_a_command_line_must_be_finite():
    floats = []
    for words in commands(main):
        command = main
        for word in words:
            command = command.get_command(click.Context(command), word)
        floats += [option for option in command.params if isinstance(option.type, click.types.FloatParamType)]
    assert len(floats) > 20 and [option.name for option in floats if not isinstance(option.type, Number)] == []


@pytest.mark.parametrize("text", ["nan", "-NaN", "inf", "1e999"])
def test_a_number_that_is_not_finite_is_one_line(text):
    result = CliRunner().invoke(main, ["teleop", "--gusts", text])
    assert result.exit_code == 2 and result.stderr.startswith("companion: Invalid value for '--gusts': "), result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    with pytest.raises(click.BadParameter, match="not a finite number"):
        Number(0.0).convert(text.lstrip("-"), None, None)
    assert Number(0.0).convert("2.5", None, None) == 2.5


# --- version --------------------------------------------------------------------------------------------------------


def test_the_version_is_printed_with_its_commit():
    provenance = pytest.importorskip("companion.core.provenance")
    result = CliRunner().invoke(main, ["--version"])
    assert (result.exit_code, result.output) == (0, provenance.version_line() + "\n")
    assert result.output.startswith("companion ")


# --- packages that need not be installed ----------------------------------------------------------------------------

NODES = (
    "companion.runtime.processes", "companion.cli", "companion.runtime.fly", "companion.tracking.tracker",
    "companion.tracking.cameras", "companion.estimation.estimator", "companion.control.controller",
    "companion.fcu.fcu_node", "companion.mission.mission_node", "companion.recording.recorder",
    "companion.preflight.command", "companion.view.watch", "companion.view.safety_table",
)  # fmt: skip
BLOCK = (
    "import sys; sys.modules.update(dict.fromkeys(('matplotlib', 'jinja2', 'mavsdk', 'casadi', 'acados_template')));"
)


def without_extras(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCK + code, *words], capture_output=True, text=True, cwd=ROOT)


def test_what_flies_needs_none_of_the_optional_packages():
    result = without_extras("import importlib; [importlib.import_module(name) for name in sys.argv[1:]]", *NODES)
    assert result.returncode == 0, result.stderr


def test_the_list_of_commands_needs_none_of_the_optional_packages():
    result = without_extras("from companion.cli import main; main(['-h'])")
    assert result.returncode == 0 and "preflight" in result.stdout, result.stderr


def test_a_command_whose_package_is_missing_names_the_extra_to_install(tmp_path):
    log = tmp_path / "flight.mcap"
    log.write_bytes(b"")
    result = without_extras("from companion.cli import main; main(['report', sys.argv[1]])", str(log))
    assert result.returncode == 2
    (line,) = result.stderr.strip().splitlines()
    assert line.endswith("is not installed: install companion[report]")


def test_a_command_that_cannot_be_loaded_is_listed_with_the_reason(monkeypatch):
    def fail(name: str):
        raise ModuleNotFoundError("No module named 'mavsdk'", name="mavsdk")

    monkeypatch.setattr(command_line.importlib, "import_module", fail)
    group = LazyGroup("companion", lazy={"preflight": "x:y"})
    assert "install companion[preflight]" in CliRunner().invoke(group, ["--help"], terminal_width=200).output
    result = CliRunner().invoke(group, ["preflight", "--fcu", "sim"])
    assert result.exit_code == 2
    assert result.stderr == (
        "companion: preflight: the package mavsdk is not installed: install companion[preflight]\n"
    )


@pytest.mark.parametrize(
    ("fcu", "instance", "why"),
    [
        ("sim", 10, "its onboard port is the ground station's, 14550"),
        ("sim", 5000, "allowed: 0 to 999"),
        ("px4", 10, "allowed: 0 to 9 with PX4"),
        ("px4", 5000, "allowed: 0 to 9 with PX4"),
    ],
)
def test_an_instance_without_ports_is_refused_before_anything_is_read_or_made(
    tmp_path, monkeypatch, fcu, instance, why
):
    monkeypatch.setenv("PX4_BUILD", str(tmp_path / "none"))
    out = tmp_path / "flights"
    result = CliRunner().invoke(
        cli.main, ["fly", "bridge_hover", "--fcu", fcu, "--instance", str(instance), "--out", str(out)]
    )
    assert result.exit_code == 2 and result.stderr.startswith(f"companion: --instance {instance}: {why}"), result.stderr
    assert len(result.stderr.splitlines()) == 1 and not out.exists()
