"""What runs of the reader's innermost parts: the compiled accelerator.c where it is installed and not forbidden, else
json_text.py, packets.py and row_loop.py.

Both lead to the same transactions. CDC_OUTBOX_PURE=1 forbids the compiled one.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple
from zlib import crc32

from cdc_outbox.binlog.json_text import json_text
from cdc_outbox.binlog.packets import Piece, cut

PURE = "CDC_OUTBOX_PURE"
MODULE = "_cdc_outbox_accelerator"
_SOURCE = Path(__file__).with_suffix(".c")

JsonText = Callable[[bytes], bytes]
Cut = Callable[[bytes, int, tuple[bytes, ...] | None], tuple[list[Piece], int]]


class Decoder(NamedTuple):
    """kind: what `status` calls it. why: the reason for pure Python, for people.

    rows: what row_loop.py gives its steps to; None: it makes loops of Python.
    """

    kind: Literal["compiled", "pure"]
    json_text: JsonText
    cut: Cut
    rows: Callable[..., int] | None = None
    why: str = ""


def decoder() -> Decoder:
    """As the environment says now. It is asked once for each table layout and each dump."""
    if os.environ.get(PURE, "0") not in ("", "0"):
        return Decoder("pure", json_text, cut, why=f"{PURE} is set")
    try:
        module = importlib.import_module(MODULE)
    except ImportError as error:
        return Decoder("pure", json_text, cut, why=f"the compiled module is not there: {error}")
    if _SOURCE.exists() and crc32(_SOURCE.read_bytes()) != module.SOURCE_CRC:
        why = f"the compiled module is of another version of {_SOURCE.name}: install again"
        return Decoder("pure", json_text, cut, why=why)
    return Decoder("compiled", module.json_text, module.cut, module.rows)
