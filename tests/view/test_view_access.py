"""Who may watch and who may command: token files, wrong tokens, sessions, pages of other sites."""

import pytest

from companion.core.addresses import computer_of
from companion.core.config import ConfigError
from companion.view import access as module
from companion.view.access import Access, Person, Right, is_loopback, is_own_page, load_tokens

ANNA = Person(name="anna", right=Right.COMMAND, token="a" * 24)
BEN = Person(name="ben", right=Right.WATCH, token="b" * 24)
FILE = """
[[person]]
name = "anna"
right = "command"
token = "aaaaaaaaaaaaaaaaaaaaaaaa"
[[person]]
name = "ben"
right = "watch"
token = "bbbbbbbbbbbbbbbbbbbbbbbb"
"""


def written(tmp_path, text=FILE, mode=0o600):
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_token_file_names_persons_and_rights(tmp_path):
    assert load_tokens(written(tmp_path)) == [ANNA, BEN]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_token_file_that_others_may_read_is_refused(tmp_path, mode):
    with pytest.raises(ConfigError, match="readable by the owner only"):
        load_tokens(written(tmp_path, mode=mode))


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "needs name, right"),
        ("[[person]]\nname = 'x'\nright = 'watch'\ntoken = 'short-secret'\n", "20 characters"),
        ("[[person]]\nname = 'x'\nright = 'fly'\ntoken = 'secretsecretsecretsecret'\n", "watch or command"),
        (FILE.replace("b" * 24, "a" * 24), "same token"),
        ("secretsecretsecretsecret", "not a TOML file"),
        ("\x00\xff" * 10, "not a TOML file"),
        ("#" * 200_000, "bytes"),
    ],
)
def test_a_bad_token_file_gets_one_line_that_shows_no_token(tmp_path, text, words):
    with pytest.raises(ConfigError, match=words) as found:
        load_tokens(written(tmp_path, text))
    assert "secret" not in str(found.value) and "\n" not in str(found.value)


def test_a_token_file_that_is_absent_or_no_text_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_tokens(tmp_path / "absent.toml")
    path = written(tmp_path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_tokens(path)


def test_a_right_token_gives_a_session_with_its_right():
    gate = Access([ANNA, BEN], open_watching=False)
    for person in (ANNA, BEN):
        key, session = gate.log_in(person.token, "10.0.0.1", 0.0)
        assert gate.session(key, 1.0) is session
        assert (session.name, session.right) == (person.name, person.right)


def test_without_a_session_only_an_open_server_may_be_watched():
    assert Access([ANNA], open_watching=False).session("", 0.0) is None
    assert Access([ANNA], open_watching=True).session("forged", 0.0).right == Right.WATCH


def test_a_session_ends():
    gate = Access([ANNA], open_watching=False)
    key, _ = gate.log_in(ANNA.token, "10.0.0.1", 0.0)
    assert gate.session(key, module.SESSION_S + 1.0) is None


def test_a_session_goes_on_while_its_page_is_open_and_is_not_forgotten_for_newer_ones():
    gate = Access([ANNA, BEN], open_watching=False)
    key, session = gate.log_in(ANNA.token, "10.0.0.1", 0.0)
    gate.keep(session, module.SESSION_S - 1.0)
    assert gate.session(key, 2.0 * module.SESSION_S - 2.0) is session
    for _ in range(2 * module.SESSIONS_MAX):
        gate.log_in(BEN.token, "10.0.0.2", module.SESSION_S - 2.0)
    assert gate.session(key, module.SESSION_S) is session and len(gate._sessions) <= module.SESSIONS_MAX


def test_ten_wrong_tokens_a_second_are_limited_for_this_address_alone():
    gate = Access([ANNA], open_watching=False)
    looked_at = 0
    for i in range(600):  # a minute
        if gate.wait_s(f"{i:024d}", "10.0.0.66", 0.1 * i) == 0.0:
            assert gate.log_in(f"{i:024d}", "10.0.0.66", 0.1 * i) is None
            looked_at += 1
    assert looked_at <= module.WRONG_BURST + 60.0 / module.WRONG_REFILL_S + 1
    assert gate.log_in("wrong", "10.0.0.66", 60.0) is None and gate.wait_s("wrong", "10.0.0.66", 60.0) > 0.0
    assert gate.wait_s(ANNA.token, "10.0.0.1", 60.0) == 0.0 and gate.log_in(ANNA.token, "10.0.0.1", 60.0)


def test_a_key_that_the_view_has_drawn_never_waits_and_a_token_of_a_file_does():
    """On loopback every program has the same address; wrong tokens of one must not keep the pilot out."""
    gate = Access([ANNA, BEN], open_watching=True, key=ANNA.token)
    for _ in range(20):
        gate.log_in("wrong", "127.0.0.1", 0.0)
    assert gate.wait_s(ANNA.token, "127.0.0.1", 0.0) == 0.0 and gate.log_in(ANNA.token, "127.0.0.1", 0.0)
    assert gate.wait_s(BEN.token, "127.0.0.1", 0.0) > 0.0 and gate.wait_s("wrong", "127.0.0.1", 0.0) > 0.0
    assert Access([ANNA], open_watching=True).wait_s("", "127.0.0.1", 0.0) == 0.0  # no key is no token


def flood(gate, now_s, computers=3 * module.COMPUTERS_MAX):
    """A wrong token from each of many computers."""
    for i in range(computers):
        gate.log_in("wrong", f"10.0.{i // 256}.{i % 256}", now_s)


def test_addresses_that_are_remembered_are_bounded():
    gate = Access([ANNA], open_watching=False)
    flood(gate, 0.0)
    assert len(gate._wrong) <= module.COMPUTERS_MAX + 1
    assert gate.wait_s("wrong", "192.168.9.9", 0.0) > 0.0  # all others share one
    for i in range(3 * module.COMPUTERS_MAX):
        gate.log_in(ANNA.token, f"10.1.{i // 256}.{i % 256}", 0.0)
    assert len(gate._came_in) <= module.COMPUTERS_MAX


def test_a_flood_of_addresses_ends_for_the_others_when_it_ends():
    """All unknown ones shared one limit from then on, a week later still."""
    gate = Access([ANNA], open_watching=False)
    flood(gate, 0.0)
    for _ in range(module.WRONG_BURST):
        assert gate.wait_s("wrong", "192.168.9.9", 0.0) > 0.0
    later_s = module.WRONG_REFILL_S * (3 * module.COMPUTERS_MAX + 1)  # also of the shared one
    for _ in range(module.WRONG_BURST):
        assert gate.wait_s("wrong", "192.168.9.9", later_s) == 0.0
        gate.log_in("wrong", "192.168.9.9", later_s)
    assert gate.wait_s(ANNA.token, "192.168.9.10", later_s) == 0.0, "each has its own limit again"
    assert len(gate._wrong) <= 2


def test_a_computer_that_has_logged_in_keeps_its_own_limit_in_a_flood():
    gate = Access([ANNA], open_watching=False)
    assert gate.log_in(ANNA.token, "192.168.9.9", 0.0)
    flood(gate, 1.0)
    assert gate.wait_s(ANNA.token, "192.168.9.8", 1.0) > 0.0
    assert gate.wait_s(ANNA.token, "192.168.9.9", 1.0) == 0.0 and gate.log_in(ANNA.token, "192.168.9.9", 1.0)
    for _ in range(module.WRONG_BURST):
        gate.log_in("wrong", "192.168.9.9", 1.0)
    assert gate.wait_s(ANNA.token, "192.168.9.9", 1.0) > 0.0, "its attempts are limited, too"


def test_the_addresses_of_an_ipv6_network_are_one_computer():
    gate = Access([ANNA], open_watching=False)
    for i in range(module.COMPUTERS_MAX):
        gate.log_in("wrong", f"2001:db8::{i:x}", 0.0)
    assert len(gate._wrong) == 1
    assert gate.wait_s("wrong", "2001:db8::ffff:1", 0.0) > 0.0 and gate.wait_s("wrong", "2001:db8:0:1::1", 0.0) == 0.0
    names = {"::ffff:10.0.0.1": "10.0.0.1", "10.0.0.1": "10.0.0.1", "fe80::1%eth0": "fe80::/64", "": "", "x": "x"}
    assert {address: computer_of(address) for address in names} == names


def test_every_token_is_compared_in_constant_time(monkeypatch):
    compared = []
    monkeypatch.setattr(module.hmac, "compare_digest", lambda a, b: compared.append(a) or a == b)
    gate = Access([ANNA, BEN], open_watching=False)
    assert gate.log_in(ANNA.token, "10.0.0.1", 0.0)
    assert gate.log_in("é" * 30, "10.0.0.1", 0.0) is None
    assert len(compared) == 4


@pytest.mark.parametrize(
    "host, origin, loopback, own",
    [
        ("127.0.0.1:8717", None, True, True),
        ("127.0.0.1:8717", "http://127.0.0.1:8717", True, True),
        ("localhost:9000", "http://localhost:9000", True, True),
        ("[::1]:8717", "http://[::1]:8717", True, True),
        ("127.0.0.2:8717", "http://127.0.0.2:8717", True, True),  # as `--listen 127.0.0.2` prints it
        ("10.0.0.2:8717", "http://10.0.0.2:8717", True, False),
        ("127.0.0.1.evil.example:8717", None, True, False),
        ("aircraft:8717", "https://aircraft:8717", False, True),
        ("127.0.0.1:8717", "http://evil.example", True, False),
        ("127.0.0.1:8717", "null", True, False),
        ("evil.example:8717", "http://evil.example:8717", True, False),  # a name that points here
        ("aircraft:8717", "https://evil.example", False, False),
        (None, None, True, False),
        ("", None, False, False),
    ],
)
def test_only_the_own_page_is_answered(host, origin, loopback, own):
    assert is_own_page(host, origin, loopback) is own


@pytest.mark.parametrize(
    "site, own", [(None, True), ("same-origin", True), ("none", True), ("same-site", False), ("cross-site", False)]
)
def test_a_request_that_another_site_causes_is_refused_without_an_origin(site, own):
    assert is_own_page("127.0.0.1:8717", None, True, site) is own


def test_addresses_of_loopback():
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.1.4", "aircraft", "")))
