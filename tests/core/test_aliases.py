"""The table of old names."""

from companion.core import aliases
from companion.core.enums import FcuMode, SafetyAction
from companion.core.messages import TOPICS


def test_the_table_leads_to_names_that_exist():
    assert set(aliases.TOPICS.values()) <= set(TOPICS)
    for topic, names in aliases.FIELDS.items():
        fields = TOPICS[topic].type.__struct_fields__
        assert set(names.values()) <= set(fields) and not set(names) & set(fields)
    for topic, values in aliases.VALUES.items():
        assert set(values) <= set(TOPICS[topic].type.__struct_fields__)


def test_old_values_of_a_message_become_present_ones():
    event = {"row": "link_lost", "action": "stop", "value": 1.0}
    assert aliases.renamed_message("safety", event) == {
        "monitor": "link_lost",
        "action": SafetyAction.STOP_STREAMING,
        "value": 1.0,
    }
    assert aliases.renamed_message("safety", {"action": "yield"})["action"] == SafetyAction.RELINQUISH
    assert aliases.renamed_message("fcu_status", {"mode": "UNKNOWN(786432)"})["mode"] == FcuMode.UNKNOWN
    assert aliases.renamed_message("state", {"p_W": [1.0]}) == {"p_W": [1.0]}


def test_the_tables_of_an_old_log_get_the_keys_that_are_newer():
    old = {"thrust": {"coefficient_m_s2": 28.5}, "safety": {}}
    assert aliases.completed("Vehicle", old)["thrust"] == {"coefficient_m_s2": 28.5, "model_factor": 0.0}
    assert old["thrust"] == {"coefficient_m_s2": 28.5}, "the given tables stay as they are"
    new = {"thrust": {"model_factor": 0.4}}
    assert aliases.completed("Vehicle", new) == new
    assert aliases.completed("Vehicle", {"thrust": 1}) == {"thrust": 1}, "a damaged table is refused by its reader"
    assert aliases.completed("Scenario", old) == old


def test_whole_tables_that_are_newer_than_a_log_are_added():
    old = {"estimator": {"rate_hz": 100}, "fcu": {}, "tracking": {}}
    tables = aliases.completed("Vehicle", old)
    assert tables["fcu"] == {"imu_rate_hz": 0.0} and tables["tracking"] == {"marker_size_std": 0.0}
    assert set(tables["estimator"]) == {"rate_hz", "camera", "imu", "specific_force"}
    tables["estimator"]["imu"]["bias_time_s"] = 7.0
    assert aliases.completed("Vehicle", old)["estimator"]["imu"]["bias_time_s"] == 100.0, "each log has its own tables"
    assert old == {"estimator": {"rate_hz": 100}, "fcu": {}, "tracking": {}}


def test_old_keys_of_a_file_move_to_their_present_table(monkeypatch):
    monkeypatch.setattr(aliases, "KEYS", {"Vehicle": {"safety.old_s": "controller.limits.new_s"}})
    tables = {"safety": {"old_s": 2.0, "other": 1}, "controller": {"rate_hz": 50}}
    moved = aliases.renamed_keys("Vehicle", tables)
    assert moved == {"safety": {"other": 1}, "controller": {"rate_hz": 50, "limits": {"new_s": 2.0}}}
    assert tables["safety"] == {"old_s": 2.0, "other": 1}, "the given tables stay as they are"
    both = {"safety": {"old_s": 2.0}, "controller": {"limits": {"new_s": 1.0}}}
    assert aliases.renamed_keys("Vehicle", both) == both, "the old key stays and is refused as unknown"
    assert aliases.renamed_keys("Scenario", tables) == tables
