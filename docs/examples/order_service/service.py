"""The order service: an order and its event in one transaction."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field
from sqlalchemy import Engine, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

from cdc_outbox import Outbox

outbox = Outbox()  # one for the process; requests may share it


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    sku: Mapped[str] = mapped_column(String(32))
    count: Mapped[int]


class NewOrder(BaseModel):
    sku: str = "book"
    count: Annotated[int, Field(gt=0)] = 1


def order_service(engine: Engine) -> FastAPI:
    app = FastAPI()
    sessions = sessionmaker(engine)

    @app.post("/orders", status_code=201)
    def place(new: NewOrder, decline: bool = False) -> dict[str, int | str]:
        with sessions.begin() as session:  # commits at its end, rolls back on any error
            order = Order(sku=new.sku, count=new.count)
            session.add(order)
            session.flush()  # gives the order its id
            event_id = outbox.add(
                session,
                aggregate_type="order",
                aggregate_id=order.id,
                event_type="OrderPlaced",
                payload={"order": order.id, "sku": order.sku, "count": order.count},
            )
            if decline:
                raise HTTPException(402, "the card was declined: order and event are rolled back")
            return {"order": order.id, "event_id": event_id}

    return app
