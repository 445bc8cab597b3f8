"""MySQL's character sets: a collation's number → its set, and the bytes of a string → the text the server converts to.

Python's codecs differ from the server's tables in some characters, given here as the server has them. What a codec does
not know becomes UNKNOWN: such a value is to be read from the table.
"""

from __future__ import annotations

from codecs import charmap_decode
from collections.abc import Callable
from functools import cache, partial

from pymysql import charset as pymysql_charset

UNKNOWN = "\ufffd"

UTF8 = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii", "binary"})
"""Sets whose bytes are utf-8 as they stand. What is not after all (in a VARBINARY) is an error."""

Text = Callable[[bytes], str]

_COLLATIONS = {
    "ucs2": (35, 90, range(128, 152), 159, range(640, 643), range(2560, 2816)),
    "utf16": (54, 55, range(101, 125), range(672, 675), range(2816, 3072)),
    "utf16le": (56, 62),
    "utf32": (60, 61, range(160, 184), range(736, 739), range(3072, 3328)),
    "utf8mb3": (range(576, 579), range(2048, 2304)),
    "utf8mb4": (range(255, 324), range(608, 611), range(2304, 2560)),
}
"""Those that PyMySQL's table lacks: no client can use these sets, and it knows one of the 0900 family. From 576 on they
are MariaDB's own."""

_MARIADB_NO_PAD = range(1024, 2048)
"""What these are without padding is 1024 below."""

_ONE_BYTE: dict[str, tuple[str, dict[int, str]]] = {
    "armscii8": (
        "latin-1",
        {
            0xA1: "❁§։)(»«—.՝,-՟…՜՛՞ԱաԲբԳգԴդԵեԶզԷէԸըԹթԺժԻիԼլԽխԾծԿկՀհՁձՂղՃճՄմՅյՆնՇշՈոՉչՊպՋջՌռՍսՎվՏտՐրՑցՒւՓփՔքՕօՖֆ’'",
        },
    ),
    "cp1250": ("cp1250", {}),
    "cp1251": ("cp1251", {}),
    "cp1256": ("cp1256", {0x8A: "?", 0x8F: "?", 0x98: "?", 0x9A: "?", 0x9F: "?", 0xAA: "?", 0xC0: "?", 0xFF: "?"}),
    "cp1257": ("cp1257", {}),
    "cp850": ("cp850", {}),
    "cp852": ("cp852", {}),
    "cp866": ("cp866", {0xFC: "ⁿ²"}),
    "dec8": (
        "latin-1",
        {0xA4: "?", 0xA6: "?", 0xA8: "¤", 0xAC: "????", 0xB4: "?", 0xB8: "?", 0xBE: "?", 0xD0: "?"}
        | {0xD7: "Œ", 0xDD: "Ÿ?", 0xF0: "?", 0xF7: "œ", 0xFD: "ÿ??"},
    ),
    "geostd8": (
        "cp1252",
        {0x83: "?", 0x88: "?", 0x8A: "?", 0x8C: "?", 0x8E: "?", 0x98: "???", 0x9C: "?", 0x9E: "??"}
        | {0xC0: "აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწჭხჴჯჰჵ" + 23 * "?" + "№??"},
    ),
    "greek": ("iso8859_7", {0xA1: "ʽʼ", 0xA4: "??", 0xAA: "?"}),
    "hebrew": ("iso8859_8", {0xAF: "‾"}),
    "hp8": ("hp_roman8", {}),
    "keybcs2": (
        "cp437",
        {
            0x80: "Č",
            0x83: "ďäĎŤčěĚĹÍľĺÄÁ",
            0x91: "žŽôöÓůÚýÖÜŠĽÝŘť",
            0xA4: "ňŇŮÔšřŕŔ",
        },
    ),
    "koi8r": ("koi8_r", {}),
    "koi8u": ("koi8_u", {0x95: "•"}),
    "latin1": ("cp1252", {0x81: "\x81", 0x8D: "\x8d", 0x8F: "\x8f\x90", 0x9D: "\x9d"}),
    "latin2": ("iso8859_2", {}),
    "latin5": ("iso8859_9", {}),
    "latin7": ("iso8859_13", {}),
    "macce": ("mac_latin2", {}),
    "macroman": ("mac_roman", {}),
    "swe7": ("ascii", {0x40: "É", 0x5B: "ÄÖÅÜ", 0x60: "é", 0x7B: "äöåü?"}),
    "tis620": ("iso8859_11", {0xA0: UNKNOWN, 0xDB: 4 * UNKNOWN, 0xFC: 4 * UNKNOWN}),
}
"""Codec, and what the server has from a byte on. A byte that stands for nothing is converted to a question mark."""

_SEVERAL_BYTES: dict[str, tuple[str, dict[str, str]]] = {
    "big5": ("big5", dict.fromkeys("╴￣ˍ／＼十卅", UNKNOWN)),
    "cp932": ("cp932", dict.fromkeys("\x80\uf8f0\uf8f1\uf8f2\uf8f3", UNKNOWN)),
    "eucjpms": ("euc_jp", dict(zip("〜‖−¢£¬", "～∥－￠￡￢", strict=True))),
    "euckr": ("cp949", {}),
    "gb18030": ("gb18030", {"\ue7c7": "ḿ", "ḿ": "\ue7c7"}),
    "gb2312": ("gb2312", {}),
    "gbk": ("gbk", {}),
    "sjis": ("shift_jis", {"＼": "\\"}),
    "ucs2": ("utf_16_be", {}),
    "ujis": ("euc_jp", {"＼": "\\"}),
    "utf16": ("utf_16_be", {}),
    "utf16le": ("utf_16_le", {}),
    "utf32": ("utf_32_be", {}),
}
"""Codec, and the server's characters in place of its own."""


def charset_of(collation: int) -> str | None:
    """Name of a collation's character set, None for an unknown collation."""
    if collation in _MARIADB_NO_PAD:
        collation -= _MARIADB_NO_PAD.start
    for name, numbers in _COLLATIONS.items():
        if any(collation in one if isinstance(one, range) else collation == one for one in numbers):
            return name
    try:
        return str(pymysql_charset.charset_by_id(collation).name)  # type: ignore[attr-defined]
    except KeyError:
        return None


@cache
def text_of(charset: str | None) -> Text | None:
    """Bytes → text for a set that is not in UTF8, None for an unknown one."""
    if charset in _ONE_BYTE:
        codec, others = _ONE_BYTE[charset]
        table = [bytes([byte]).decode(codec, "replace").replace(UNKNOWN, "?") for byte in range(256)]
        for start, characters in others.items():
            table[start : start + len(characters)] = characters
        return partial(_one_byte_text, "".join(table))
    if charset in _SEVERAL_BYTES:
        codec, exchanged = _SEVERAL_BYTES[charset]
        return partial(_text, codec, str.maketrans(exchanged))
    return None


def _one_byte_text(table: str, content: bytes) -> str:
    return charmap_decode(content, "strict", table)[0]


def _text(codec: str, exchanged: dict[int, str], content: bytes) -> str:
    return content.decode(codec, "replace").translate(exchanged)
