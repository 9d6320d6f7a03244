"""A TLS server that says a fixed text in pieces, with pauses, whatever it is asked."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from clusters.ports.connection import Connection
from tests.support.certificates import authority, signed

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """A piece of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


@contextmanager
def saying(folder: Path, pieces: Sequence[bytes], *, pause: float = 0.0, close: bool = True) -> Iterator[Connection]:
    """Every visitor hears the pieces; then the connection is closed, or kept without a word."""
    ca = authority()
    own = signed(ca, "api", addresses=("127.0.0.1",))
    file = folder / "saying.pem"
    file.write_text(own.pem + own.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    server = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()
    threads: list[threading.Thread] = []

    def run(target: Callable[..., None], *args: socket.socket) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        thread.start()
        threads.append(thread)

    def serve(peer: socket.socket) -> None:
        with suppress(OSError), context.wrap_socket(peer, server_side=True) as visitor:
            visitor.recv(1 << 16)
            for piece in pieces:
                visitor.sendall(piece)
                time.sleep(pause)
            if not close:
                over.wait(30)

    def accept() -> None:
        with suppress(OSError):
            while True:
                peer, _ = server.accept()
                run(serve, peer)

    run(accept)
    try:
        yield Connection(f"https://127.0.0.1:{server.getsockname()[1]}", ca=ca.pem, token="canary")
    finally:
        over.set()
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for thread in threads:
            thread.join(30)
