"""Django in one file: an order and its event in transaction.atomic(), and the row's way from pending to sent."""

from __future__ import annotations

import argparse
import json
import secrets
import sys

import django
from django.conf import settings
from django.db import connection, models, transaction
from django.http import HttpRequest, JsonResponse
from django.test import Client
from django.urls import path

from cdc_outbox import Outbox
from cdc_outbox.testing.demo.stage import Stage, perform, say, stage
from cdc_outbox.testing.services.endpoint import wait_until

# -- the project ------------------------------------------------------------------------------------------------------

settings.configure(
    DATABASES={"default": {"ENGINE": "mysql.connector.django"}},  # django.db.backends.mysql is used in the same way
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["testserver"],
    USE_TZ=True,
)
django.setup()

outbox = Outbox()  # one for the process


class Order(models.Model):
    customer = models.CharField(max_length=64)
    cents = models.IntegerField()

    class Meta:
        app_label = "shop"


class CardDeclined(Exception):
    pass


def place_order(customer: str, cents: int) -> tuple[Order, str]:
    with transaction.atomic():
        order = Order.objects.create(customer=customer, cents=cents)
        event_id = outbox.add(
            connection,
            aggregate_type="order",
            aggregate_id=order.pk,
            event_type="OrderPlaced",
            payload={"order": order.pk, "customer": customer, "cents": cents},
        )
        if cents > 100_000:
            raise CardDeclined  # any error: order and event are rolled back together
    return order, event_id


def orders(request: HttpRequest) -> JsonResponse:
    wanted = json.loads(request.body)
    try:
        order, event_id = place_order(wanted["customer"], wanted["cents"])
    except CardDeclined:
        return JsonResponse({"error": "the card was declined"}, status=402)
    return JsonResponse({"order": order.pk, "event_id": event_id}, status=201)


urlpatterns = [path("orders", orders)]

# -- a look at it -----------------------------------------------------------------------------------------------------

STATES = ("0 pending", "1 sending", "2 sent", "3 failed")


def main() -> int:
    options = _options()
    with stage(options.name, keep=options.keep) as shop:
        at = shop.pair.mysql.endpoint
        connection.settings_dict.update(
            NAME=shop.database, USER=at.user, PASSWORD=at.password, HOST=at.host, PORT=str(at.port)
        )
        with connection.schema_editor() as editor:
            editor.create_model(Order)  # in a project: manage.py migrate
        event_id = _post({"customer": "Ada", "cents": 1250}, 201)["event_id"]
        _post({"customer": "Bob", "cents": 999_999}, 402)
        say(f"{Order.objects.count()} order and {len(_rows(shop))} event are committed; the relay does not run yet.")
        say(f"  outbox_event: {event_id}  {STATES[_rows(shop)[event_id]]}")
        shop.start_relay()
        return 0 if wait_until(lambda: _published(shop, event_id), seconds=30) else 1


def _post(body: dict[str, object], expected: int) -> dict[str, str]:
    answer = Client().post("/orders", body, content_type="application/json")
    say(f"POST /orders {json.dumps(body)}: {answer.status_code} {answer.content.decode()}")
    if answer.status_code != expected:
        sys.exit(f"{expected} was expected")
    return dict(answer.json())


def _rows(shop: Stage) -> dict[str, int]:
    """event_id -> status."""
    return {
        str(event_id): int(status) for event_id, status in shop.execute("SELECT event_id, status FROM outbox_event")
    }


def _published(shop: Stage, event_id: str) -> bool:
    shop.relay.keep_running()
    if _rows(shop) != {event_id: 2}:
        return False
    say(f"  outbox_event: {event_id}  {STATES[2]}, to topic {shop.topic}")
    return True


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/example django_orders", description=__doc__)
    parser.add_argument("--name", default=f"django_{secrets.token_hex(4)}", help="of the database that is made")
    parser.add_argument("--keep", action="store_true", help="leave database and topic on services that are yours")
    return parser.parse_args()


if __name__ == "__main__":
    perform(main)
