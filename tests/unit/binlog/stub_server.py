"""A server's end of a dump: PyMySQL's connection as far as the reader uses it, and packets to send."""

from __future__ import annotations

import socket
from typing import Any

LARGEST = 0xFFFFFF
UUID = "aaaaaaaa-0000-0000-0000-000000000001"


class StubConnection:
    """`far` is the server's end of its socket; statements are answered with the server's UUID."""

    def __init__(self, uuid: str = UUID) -> None:
        self._sock, self.far = socket.socketpair()
        self._uuid = uuid
        self.statements: list[str] = []
        self.closed = False

    def cursor(self) -> Any:
        return self

    def __enter__(self) -> StubConnection:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, statement: str, args: tuple[object, ...] = ()) -> None:
        self.statements.append(statement % args if args else statement)

    def fetchone(self) -> tuple[str]:
        return (self._uuid,)

    def close(self) -> None:
        self._force_close()

    def _force_close(self) -> None:
        self.closed = True
        self._sock.close()


def packets(*bodies: bytes) -> bytes:
    """Protocol packets, bodies of 16 MiB and more in several."""
    out = bytearray()
    for body in bodies:
        whole = len(body) // LARGEST
        for sequence in range(whole + 1):
            piece = body[sequence * LARGEST : (sequence + 1) * LARGEST]
            out += len(piece).to_bytes(3, "little") + bytes([sequence & 255]) + piece
    return bytes(out)


def error_packet(code: int, text: str) -> bytes:
    return packets(b"\xff" + code.to_bytes(2, "little") + b"#HY000" + text.encode())
