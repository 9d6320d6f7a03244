"""The portal under its real server, in a thread of this process: what ASGI does differently can be asked there."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.core.asgi import get_asgi_application
from uvicorn import Config, Server

from tests.support.processes import eventually
from tests.support.real import free_port


@contextmanager
def served() -> Iterator[str]:
    """Address of the portal, until the block ends."""
    port = free_port()
    server = Server(
        Config(
            get_asgi_application(),
            host="127.0.0.1",
            port=port,
            lifespan="off",
            proxy_headers=False,
            log_config=None,
            timeout_graceful_shutdown=1,
        )
    )
    thread = threading.Thread(target=server.run, name="uvicorn")
    thread.start()
    try:
        eventually(lambda: server.started)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
