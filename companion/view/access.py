"""Who may watch and who may command: tokens, sessions, and which addresses and pages the server answers.

Watching and commanding are separate rights. A token file (TOML, readable by its owner only) names each person:

    [[person]]
    name = "anna"
    right = "command"        # or "watch"
    token = "…"              # at least 20 characters

A browser sends its token once and gets a session in a cookie. Tokens are compared in constant time; wrong ones are
limited by computer. A computer that has logged in once keeps a limit of its own however many others try. A page of another site can neither use a session nor spend the attempts of this computer: its origin
differs from the host it calls, and it cannot send the header that a token comes in.
"""

import hmac
import ipaddress
import math
import os
import secrets
import stat
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from companion.core.addresses import computer_of
from companion.core.config import ConfigError, Section, parse

TOKEN_MIN = 20  # characters: 100 bits of base 32
WRONG_BURST = 5  # wrong tokens from one computer before it has to wait
WRONG_REFILL_S = 12.0  # and one more after each of these times
COMPUTERS_MAX = 1000  # with a limit of their own; beyond, all that have never logged in share one
SESSION_S = 12 * 3600.0  # after its last page was closed
SESSIONS_MAX = 200
OWN_SITES = (
    None,
    "same-origin",
    "none",
)  # of a request, as a browser states it; "none": an address that a person entered
FILE_MAX_BYTES = 100_000


class Right(StrEnum):
    """What a person may do."""

    WATCH = "watch"
    COMMAND = "command"  # and watch


class Person(Section, frozen=True):
    """A row of the token file."""

    name: Annotated[str, Meta(min_length=1, max_length=40)]
    right: Right
    token: Annotated[str, Meta(min_length=TOKEN_MIN, max_length=400)]


class TokenFile(Section, frozen=True):
    """A token file."""

    person: Annotated[list[Person], Meta(min_length=1, max_length=100)]


def load_tokens(path: Path) -> list[Person]:
    """The persons of a token file; raises `ConfigError`, also where others than the owner may read the file."""
    try:
        found = path.stat()
        if found.st_size > FILE_MAX_BYTES:
            raise ConfigError(f"{path}: {found.st_size} bytes, a token file has at most {FILE_MAX_BYTES}")
        if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid != os.geteuid():
            raise ConfigError(f"{path}: must belong to this user and be readable by the owner only (chmod 600)")
        tables = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except tomllib.TOMLDecodeError:
        raise ConfigError(f"{path}: not a TOML file") from None  # without the line: it may hold a token
    try:
        persons = parse(tables, TokenFile, "").person
    except ConfigError:  # its words may quote a token
        words = f"each [[person]] needs name, right (watch or command) and token ({TOKEN_MIN} characters or more)"
        raise ConfigError(f"{path}: {words}") from None
    if len({person.token for person in persons}) < len(persons):
        raise ConfigError(f"{path}: two persons have the same token")
    return persons


def is_loopback(address: str) -> bool:
    """Whether an address of a socket is this computer's own."""
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


class Session:
    """A browser that is let in."""

    def __init__(self, name: str, right: Right, until_s: float) -> None:
        self.name, self.right, self.until_s = name, right, until_s


class Access:
    """Lets browsers in.

    persons: of the token file. open_watching: watching needs no token (the server listens on loopback alone). key: a token of
    the persons that this program has drawn. It never has to wait: no number of attempts finds 192 random bits, and on
    loopback all programs of the computer share one address. A token that a person chose may be weaker, and waits.
    """

    def __init__(self, persons: list[Person], open_watching: bool, key: str = "") -> None:
        self._persons = [(person, person.token.encode()) for person in persons]
        self._key = key.encode()
        self._open_watching = open_watching
        self._sessions: dict[str, Session] = {}
        self._wrong: dict[str, tuple[float, float]] = {}  # tokens left, and when, by computer; "": shared
        self._came_in: dict[str, None] = {}  # computers that have logged in, the newest last
        self.wrong = 0  # tokens, since the start

    def wait_s(self, token: str, address: str, now_s: float) -> float:
        """How long an address has to wait before this token is looked at [s]."""
        if self._key and hmac.compare_digest(self._key, token.encode(errors="replace")):
            return 0.0
        left = self._left(self._counted_for(address, now_s), now_s)
        return 0.0 if left >= 1.0 else (1.0 - left) * WRONG_REFILL_S

    def log_in(self, token: str, address: str, now_s: float) -> tuple[str, Session] | None:
        """A new session and its key; None for a wrong token. Ask `wait_s` before."""
        offered, found = token.encode(errors="replace"), None
        for person, known in self._persons:  # all of them, so that the time does not depend on which one is right
            if hmac.compare_digest(known, offered):
                found = person
        if found is None:
            self.wrong += 1
            computer = self._counted_for(address, now_s)
            self._wrong[computer] = (self._left(computer, now_s) - 1.0, now_s)
            return None
        self._note_came_in(computer_of(address))
        self._forget_old(now_s)
        key = secrets.token_urlsafe(32)
        session = self._sessions[key] = Session(found.name, found.right, now_s + SESSION_S)
        return key, session

    def session(self, key: str, now_s: float) -> Session | None:
        """The session of a cookie; without one, on a server whose watching is open, one that may watch."""
        found = self._sessions.get(key)  # 256 random bits: nothing to learn from the time of a look-up
        if found is not None and now_s < found.until_s:
            return found
        return Session("", Right.WATCH, math.inf) if self._open_watching else None

    def keep(self, session: Session, now_s: float) -> None:
        """Let the session of a page that is open go on: a long flight does not end the right to land it."""
        session.until_s = max(session.until_s, now_s + SESSION_S)

    def _counted_for(self, address: str, now_s: float) -> str:
        """The computer whose limit counts for an address; "": the one that all others share."""
        computer = computer_of(address)
        if computer in self._wrong or computer in self._came_in:
            return computer
        if len(self._wrong) >= COMPUTERS_MAX:  # those that need not wait any more are forgotten
            self._wrong = {name: wrong for name, wrong in self._wrong.items() if self._left(name, now_s) < WRONG_BURST}
        return computer if len(self._wrong) < COMPUTERS_MAX else ""

    def _note_came_in(self, computer: str) -> None:
        self._came_in.pop(computer, None)
        self._came_in[computer] = None
        if len(self._came_in) > COMPUTERS_MAX:
            del self._came_in[next(iter(self._came_in))]

    def _left(self, computer: str, now_s: float) -> float:
        left, then_s = self._wrong.get(computer, (float(WRONG_BURST), now_s))
        return min(float(WRONG_BURST), left + (now_s - then_s) / WRONG_REFILL_S)

    def _forget_old(self, now_s: float) -> None:
        self._sessions = {key: s for key, s in self._sessions.items() if now_s < s.until_s}
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[min(self._sessions, key=lambda key: self._sessions[key].until_s)]  # no page has it open


def is_own_page(host: str | None, origin: str | None, loopback: bool, site: str | None = None) -> bool:
    """Whether a request comes from this server's own page. site: its Sec-Fetch-Site.

    A name that an attacker lets point to this computer is no name of it (DNS rebinding), so a server on loopback answers
    to the addresses and the name of loopback only. A page of another site has another origin; where a browser sends no
    origin, it may say that the site is another.
    """
    if not host or site not in OWN_SITES:
        return False
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    if loopback and not is_loopback(name.removeprefix("[").removesuffix("]")):
        return False
    return origin is None or origin.split("://", 1)[-1] == host
