"""The whole way: outbox row → relay → Kafka → IdempotentConsumer, with relay and consumers killed on the way."""

from __future__ import annotations

from tests.harness.judge import Judge
from tests.harness.kafka import create_topic
from tests.harness.shop import GROUP, ConsumerProcess, Shop
from tests.harness.world import World, wait_until

EVENTS = 150


def test_each_effect_once_although_relay_and_consumers_are_killed(world: World) -> None:
    """The relay sends events again after each kill; every effect is there once, in the order of its aggregate."""
    shop = Shop(world.host, world.port, world.user, world.password, world.database)
    shop.make_tables()
    create_topic(world.bootstrap, world.topic, partitions=3)
    kafka = {"client": "confluent", "bootstrap": world.bootstrap, "topic": world.topic, "progress": True}
    consumers = [ConsumerProcess(shop, mode="transactional", kafka=kafka) for _ in range(2)]
    relay = world.start()
    try:
        written: list[str] = []
        for number in range(EVENTS):
            written.append(world.insert(f"a{number % 5}"))
            if number in {50, 100}:
                wait_until(lambda: shop.row(written[-20]), "the consumers keep up")
                relay.kill()
                # What was sent and not settled is sent again: made certain by a row set back, as a person might.
                world.execute("UPDATE outbox_event SET status = 0 WHERE event_id = %s", written[number // 2])
                relay = world.start()
        consumers[0].kill()
        world.wait_sent(*written)
        wait_until(lambda: len(shop.effects()) == EVENTS, "every event has its effect")
        published = [record.event_id for record in Judge(world).records()]
        assert len(published) > len(set(published)), "nothing came twice: this shows nothing"
        wait_until(
            lambda: (
                sum(offset for (offset,) in shop.execute("SELECT next_offset FROM consumer_offset")) == len(published)
            ),
            "the duplicates are read too",
        )
    finally:
        for consumer in consumers:
            consumer.kill()
    assert set(shop.effects().values()) == {1}
    assert [shop.row(event_id, GROUP) for event_id in written] == [(1, 1)] * EVENTS
    done = [event_id for (event_id,) in shop.execute("SELECT event_id FROM effect")]
    for aggregate in range(5):
        mine = [event_id for event_id in written if event_id.startswith(f"a{aggregate}-")]
        assert [one for one in done if one in set(mine)] == mine
