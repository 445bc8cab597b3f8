"""Golden hashes of Kafka's own test, org.apache.kafka.common.utils.UtilsTest.testMurmur2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as librarys_own

from cdc_outbox.kafka.murmur2 import murmur2, partition_of

GOLDEN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), GOLDEN.items())
def test_the_hash_is_javas(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32


@given(st.binary(max_size=80))
def test_the_hash_is_kafka_pythons(key: bytes) -> None:
    assert murmur2(key) == librarys_own(key)


def test_the_sign_bit_is_dropped_not_negated() -> None:
    assert partition_of(b"21", 12) == (-973932308 & 0x7FFFFFFF) % 12
