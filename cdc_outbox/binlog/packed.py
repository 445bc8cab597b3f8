"""Packed SQL values of row images and binary JSON: DECIMAL, DATETIME, TIME. Sources: decimal.cc, my_time.cc."""

from __future__ import annotations

_DIGITS_PER_GROUP = 9
_BYTES_FOR_DIGITS = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def decimal_size(precision: int, scale: int) -> int:
    """Bytes of a DECIMAL(precision, scale)."""
    whole, fraction = precision - scale, scale
    return (
        whole // _DIGITS_PER_GROUP * 4
        + _BYTES_FOR_DIGITS[whole % _DIGITS_PER_GROUP]
        + fraction // _DIGITS_PER_GROUP * 4
        + _BYTES_FOR_DIGITS[fraction % _DIGITS_PER_GROUP]
    )


def decimal_text(content: bytes, precision: int, scale: int) -> str:
    """A DECIMAL as MySQL prints it: all digits of its scale, no leading zeros.

    Groups of nine digits in 4 bytes, big-endian, the incomplete groups outermost; the sign is the first bit, set
    for positive numbers; a negative number has all its bits inverted. Raises IndexError when it is cut short.
    """
    size = decimal_size(precision, scale)
    if len(content) < size:
        raise IndexError("a DECIMAL is cut short")
    negative = not content[0] & 0x80
    number = int.from_bytes(content[:size], "big") ^ (1 << (8 * size - 1))
    if negative:
        number ^= (1 << (8 * size)) - 1
    raw = number.to_bytes(size, "big")
    whole, fraction = precision - scale, scale
    widths = [whole % _DIGITS_PER_GROUP, *[_DIGITS_PER_GROUP] * (whole // _DIGITS_PER_GROUP)]
    widths += [*[_DIGITS_PER_GROUP] * (fraction // _DIGITS_PER_GROUP), fraction % _DIGITS_PER_GROUP]
    digits, at = "", 0
    for width in widths:
        taken = _BYTES_FOR_DIGITS[width]
        if width:
            digits += str(int.from_bytes(raw[at : at + taken], "big")).rjust(width, "0")
        at += taken
    text = digits[:whole].lstrip("0") or "0"
    if scale:
        text += "." + digits[whole:]
    return f"-{text}" if negative else text


def packed_datetime_text(packed: int) -> str:
    """`YYYY-MM-DD hh:mm:ss.ffffff` of a packed DATETIME, whose last 24 bits are microseconds."""
    seconds, microsecond = packed >> 24, packed & 0xFFFFFF
    days, clock = seconds >> 17, seconds & 0x1FFFF
    months, day = days >> 5, days & 31
    year, month = divmod(months, 13)
    return f"{year:04}-{month:02}-{day:02} {_clock_text(clock)}.{microsecond:06}"


def packed_time_text(packed: int) -> str:
    """`[-]hh:mm:ss.ffffff` of a packed TIME."""
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    clock, microsecond = packed >> 24, packed & 0xFFFFFF
    return f"{sign}{_clock_text(clock)}.{microsecond:06}"


def _clock_text(clock: int) -> str:
    return f"{clock >> 12 & 0x3FF:02}:{clock >> 6 & 63:02}:{clock & 63:02}"


def datetime_text(content: bytes, digits: int) -> str:
    """A DATETIME(digits) of a row image: 40 bits big-endian with the sign bit set, then the fraction."""
    fraction = int.from_bytes(content[5:], "big") * 10 ** (6 - 2 * (len(content) - 5))
    packed = int.from_bytes(content[:5], "big") - 0x8000000000 << 24 | fraction
    text = packed_datetime_text(packed)
    return text[: 20 + digits] if digits else text[:19]
