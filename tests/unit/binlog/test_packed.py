"""DECIMAL, DATETIME and TIME as MySQL packs them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_outbox.binlog.packed import datetime_text, decimal_size, decimal_text, packed_datetime_text, packed_time_text


def packed_decimal(digits: str, scale: int, *, negative: bool) -> bytes:
    """What decimal2bin writes."""
    whole = len(digits) - scale
    widths = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    raw, at = b"", 0
    for width in widths:
        raw += int(digits[at : at + width] or "0").to_bytes([0, 1, 1, 2, 2, 3, 3, 4, 4, 4][width], "big")
        at += width
    if negative:
        raw = bytes(byte ^ 0xFF for byte in raw)
    return bytes([raw[0] ^ 0x80]) + raw[1:]


@given(st.data(), st.booleans())
def test_decimals(data: st.DataObject, negative: bool) -> None:
    precision = data.draw(st.integers(1, 65))
    scale = data.draw(st.integers(0, min(30, precision)))
    digits = str(data.draw(st.integers(0, 10**precision - 1))).rjust(precision, "0")
    packed = packed_decimal(digits, scale, negative=negative)
    assert len(packed) == decimal_size(precision, scale)
    whole, fraction = digits[: precision - scale].lstrip("0") or "0", digits[precision - scale :]
    expected = f"{'-' if negative else ''}{whole}{'.' if scale else ''}{fraction}"
    assert decimal_text(packed, precision, scale) == expected
    with pytest.raises(IndexError):
        decimal_text(packed[:-1], precision, scale)


@pytest.mark.parametrize(
    ("fraction", "digits", "text"),
    [
        ("", 0, "2026-11-30 12:34:56"),
        ("0b40", 3, "2026-11-30 12:34:56.288"),
        ("0f423f", 6, "2026-11-30 12:34:56.999999"),
        ("0f4236", 5, "2026-11-30 12:34:56.99999"),
        ("46", 1, "2026-11-30 12:34:56.7"),
        ("46", 2, "2026-11-30 12:34:56.70"),
    ],
)
def test_datetimes_of_row_images(fraction: str, digits: int, text: str) -> None:
    day = (2026 * 13 + 11) << 5 | 30
    whole = 0x8000000000 + (day << 17 | 12 << 12 | 34 << 6 | 56)
    assert datetime_text(whole.to_bytes(5, "big") + bytes.fromhex(fraction), digits) == text


def test_the_zero_datetime() -> None:
    assert datetime_text(bytes.fromhex("8000000000"), 0) == "0000-00-00 00:00:00"


def test_packed_integers() -> None:
    assert packed_datetime_text(0) == "0000-00-00 00:00:00.000000"
    assert packed_time_text(-((838 << 12 | 59 << 6 | 59) << 24)) == "-838:59:59.000000"
    assert packed_time_text((1 << 12) << 24 | 1) == "01:00:00.000001"
