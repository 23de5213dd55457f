"""A server on loopback that answers with bytes as given: what no framework would send."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

Script = Mapping[str, "bytes | Callable[[], Iterable[bytes]]"]


def answer(body: object, status: str = "200 OK", **headers: str) -> bytes:
    """Return a whole HTTP answer of a JSON value, or of bytes as they are."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    told = {"Content-Type": "application/json", "Content-Length": str(len(content))}
    told |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return f"HTTP/1.1 {status}\r\n{lines}Connection: close\r\n\r\n".encode("latin-1") + content


NOT_FOUND = answer({"detail": "Not Found"}, "404 Not Found")


@contextmanager
def odd_server(script: Script) -> Iterator[str]:
    """Serve until the block ends; give the URL. script: path -> the answer's bytes, or what yields them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def serve() -> None:
            while not ended.is_set():
                with suppress(OSError):
                    connection, _ = listener.accept()
                    threading.Thread(target=one, args=(connection,), daemon=True).start()

        def one(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                path = _request_path(connection)
                given = script.get(path, NOT_FOUND)
                for part in [given] if isinstance(given, bytes) else given():
                    if ended.is_set():
                        return
                    connection.sendall(part)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def _request_path(connection: socket.socket) -> str:
    received = b""
    while b"\r\n\r\n" not in received and (part := connection.recv(1 << 16)):
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    length = next(
        (int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length")), 0
    )
    while len(body) < length and (part := connection.recv(1 << 16)):
        body += part
    return head.split(b" ")[1].decode().split("?")[0]
