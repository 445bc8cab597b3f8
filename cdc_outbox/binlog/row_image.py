"""How wide each column's value is in a row image, where nothing separates the values.

Source: field.cc (pack) of the MySQL server.
"""

from __future__ import annotations

from pymysqlreplication.constants import FIELD_TYPE

from cdc_outbox.binlog.packed import decimal_size
from cdc_outbox.binlog.table_map import INTEGERS, VECTOR, Column

_FIXED_SIZES = {
    FIELD_TYPE.FLOAT: 4,
    FIELD_TYPE.DOUBLE: 8,
    FIELD_TYPE.YEAR: 1,
    FIELD_TYPE.DATE: 3,
    FIELD_TYPE.NEWDATE: 3,
    FIELD_TYPE.TIME: 3,
    FIELD_TYPE.TIMESTAMP: 4,
    FIELD_TYPE.DATETIME: 8,
    **INTEGERS,
}
_SIZES_BEFORE_FRACTION = {FIELD_TYPE.DATETIME2: 5, FIELD_TYPE.TIMESTAMP2: 4, FIELD_TYPE.TIME2: 3}
_LENGTH_IN_METADATA = {FIELD_TYPE.BLOB, FIELD_TYPE.JSON, FIELD_TYPE.GEOMETRY, VECTOR}


def fixed_size(column: Column) -> int:
    """Bytes of a value, 0 for one that begins with its length. Raises ValueError for an unknown type."""
    type_, metadata = column.type, column.metadata
    if type_ in _FIXED_SIZES:
        return _FIXED_SIZES[type_]
    if type_ in _SIZES_BEFORE_FRACTION:
        return _SIZES_BEFORE_FRACTION[type_] + (metadata + 1) // 2
    if type_ == FIELD_TYPE.NEWDECIMAL:
        return decimal_size(metadata & 255, metadata >> 8)
    if type_ in {FIELD_TYPE.ENUM, FIELD_TYPE.SET}:
        return metadata
    if type_ == FIELD_TYPE.BIT:
        return (metadata >> 8) + (1 if metadata & 255 else 0)
    if type_ in {FIELD_TYPE.VARCHAR, FIELD_TYPE.STRING} or type_ in _LENGTH_IN_METADATA:
        return 0
    raise ValueError(f"column `{column.name}` is of type {type_}, which is not known")


def check_sizes(column: Column) -> None:
    """Raises ValueError where the metadata does not suit the type: a size would be wrong, or negative."""
    size, type_, metadata = fixed_size(column), column.type, column.metadata
    wrong = (
        size < 0
        or (type_ == FIELD_TYPE.NEWDECIMAL and not 0 <= metadata >> 8 <= metadata & 255 <= 65)
        or (type_ in _SIZES_BEFORE_FRACTION and metadata > 6)
        or (type_ in _LENGTH_IN_METADATA and not 1 <= metadata <= 4)
    )
    if wrong:
        raise ValueError(f"column `{column.name}` of type {type_} cannot have the metadata {metadata}")


def length_size(column: Column) -> int:
    """Bytes of the length that a value of no fixed size begins with."""
    if column.type in _LENGTH_IN_METADATA:
        return column.metadata
    return 1 if column.metadata < 256 else 2
