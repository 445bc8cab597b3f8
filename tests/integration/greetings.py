"""What a server says of itself when a client connects, changed as proxies and other servers do it."""

from __future__ import annotations

VERSION_AT = 5
"""Behind the packet's header and the protocol's version: text that ends with a zero byte."""


def another_connection_id(greeting: bytearray) -> None:
    """As a pooling proxy gives its own."""
    greeting[greeting.index(0, VERSION_AT) + 1] ^= 0xFF


def tidb(greeting: bytearray) -> None:
    """TiDB's way of naming its version."""
    end = greeting.index(0, VERSION_AT)
    name = b"8.0.11-TiDB-v7.5.0"
    greeting[VERSION_AT:end] = name
    greeting[0:3] = (len(greeting) - 4).to_bytes(3, "little")
