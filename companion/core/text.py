"""Text from outside, made safe to print and to store.

Texts come from the flight controller, from files, from other processes and from error messages that quote them. A
terminal obeys control characters: an escape sequence can hide lines or rename the window, and a bidirectional mark can
reverse what is read. Every text from outside passes `plain` where it enters, and where it is printed.
"""

REPLACEMENT = "?"


def plain(text: str, length: int | None = None) -> str:
    """One line of printable characters, at most `length` long.

    White space of any kind, also a line break, becomes one space each; every other character that does not print (C0,
    C1, escape, bidirectional and zero-width marks, bytes that were no UTF-8) becomes "?".
    """
    if length is not None:
        text = text[:length]
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else REPLACEMENT for c in text)


def plain_lines(text: str) -> str:
    """As `plain`, line by line."""
    return "\n".join(map(plain, text.splitlines()))
