"""A message as plain data apart from its numbers: what many messages have in common, and what differs."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

FLOAT, INTEGER = 0.0, 0  # in a form the place of a number
_FLOATS = {float}


class Leaves(NamedTuple):
    """What was taken out of a message, in order."""

    floats: list[float]
    integers: list[int]
    texts: list[bytes]


def taken_out(value: Any, leaves: Leaves) -> Any:
    """The form of a message (plain data): numbers and bytes are moved into `leaves`."""
    kind = type(value)
    if kind is float:
        leaves.floats.append(value)
        return FLOAT
    if kind is tuple or kind is list:
        if _FLOATS.issuperset(map(type, value)):
            leaves.floats.extend(value)
            return [FLOAT] * len(value)
        return [taken_out(one, leaves) for one in value]
    if kind is dict:
        return {key: taken_out(one, leaves) for key, one in value.items()}
    if kind is int:
        leaves.integers.append(value)
        return INTEGER
    if kind is bytes:
        leaves.texts.append(value)
        return b""
    return value


def put_back(form: Any, floats: Iterator[float], integers: Iterator[int], texts: Iterator[bytes]) -> Any:
    """The message of a form; raises StopIteration when there are too few numbers."""
    kind = type(form)
    if kind is float:
        return next(floats)
    if kind is list:
        if _FLOATS.issuperset(map(type, form)):
            return list(islice(floats, len(form)))
        return [put_back(one, floats, integers, texts) for one in form]
    if kind is dict:
        return {key: put_back(one, floats, integers, texts) for key, one in form.items()}
    if kind is int:
        return next(integers)
    if kind is bytes:
        return next(texts)
    return form
