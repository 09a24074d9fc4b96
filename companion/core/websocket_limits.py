"""What the servers of pages have in common: limits of connections, and no tracebacks of broken connections.

`websockets` writes forty lines for every connection that ends before its handshake, and takes any number of them.
"""

import asyncio
import contextlib
import logging
import resource
from collections.abc import Callable
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.protocol import State

CONNECTIONS_MAX = 100  # of a server, pages and requests together; a browser opens six at a time
FILES = 4096  # open files that a server may have, where the system allows it: connections before their TLS handshake
OPEN_S = 5.0  # for the handshake of a connection

SILENT = logging.Logger("companion.websockets")
SILENT.disabled = True


class LimitedConnection(ServerConnection):
    """A connection of a server with at most `CONNECTIONS_MAX`: one too many ends the oldest that may end.

    So connections that never ask for anything, or that do not finish their closing, keep no page out. Where none may end,
    the new one does.
    """

    @property
    def may_end(self) -> bool:
        """Whether it may end for another: it has sent no whole request yet, or is being closed."""
        return self.protocol.state is not State.OPEN

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self.server.handlers) > CONNECTIONS_MAX:
            next(filter(_is_over, self.server.handlers), self).transport.abort()


def _is_over(connection: ServerConnection) -> bool:
    """Whether it may end for another, and is not ended already."""
    may_end = isinstance(connection, LimitedConnection) and connection.may_end
    return may_end and not connection.transport.is_closing()


def note_loop_errors(note: Callable[[Exception], None]) -> None:
    """Let `note` have what no task of the running loop handles, such as a connection that finds no file left."""

    def handle(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        note(error if isinstance(error, Exception) else RuntimeError(str(context.get("message"))))

    asyncio.get_running_loop().set_exception_handler(handle)


def allow_files() -> None:
    """Let this process have `FILES` open files if it may."""
    with contextlib.suppress(OSError, ValueError):
        now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        if now != resource.RLIM_INFINITY and now < FILES:
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (FILES if most == resource.RLIM_INFINITY else min(FILES, most), most)
            )
