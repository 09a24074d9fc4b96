"""The files of a simulated flight are complete when they are written again."""

from pathlib import Path

from companion.core.config import load, read_layered
from companion.planning.camera import load_camera
from companion.planning.sections import Battery
from sitl.flight_files import FlightFiles

ROOT = Path(__file__).parents[2]


def test_the_files_of_an_inspection_are_written_beside_its_mission(tmp_path):
    names = {"payload_camera": "cameras/sony_rx1_gimbal.toml", "payload_battery": "batteries/f550_4s_5ah.toml"}
    files = {name: read_layered(ROOT / "config" / file) for name, file in names.items()}
    mission = read_layered(ROOT / "config/missions/two_piers_inspection.toml")
    mission["inspection"]["item"].append({"kind": "qgc", "name": "more", "file": "../plans/more.plan"})
    FlightFiles({}, {}, mission, plans={"../plans/more.plan": "{}"}, **files).write(tmp_path)
    written = read_layered(tmp_path / "mission.toml")["inspection"]
    assert load_camera(tmp_path / written["camera"]) == load_camera(ROOT / "config" / names["payload_camera"])
    assert load(tmp_path / written["battery"], Battery).name == files["payload_battery"]["name"]
    assert (tmp_path / written["item"][-1]["file"]).read_text() == "{}"
    assert len(written["item"]) == len(mission["inspection"]["item"])
