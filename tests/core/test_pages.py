"""Tables, files, tests and examples of the pages agree with the code. Prose is not checked."""

import math
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from markdown.extensions.toc import slugify

from companion.cli import STACKS, main
from companion.control.controller import ControllerNode
from companion.core.config import load, parse, read_layered
from companion.core.messages import ALL_PROCESSES, TOPICS, Image, Markers
from companion.core.px4_parameters import PlannedFlight, markdown_table
from companion.core.site import load_site
from companion.core.vehicle import Vehicle
from companion.estimation.estimator import EstimatorNode
from companion.estimation.layout import ERROR_SIZE
from companion.fcu.fcu_node import FcuNode
from companion.mission.mission_node import MissionNode
from companion.mission.plan import Plan, load_plan
from companion.payload.payload_node import PayloadNode
from companion.recording.recorder import RecorderNode
from companion.runtime.processes import PROCESSES
from companion.tracking.tracker import TrackerNode

ROOT = Path(__file__).parents[2]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))}
VEHICLE = load(ROOT / "config/vehicles/f550.toml", Vehicle)
NODES_OF_TABLE = (TrackerNode, EstimatorNode, ControllerNode, FcuNode, MissionNode, PayloadNode, RecorderNode)
NODES = {node.name: node for node in NODES_OF_TABLE}
RATES_OF_VEHICLE = {
    "estimator": VEHICLE.estimator.rate_hz,
    "controller": VEHICLE.controller.rate_hz,
    "camera": VEHICLE.camera.rate_hz,
}


def table(page: str, heading: str) -> list[list[str]]:
    """Cells of the table rows of a page, in the section under a heading, without the two lines of the head."""
    section = PAGES[page].split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    assert len(lines) > 2, f"no table under {heading}"
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_topic_table_is_that_of_messages():
    documented = {}
    for name, kind, sources, rate, logged, oldest in table("architecture.md", "Topics"):
        age = math.inf if oldest == "–" else float(oldest)
        documented[code(name)[0]] = (code(kind)[0], set(sources.split(", ")), float(rate), logged == "yes", age)
    defined = {}
    for name, row in TOPICS.items():
        sources = {"every process"} if row.sources == ALL_PROCESSES else set(row.sources)
        defined[name] = (row.type.__name__, sources, float(row.rate_hz), row.logged, row.max_age_s)
    assert documented == defined


def test_the_process_table_is_that_of_processes_and_nodes():
    rows = {code(row[0])[0]: row for row in table("architecture.md", "Processes")}
    assert set(rows) == {row.name for row in PROCESSES}
    for name, (_, package, rate, inputs, outputs) in rows.items():
        node = NODES.get(name)
        assert float(rate) == RATES_OF_VEHICLE.get(name, getattr(node, "rate_hz", None)), name
        published = {t for t, row in TOPICS.items() if name in row.sources and row.sources != ALL_PROCESSES}
        assert set(code(outputs)) == published, name
        if name == "recorder":
            assert inputs == "every logged topic, `photo`"
            assert set(node.inputs) == {t for t, row in TOPICS.items() if row.logged} | {"photo"}
        else:
            assert set(code(inputs)) == set(node.inputs if node else ()), name
        if node is not None:
            assert package == node.__module__.split(".")[1], name


def test_every_command_is_described_and_exists():
    described = {code(row[0])[0].split()[1] for row in table("commands.md", "Commands")}
    assert described == set(main.list_commands(None))


def test_the_stacks_of_the_page_are_those_of_the_command_line():
    (written,) = set(re.findall(r"--stack ([a-z0-9|]+)", PAGES["scenarios.md"].replace("\\|", "|")))
    assert written.split("|") == list(STACKS)


def test_every_scenario_is_listed_with_the_source_its_file_names():
    written = {code(name)[0]: source for name, _, source in table("scenarios.md", "Scenarios")}
    files = {path.stem: path for path in (ROOT / "config/scenarios").glob("*.toml")}
    assert set(written) == set(files)
    for name, source in written.items():
        head = " ".join(files[name].read_text(encoding="utf-8").split("\n\n")[0].replace("#", " ").split())
        if source.startswith("paper 1, "):
            assert f"Paper 1 (Kalaitzakis & Vitzilaios, Robotics 2023, 12(5), 123), section {source[9:]}:" in head, name
        elif source == "Neural-Fly, table 1":
            assert head.startswith("Neural-Fly") and "table 1" in head, name
        else:
            assert source == "not in any paper" and "Paper 1" not in head and "Neural-Fly" not in head, name


def test_the_filter_table_has_all_of_the_filters_states():
    rows = table("method.md", "Filter")
    rows = rows[: next(i for i, row in enumerate(rows) if row[0] == "measurement")]
    assert sum(int(row[1]) for row in rows) == ERROR_SIZE
    assert f"{ERROR_SIZE} error components" in PAGES["method.md"]


def test_the_folder_map_names_folders_that_exist_and_every_package():
    written = {path for row in table("architecture.md", "Folders") for path in code(row[0])}
    assert all((ROOT / path).is_dir() for path in written)
    packages = {path.parent for path in (ROOT / "companion").glob("*/__init__.py")}
    assert {f"companion/{path.name}/" for path in packages} <= written


@pytest.mark.parametrize("page", PAGES)
def test_every_file_and_test_that_a_page_names_exists(page):
    text = re.sub(r"```.*?```", "", PAGES[page], flags=re.S)
    here = ROOT if page == "README.md" else ROOT / "docs"
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    missing = [link for link in links if link and not (here / link).exists()]
    folders = "companion|acados_gen|sitl|config|tests|docs"
    named = {path for path in re.findall(rf"`((?:{folders})/[\w./-]*)", text) if not path.endswith("mine.toml")}
    if page != "changelog.md":  # the history names former paths, too
        missing += [path for path in named if not (ROOT / path).exists()]
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    defined = set(re.findall(r"^def (test_\w+)", sources, flags=re.M))
    missing += [name for name in re.findall(r"`(test_\w+)`", text) if name not in defined]
    assert not missing


PX4_TABLE = re.compile(r"<!-- px4 parameters: begin[^>]*-->\n\n(.*?)\n<!-- px4 parameters: end -->", flags=re.S)
FLIGHT_OF_THE_TABLE = PlannedFlight(height_m=8.0, distance_m=15.0, switch_channel=8)  # the page names the same numbers


def test_the_px4_parameters_of_the_page_are_those_of_the_code():
    (written,) = PX4_TABLE.findall(PAGES["real_aircraft.md"])
    assert written == markdown_table(VEHICLE, FLIGHT_OF_THE_TABLE)


def test_the_command_of_the_page_prints_the_px4_parameters(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    (command,) = re.findall(r'^python -c "(.*px4_parameters.*)"$', PAGES["real_aircraft.md"], flags=re.M)
    exec(command, {})
    assert capsys.readouterr().out == markdown_table(VEHICLE, FLIGHT_OF_THE_TABLE)


def headings(page: str) -> set[str]:
    """Anchors of a page, as its site has them."""
    text = re.sub(r"```.*?```", "", page, flags=re.S)
    return {slugify(title, "-") for title in re.findall(r"^#+ (.+)$", text, flags=re.M)}


@pytest.mark.parametrize("page", PAGES)
def test_every_anchor_that_a_page_links_to_exists(page):
    text = re.sub(r"```.*?```", "", PAGES[page], flags=re.S)
    links = re.findall(r"\]\(([^)#]*)#([^)]+)\)", text)
    local = [(Path(file).name or page, anchor) for file, anchor in links if "://" not in file]
    missing = [f"{file}#{anchor}" for file, anchor in local if anchor not in headings(PAGES[file])]
    assert not missing


def checked_block(language: str, holding: str) -> str:
    blocks = re.findall(rf"<!-- checked by [\w/.]+ -->\n```{language}\n(.*?)```", PAGES["configuration.md"], flags=re.S)
    (block,) = [block for block in blocks if holding in block]
    return block


def test_the_mission_of_the_page_can_be_flown(tmp_path):
    text = checked_block("toml", "standoff")
    plan = parse(tomllib.loads(text), Plan, "README")
    assert plan.standoff.offset_M[2] == 3.0
    (tmp_path / "missions").mkdir()
    (tmp_path / "markers").symlink_to(ROOT / "config/markers")
    file = tmp_path / "missions/readme.toml"
    file.write_text(text, encoding="utf-8")
    assert load_plan(file).bundle == "pier"


def test_the_trajectory_of_the_page_can_be_flown_after_its_hold(tmp_path):
    (tmp_path / "missions").mkdir()
    (tmp_path / "markers").symlink_to(ROOT / "config/markers")
    file = tmp_path / "missions/readme.toml"
    file.write_text(checked_block("toml", "standoff") + checked_block("toml", "[trajectory]"), encoding="utf-8")
    assert load_plan(file).trajectory_at_bundle


def test_the_vehicle_file_of_the_page_changes_its_base_in_one_number(tmp_path):
    (tmp_path / "f550.toml").symlink_to(ROOT / "config/vehicles/f550.toml")
    file = tmp_path / "mine.toml"
    file.write_text(checked_block("toml", "base"), encoding="utf-8")
    assert load(file, Vehicle).controller.tilt_max_rad == 0.3
    tables = read_layered(file)
    tables["controller"]["tilt_max_rad"] = VEHICLE.controller.tilt_max_rad
    assert tables == read_layered(ROOT / "config/vehicles/f550.toml")


def test_the_printing_recipe_writes_a_page_of_true_size_for_every_marker(tmp_path, monkeypatch):
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)
    exec(checked_block("python", "savefig"), {})
    markers = load_site(ROOT / "config/markers/pier.toml").find("pier").markers
    for marker in markers:
        page = (tmp_path / f"{marker.family}_{marker.id}.pdf").read_bytes()
        width_pt = float(re.search(rb"/MediaBox \[ 0 0 ([\d.]+)", page)[1])
        assert width_pt / 72 * 0.0254 == pytest.approx(marker.size_m * 10 / 8, rel=1e-3)  # 6 cells, border, margin


def test_the_detector_of_the_page_fits_the_tracker():
    corners = np.array([[300.0, 220.0], [340.0, 220.0], [340.0, 260.0], [300.0, 260.0]])
    names = {"my_network": lambda gray: [corners]}
    exec(checked_block("python", "my_network"), names)
    tracker = TrackerNode(VEHICLE, load_site(ROOT / "config/markers/pier.toml"), detector=names["MyDetector"]())
    width, height = VEHICLE.camera.width_px, VEHICLE.camera.height_px
    answer = tracker.handle_image(Image(stamp_s=1.0, width=width, height=height, data=bytes(width * height)), 1.0)
    (markers,) = [m for m in answer if isinstance(m, Markers)]
    assert [o.bundle for o in markers.observations] == ["pier"] and tracker.counters["failed"] == 0
