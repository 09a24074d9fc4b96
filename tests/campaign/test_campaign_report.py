"""The statistics are those of the textbooks, and the page holds everything that it shows."""

import re

import numpy as np
import pytest

from companion.core.messages import Contact
from sitl.campaign.charts import reach, ticks
from sitl.campaign.report import explaining, general, repeat_command, summary_lines, write_campaign_report
from sitl.campaign.statistics import Place, influences, share_of, wilson
from sitl.flight_end import contact_text
from tests.campaign.small_campaigns import row
from tests.campaign.test_campaign_store import plan
from tests.html_page import Page


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    # R. Newcombe, "Two-sided confidence intervals for the single proportion", 1998, table I, method 3
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilsons_interval(hits, of, low, high):
    share = wilson(hits, of)
    assert (share.low, share.high) == pytest.approx((low, high), abs=5e-5)
    other = wilson(of - hits, of)
    assert (1.0 - other.high, 1.0 - other.low) == pytest.approx((low, high), abs=5e-5)


def test_nothing_flown_is_no_division_by_zero():
    assert wilson(0, 0)[2:4] == (0.0, 1.0)


def test_flights_of_one_seed_that_end_alike_count_once():
    failed = [seed % 4 == 0 for seed in range(20)]
    one, three = wilson(5, 20), share_of(failed * 3, list(range(20)) * 3)
    assert (three.hits, three.of) == (
        15,
        60,
    ) and 17 < three.independent < 19  # their variance is known from 20 seeds alone
    assert one.low - 0.02 < three.low < one.low and one.high < three.high < one.high + 0.02
    assert share_of(failed, list(range(20))) == one
    none = share_of([False] * 60, list(range(20)) * 3)
    assert (none.low, none.high) == pytest.approx(wilson(0, 20)[2:4])


def test_flights_of_one_seed_that_end_as_they_may_count_nearly_all():
    rng = np.random.default_rng(7)
    share = share_of((rng.random(600) < 0.3).tolist(), list(range(200)) * 3)
    assert 450 < share.independent <= 600


@pytest.mark.parametrize(("seeds", "flights"), [(2, 50), (3, 40), (5, 20), (20, 6)])
def test_the_interval_holds_the_true_share_with_few_seeds_too(seeds, flights):
    """Shares of the seeds from a beta distribution with mean 0.3, and a correlation of 0.2 between flights of one seed."""
    rng, names = np.random.default_rng(1), np.repeat(np.arange(seeds), flights).tolist()
    held = 0
    for _ in range(500):
        hits = rng.random((seeds, flights)) < rng.beta(1.2, 2.8, seeds)[:, None]
        share = share_of(hits.ravel().tolist(), names)
        held += share.low <= 0.3 <= share.high
    assert held >= 0.92 * 500


def fields_of(n, seed):
    rng = np.random.default_rng(seed)
    return {f"field_{i}": rng.uniform(-1.0, 1.0, n).tolist() for i in range(10)}, rng


def test_the_field_that_causes_a_figure_comes_first_in_whatever_direction():
    fields, rng = fields_of(100, 1)
    fields["name"] = [str(n) for n in rng.choice(["a", "b", "c"], 100)]
    noise = rng.normal(0.0, 0.3, 100)
    for cause, figure, how in (
        ("field_3", np.array(fields["field_3"]) + noise, "high"),
        ("field_4", -(np.array(fields["field_4"]) ** 3) + noise, "low"),
        ("field_5", np.abs(fields["field_5"]) + noise, "far from its median"),
        ("name", np.array([n == "b" for n in fields["name"]]) + noise, "b"),
    ):
        first, second, *_ = influences(fields, figure.tolist())
        assert (
            (first.field, first.how) == (cause, how) and first.p < 0.005 < second.p and first.measure > second.measure
        )


def test_the_field_that_causes_failures_comes_first():
    fields, rng = fields_of(150, 2)
    failed = (np.array(fields["field_7"]) > 0.7) & (rng.random(150) < 0.8)
    first = influences(fields, failed.astype(float).tolist())[0]
    assert first.field == "field_7" and first.p < 0.005


def test_chance_is_called_so():
    """Of lists in which nothing explains anything, one in twenty has a field with p of 5 % or less."""
    found = 0
    for seed in range(40):
        fields, rng = fields_of(30, 100 + seed)
        found += influences(fields, rng.random(30).tolist())[0].p <= 0.05
    assert found <= 6  # 40 lists at 5 %: more than 6 with a probability of 1.4 %


STACKS = ("full", "paper", "px4")


def flown_by_each_stack(seeds, seed, lost=0.0):
    """Fields of each seed, and a figure that its weather makes, nearly the same for all stacks."""
    fields, rng = fields_of(seeds, seed)
    fields = {name: np.repeat(values, len(STACKS)).tolist() for name, values in fields.items()}
    figure = np.repeat(rng.normal(size=seeds), len(STACKS)) + 0.3 * rng.normal(size=len(STACKS) * seeds)
    places = [Place(i // len(STACKS), stack=STACKS[i % len(STACKS)]) for i in range(len(figure))]
    fields["stack"] = [place.stack for place in places]
    return fields, [None if rng.random() < lost else value for value in figure.tolist()], places


@pytest.mark.parametrize("lost", [0.0, 0.2])
def test_chance_is_called_so_where_each_seed_is_flown_by_several_stacks(lost):
    found = 0
    for seed in range(40):
        found += influences(*flown_by_each_stack(30, 400 + seed, lost))[0].p <= 0.05
    assert found <= 6  # as above


def test_a_cause_is_found_where_each_seed_is_flown_by_several_stacks():
    fields, figure, places = flown_by_each_stack(60, 1)
    by_field = [value + 4.0 * cause for value, cause in zip(figure, fields["field_3"], strict=True)]
    by_stack = [value + 0.3 * (place.stack == "px4") for value, place in zip(figure, places, strict=True)]
    for caused, field, how in ((by_field, "field_3", "high"), (by_stack, "stack", "px4")):
        first, second, *_ = influences(fields, caused, places)
        assert (first.field, first.how) == (field, how) and first.p < 0.005 < second.p


def test_a_single_failure_is_no_more_certain_than_its_rank_is_rare():
    """In an eighth of all orders of 8 flights the failure is the one with the largest number: rounding is no difference."""
    for seed in range(30):
        numbers = np.random.default_rng(seed).uniform(size=8)
        failed = (numbers == numbers.max()).astype(float)
        assert influences({"number": numbers.tolist()}, failed.tolist())[0].p > 0.1


def test_a_field_that_is_the_same_in_every_order_explains_nothing():
    names = {"name": [f"flight {i}" for i in range(20)]}
    assert influences(names, list(map(float, range(20))))[0].p == 1.0


def test_too_few_flights_and_equal_figures_say_nothing():
    fields, _ = fields_of(30, 3)
    assert influences(fields, [1.0] * 30) == []
    assert influences({k: v[:5] for k, v in fields.items()}, [1.0, 2.0, 3.0, 4.0, 5.0]) == []
    assert influences({"same": [1.0] * 30, "absent": [None] * 30}, list(map(float, range(30)))) == []


def test_a_crashed_flight_without_draws_does_not_drop_the_field():
    fields, _ = fields_of(40, 4)
    figure = list(fields["field_0"])
    fields["field_0"][3] = None
    assert influences(fields, figure)[0].field == "field_0"


def lacking(fields, rows):
    return {name: [None if i in rows else value for i, value in enumerate(values)] for name, values in fields.items()}


def test_fields_that_crashed_flights_lack_do_not_explain_the_crashes():
    fields, rng = fields_of(200, 5)
    fields["name"] = [str(n) for n in rng.choice(["a", "b"], 200)]
    crashed = {11, 50, 120, 199}
    assert influences(lacking(fields, crashed), [float(i in crashed) for i in range(200)]) == []
    complete = {f"other_{name}": values for name, values in fields.items() if name != "name"}
    found = influences(complete | lacking(fields, crashed), [float(i in crashed) for i in range(200)])
    assert {one.field for one in found} == set(complete), "fields of all flights are compared with the crashes"


def test_chance_is_called_so_where_crashed_flights_lack_fields():
    """Ten fields of all flights and ten that the crashed ones lack, none of which has to do with the failures."""
    found = 0
    for seed in range(40):
        some, rng = fields_of(60, 200 + seed)
        others, crashed = fields_of(60, 300 + seed)[0], set(rng.choice(60, 6, replace=False).tolist())
        failed = [float(i in crashed or rng.random() < 0.15) for i in range(60)]
        fields = some | {f"drawn.{name}": values for name, values in lacking(others, crashed).items()}
        found += influences(fields, failed)[0].p <= 0.05
    assert found <= 6  # as above


def test_a_field_that_causes_failures_is_found_though_crashed_flights_lack_it():
    fields, rng = fields_of(150, 6)
    failed = (np.array(fields["field_7"]) > 0.7) & (rng.random(150) < 0.8)
    crashed = set(rng.choice(150, 8, replace=False).tolist())
    figure = [float(bad or i in crashed) for i, bad in enumerate(failed)]
    first = influences(lacking(fields, crashed), figure)[0]
    assert (first.field, first.how) == ("field_7", "high") and first.p < 0.005


def test_ticks_are_round_and_inside():
    assert ticks(0.0, 10.0) == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert ticks(0.031, 0.058) == pytest.approx([0.035, 0.04, 0.045, 0.05, 0.055])


def test_an_outlier_does_not_hide_the_others():
    values = [1.0 + 0.01 * i for i in range(100)]
    assert reach([*values, 500.0]) == (1.0, values[-1]) and reach(values) == (1.0, values[-1])
    assert reach([3.0, 3.0])[0] < 3.0 < reach([3.0, 3.0])[1]


def test_equal_causes_are_counted_together():
    one, two = general("1.2 m beyond a limit of the mission"), general("13 m beyond a limit of the mission")
    assert one == two == "N m beyond a limit of the mission"
    assert general("Tilt near its limit (33.1°, limit 35): landed") == "Tilt near its limit: landed"


def contact(solid, p_W, speed_m_s):
    normal_W = (0.0, 0.0, 1.0)
    return contact_text(
        Contact(stamp_s=1.0, solid=solid, p_W=p_W, normal_W=normal_W, speed_m_s=speed_m_s, force_n=1.0, landing=False)
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (contact("girder_1", (1.0, 2.0, 3.0), 2.0), contact("girder_4", (1.0, 2.0, 3.0), 2.0)),
        (contact("pier 2", (1.0, 2.0, 3.0), 2.0), contact("pier 3", (1.0, 2.0, 3.0), 2.0)),
        ("contact with the structure at backdrop 0", "contact with the structure at backdrop 1"),
        ("ValueError in filter.py:120: bad", "ValueError in filter.py:310: bad"),
        ("MC_ROLL_P1 = 3: no such parameter", "MC_ROLL_P2 = 3: no such parameter"),
        ("deck-1 is near", "deck-2 is near"),
    ],
)
def test_different_causes_are_not_counted_together(one, other):
    assert general(one) != general(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (contact("girder_1", (1.0, 2.0, 3.0), 2.0), contact("girder_1", (4.0, 2.5, -3.0), 0.3)),
        ("ValueError in filter.py:120: 3 is below -2.5e-07", "ValueError in filter.py:120: 4.5 is below 1e-12"),
        ("KeyError: <Node at 0x7f3a2b>", "KeyError: <Node at 0x7f119c>"),
        ("met the ground with 1.8 m/s", "met the ground with 2 m/s"),
    ],
)
def test_numbers_of_the_flight_alone_are_no_difference(one, other):
    assert general(one) == general(other)


@pytest.fixture
def flights():
    rows = [row(n) for n in range(1, 31)]
    rows[4] |= {"outcome": "early", "cause": "Wind <too> strong (5 m/s): landed"}
    rows[9] |= {"outcome": "failed", "cause": "2.5 m beyond a limit of the mission"}
    rows[11] |= {"outcome": "failed", "cause": "3.5 m beyond a limit of the mission"}
    rows[20] = row(21, "crashed", "not finished within 60 s", trace="Traceback <here>")
    return rows


def test_the_page_has_every_cause_and_needs_no_network(tmp_path, flights):
    write_campaign_report(plan(tmp_path, 200), flights, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    page = Page(html)
    assert page.links == [] and not re.search(r"url\(|@import|<script|<link", html)
    for words in (
        "30 of 200 flights flown", "go on with --resume", "26 of 30", "27 of 30", "N m beyond a limit of the mission",
        "10, 12", "Wind <too> strong: landed", "not finished within N s", "Traceback <here>", "bundle_displaced",
        "airframe.mass_kg", "gust (15)", "Flight 21: crashed", "0123456789abcdef",
    ):  # fmt: skip
        assert words in page.text, words


def test_the_worst_flights_come_with_the_command_that_repeats_them(tmp_path, flights):
    write_campaign_report(plan(tmp_path, 30), flights, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    found = [int(n) for n in re.findall(r"--only (\d+) --log flight_\1\.mcap", html)]
    assert found[:4] == [21, 12, 10, 5] and len(found) == 10
    assert repeat_command(plan(tmp_path), 7) == f"companion campaign {tmp_path}/small.toml --only 7 --log flight_7.mcap"


def test_one_flight_and_nothing_but_crashes_make_a_page(tmp_path):
    for rows in ([row(1)], [row(n, "crashed", "killed") for n in (1, 2, 3)]):
        write_campaign_report(plan(tmp_path, 3), rows, tmp_path / "report.html")
        Page((tmp_path / "report.html").read_text())


def test_a_draw_that_is_a_field_already_is_not_compared_twice(flights):
    for flight in flights:
        flight["fields"]["unkind.thrust_scale"] = 0.9 + 0.01 * flight["flight"]
    fields = explaining(flights)
    assert "unkind.thrust_scale" in fields and "drawn.thrust_scale" not in fields
    assert fields["drawn.gnss_jumps (largest)"][0] == 5.0


def test_the_lines_for_a_terminal_have_shares_and_causes(flights):
    lines = summary_lines(flights)
    assert (
        lines[0].startswith("Completed: 86.7 % (26 of 30; 95 %: ")
        and "2 failed: N m beyond a limit of the mission" in lines
    )


def test_the_page_says_what_intervals_over_flights_of_one_seed_are_worth(tmp_path):
    rows = [
        row(
            3 * seed + i,
            "failed" if seed < 5 else "completed",
            "tipped over" if seed < 5 else "",
            seed=seed,
            stack=stack,
        )
        for seed in range(20)
        for i, stack in enumerate(STACKS)
    ]
    write_campaign_report(plan(tmp_path, 60), rows, tmp_path / "report.html")
    text = Page((tmp_path / "report.html").read_text()).text
    _, _, low, high, count = share_of([row["outcome"] == "failed" for row in rows], [row["seed"] for row in rows])
    assert f"15 of 60; 95 %: {100 * low:.1f} to {100 * high:.1f} %; as of {count:.0f} independent flights" in text
    assert any(line.startswith("Failed: 25.0 % (15 of 60; ") and "independent" in line for line in summary_lines(rows))
