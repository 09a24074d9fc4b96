"""A view's server in a thread of the test."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from companion.view.access import Access
from companion.view.server import ViewServer


@contextmanager
def served(source: Any, access: Access, port: int = 0) -> Iterator[tuple[ViewServer, int]]:
    """Serve a source on loopback; yields the server and its port. port: 0 is any free one."""
    said: list[str] = []
    server, ended = ViewServer(source, access, "127.0.0.1", port, log=said.append), asyncio.Event()
    server.said = said  # type: ignore[attr-defined]
    ready, loops, ports = threading.Event(), [], []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        await server.run(lambda port: (ports.append(port), ready.set()), ended)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert ready.wait(10.0)
    try:
        yield server, ports[0]
    finally:
        loops[0].call_soon_threadsafe(ended.set)
        thread.join(10.0)
        assert not thread.is_alive()
