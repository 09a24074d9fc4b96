"""The base of all errors that a user can cause and can correct."""


class UserError(Exception):
    """An input of the user cannot be used; the message is one line that names the file, key, device or limit."""


class StartRefused(UserError):
    """A process refused to start; the message is the line that the process printed."""


class OutputError(UserError):
    """A result cannot be written; the message is one line that names the file."""
