"""DECIMAL, DATETIME and TIME as MySQL packs them. The bytes are from a real server's row images."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_outbox.binlog.packed import datetime_text, decimal_size, decimal_text, packed_datetime_text, packed_time_text


def packed_decimal(number: Decimal, precision: int, scale: int) -> bytes:
    """What decimal2bin writes."""
    digits = f"{abs(number):.{scale}f}".replace(".", "").rjust(precision, "0")
    whole = precision - scale
    widths = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    raw, at = b"", 0
    for width in widths:
        raw += int(digits[at : at + width] or "0").to_bytes([0, 1, 1, 2, 2, 3, 3, 4, 4, 4][width], "big")
        at += width
    if number < 0:
        raw = bytes(byte ^ 0xFF for byte in raw)
    return bytes([raw[0] ^ 0x80]) + raw[1:]


@given(st.data())
def test_decimals(data: st.DataObject) -> None:
    precision = data.draw(st.integers(1, 65))
    scale = data.draw(st.integers(0, min(30, precision)))
    unscaled = data.draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    number = Decimal(unscaled).scaleb(-scale)
    packed = packed_decimal(number, precision, scale)
    assert len(packed) == decimal_size(precision, scale)
    assert decimal_text(packed, precision, scale) == f"{number:.{scale}f}"
    with pytest.raises(IndexError):
        decimal_text(packed[:-1], precision, scale)


@pytest.mark.parametrize(
    ("content", "digits", "text"),
    [
        ("99b9fcc8b8", 0, "2026-12-30 12:34:56"),
        ("99b9fcc8b8" + "0b40", 3, "2026-12-30 12:34:56.288"),
        ("99b9fcc8b8" + "0f423f", 6, "2026-12-30 12:34:56.999999"),
        ("99b9fcc8b8" + "07", 1, "2026-12-30 12:34:56.0"),
        ("8000000000", 0, "0000-00-00 00:00:00"),
    ],
)
def test_datetimes_of_row_images(content: str, digits: int, text: str) -> None:
    assert datetime_text(bytes.fromhex(content), digits) == text


def test_packed_integers() -> None:
    assert packed_datetime_text(0) == "0000-00-00 00:00:00.000000"
    assert packed_time_text(-((838 << 12 | 59 << 6 | 59) << 24)) == "-838:59:59.000000"
    assert packed_time_text((1 << 12) << 24 | 1) == "01:00:00.000001"
