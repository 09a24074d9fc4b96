"""The end of an error message about an unknown name: the nearest known name, or the list of all."""

import difflib
from collections.abc import Iterable

CUTOFF = 0.6  # similarity (difflib) from which on a name is offered
LISTED_MAX = 40  # a longer list is left out


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """ ", did you mean 'NAME'?" for the known name that is most similar; "" when none is similar."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=CUTOFF)
    return f", did you mean '{near[0]}'?" if near else ""


def listed(known: Iterable[str]) -> str:
    """ " (there are: a, b, c)"; "" for an empty or a very long list."""
    names = sorted(known)
    return f" (there are: {', '.join(names)})" if 0 < len(names) <= LISTED_MAX else ""
