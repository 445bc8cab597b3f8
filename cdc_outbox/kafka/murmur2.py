"""MurmurHash2 as Kafka's Java client computes it for its default partitioner."""

from __future__ import annotations

import struct

_SEED = 0x9747B28C
_MIX = 0x5BD1E995
_32_BITS = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a keyed record (org.apache.kafka.clients.producer.internals.BuiltInPartitioner)."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """The hash, unsigned (org.apache.kafka.common.utils.Utils.murmur2, which is signed)."""
    length = len(data)
    whole = length & ~3
    hashed = _SEED ^ length
    for word in struct.unpack_from(f"<{length >> 2}I", data):
        mixed = word * _MIX & _32_BITS
        mixed = (mixed ^ mixed >> 24) * _MIX & _32_BITS
        hashed = hashed * _MIX & _32_BITS ^ mixed
    if whole < length:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MIX & _32_BITS
    hashed = (hashed ^ hashed >> 13) * _MIX & _32_BITS
    return hashed ^ hashed >> 15
