"""No finished flight is lost, none is flown twice, and a folder goes on only with its own campaign and version."""

import json

import pyarrow.parquet as pq
import pytest

from companion.core import provenance
from companion.core.errors import OutputError, UserError
from sitl.campaign.flights import CampaignPlan
from sitl.campaign.fly import Outcome
from sitl.campaign.store import FLIGHTS, MANIFEST, Store
from sitl.campaign.table import write_parquet
from tests.campaign.small_campaigns import row


class Planned:
    """A flight of a plan, as far as a store looks at it."""

    def __init__(self, number):
        self.number = number


class Named:
    name = "small"
    description = "short flights"


def plan(tmp_path, flights=4, **inputs):
    return CampaignPlan(
        tmp_path / "small.toml", Named(), [Planned(n) for n in range(1, flights + 1)], {"small.toml": "1", **inputs}
    )


def refusal(kind, *arguments) -> str:
    with pytest.raises(kind) as error:
        Store(*arguments)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_resumed_campaign_has_what_is_finished_and_misses_the_rest(tmp_path):
    out = tmp_path / "out"
    first = Store(out, plan(tmp_path), False)
    first.add(row(3))
    first.add(row(1, "crashed", "killed"))
    first.close()  # as the end of the process does
    again = Store(out, plan(tmp_path), True)
    assert [r["flight"] for r in again.ordered()] == [1, 3] and [f.number for f in again.missing] == [2, 4]


def test_crashed_flights_are_flown_again_and_none_is_lost_before(tmp_path):
    out = tmp_path / "out"
    first = Store(out, plan(tmp_path), False)
    for number, outcome in ((1, "crashed"), (2, "failed"), (3, "crashed"), (4, "completed")):
        first.add(row(number, outcome, "former"))
    first.close()
    again = Store(out, plan(tmp_path), True)
    assert again.fly_again(Outcome.CRASHED) == 2 and [f.number for f in again.missing] == [1, 3]
    again.add(row(3, "completed", "new"))
    again.add(row(2, "completed", "new"))
    again.close()
    kept = Store(out, plan(tmp_path), True)
    assert kept.missing == [] and [r["cause"] for r in kept.ordered()] == ["former", "former", "new", "former"]


def test_the_first_row_of_a_flight_stays(tmp_path):
    store = Store(tmp_path / "out", plan(tmp_path), False)
    store.add(row(2, cause="first"))
    store.add(row(2, cause="second"))
    store.close()
    assert [r["cause"] for r in Store(tmp_path / "out", plan(tmp_path), True).ordered()] == ["first"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"flight": null}', b"\xff\xfe"])
def test_what_a_kill_leaves_behind_is_flown_again(tmp_path, content):
    out = tmp_path / "out"
    store = Store(out, plan(tmp_path), False)
    store.add(row(1))
    store.close()
    (out / FLIGHTS / "00002.json.part").write_bytes(content)
    (out / FLIGHTS / "00003.json").write_bytes(content)  # not by this program: a disk that failed
    again = Store(out, plan(tmp_path), True)
    assert [f.number for f in again.missing] == [2, 3, 4] and [p.name for p in again.unreadable] == ["00003.json"]
    again.add(row(3))
    assert json.loads((out / FLIGHTS / "00003.json").read_bytes())["flight"] == 3
    assert not list((out / FLIGHTS).glob("*.part"))


def test_a_folder_with_anything_else_is_refused(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("")
    for resume in (False, True):
        assert "is not empty and holds no campaign" in refusal(OutputError, out, plan(tmp_path), resume)
    (tmp_path / "file").write_text("")
    assert "is a file" in refusal(OutputError, tmp_path / "file", plan(tmp_path), False)


def test_a_campaign_goes_on_only_by_resume(tmp_path):
    Store(tmp_path / "out", plan(tmp_path), False).close()
    assert "--resume" in refusal(OutputError, tmp_path / "out", plan(tmp_path), False)


@pytest.mark.parametrize("made", [(), (".lock",), (".lock", "campaign.json.part")])
def test_a_campaign_that_was_killed_before_its_first_line_can_begin(tmp_path, made):
    out = tmp_path / "out"
    (out / FLIGHTS).mkdir(parents=True)
    for name in made:
        (out / name).write_text("{")
    assert len(Store(out, plan(tmp_path), True).missing) == 4


def test_another_campaign_file_is_refused_and_named(tmp_path):
    Store(tmp_path / "out", plan(tmp_path, **{"f550.toml": "a"}), False).close()
    line = refusal(UserError, tmp_path / "out", plan(tmp_path, **{"f550.toml": "b"}), True)
    assert "cannot be resumed: f550.toml is not what its flights were drawn from" in line
    assert "f550.toml" in refusal(UserError, tmp_path / "out", plan(tmp_path), True)


def test_another_version_of_the_project_is_refused(tmp_path, monkeypatch):
    Store(tmp_path / "out", plan(tmp_path), False).close()
    here = provenance.software()
    monkeypatch.setattr(provenance, "software", lambda: here._replace(source_hash="0" * 64))
    line = refusal(UserError, tmp_path / "out", plan(tmp_path), True)
    assert f"flown by commit {here.commit[:12]}" in line and "this is companion" in line
    assert Store.of_any_version(tmp_path / "out", plan(tmp_path)).ordered() == []


def test_a_folder_of_a_former_version_can_be_reported(tmp_path):
    """It named its files without their roles, and a mission in place of a scenario of the same name."""
    now = {
        "campaign small.toml": "1",
        "scenario hover.toml of scenario hover": "2",
        "mission hover.toml of scenario hover": "3",
    }
    Store(tmp_path / "out", CampaignPlan(tmp_path / "small.toml", Named(), [], {"small.toml": "1", "hover.toml of scenario hover": "3"}), False).close()  # fmt: skip
    manifest = json.loads((tmp_path / "out" / MANIFEST).read_bytes())
    (tmp_path / "out" / MANIFEST).write_text(json.dumps(manifest | {"source_hash": "former"}))
    assert Store.of_any_version(tmp_path / "out", CampaignPlan(tmp_path / "small.toml", Named(), [], now)).missing == []
    here = CampaignPlan(tmp_path / "small.toml", Named(), [], now | {"mission hover.toml of scenario hover": "4"})
    with pytest.raises(UserError, match="hover.toml of scenario hover is not what its flights were drawn from"):
        Store.of_any_version(tmp_path / "out", here)
    assert "its flights were flown by commit" in refusal(UserError, tmp_path / "out", here, True)


def test_two_campaigns_do_not_write_into_one_folder(tmp_path):
    first = Store(tmp_path / "out", plan(tmp_path), False)
    assert "another campaign is writing there" in refusal(OutputError, tmp_path / "out", plan(tmp_path), True)
    first.close()
    Store(tmp_path / "out", plan(tmp_path), True)


@pytest.mark.parametrize("content", [b"", b"[1]", b"nonsense"])
def test_a_broken_manifest_is_one_line(tmp_path, content):
    Store(tmp_path / "out", plan(tmp_path), False).close()
    (tmp_path / "out" / MANIFEST).write_bytes(content)
    assert "cannot be read" in refusal(UserError, tmp_path / "out", plan(tmp_path), True)


def test_the_table_has_a_row_for_every_flight_and_plain_columns(tmp_path):
    rows = [row(1), row(2, "early", "Battery low: landed"), row(3, "crashed", "killed", trace="…")]
    rows[1]["fields"]["vehicle.mass_kg"] = 2
    write_parquet(rows, tmp_path / "results.parquet")
    table = pq.read_table(tmp_path / "results.parquet")
    assert table.num_rows == 3 and table.column_names[:7] == [
        "flight",
        "scenario",
        "sensors",
        "stack",
        "seed",
        "outcome",
        "cause",
    ]
    columns = table.to_pydict()
    assert columns["flight"] == [1, 2, 3] and columns["outcome"] == ["completed", "early", "crashed"]
    assert columns["position_rms_m"] == [0.031, 0.032, None] and columns["nis.marker.mean"] == [1.0, 1.0, None]
    assert columns["airframe.mass_kg"] == pytest.approx([1.71, 1.72, 1.73]) and columns["vehicle.mass_kg"] == [
        None,
        2.0,
        None,
    ]
    *given, absent = columns["drawn.thrust_scale"]
    assert given == pytest.approx([0.91, 0.92]) and absent is None
    assert columns["position_rms_axis_m"] == [[0.01, 0.02, None]] * 2 + [None]
    assert columns["cause"][1] == "Battery low: landed" and columns["mission_cause"][1] == "of the mission"
    assert json.loads(columns["events"][0])[0]["monitor"] == "bundle_displaced" and columns["success"] == [
        True,
        False,
        None,
    ]
    assert columns["commit"][2] == "0123456789abcdef" and columns["modified"] == [False] * 3
