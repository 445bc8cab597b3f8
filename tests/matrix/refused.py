"""A server version that lacks what the relay needs is refused, with the reason. Run by `python -m tests.matrix`."""

from __future__ import annotations

import os
import sys

import pytest

from cdc_outbox.config import Settings
from cdc_outbox.errors import Refused
from cdc_outbox.mysql.preflight import examine_mysql, refusal
from cdc_outbox.testing.services.docker import docker_mysqld
from tests.matrix.__main__ import NAME_VARIABLE
from tests.matrix.servers import listed_servers


def test_it_is_refused_with_the_reason() -> None:
    listed = next((one for one in listed_servers() if one.name == os.environ.get(NAME_VARIABLE)), None)
    if listed is None:
        pytest.skip(f"{NAME_VARIABLE} names no server of servers.yaml")
    # Only what every version knows: the relay's usual settings would keep an old one from starting.
    server = docker_mysqld(listed.image, listed.name, {"server-id": "1"}, lambda text: print(text, file=sys.stderr))
    try:
        server.start()
        place = server.endpoint
        settings = Settings.model_validate(
            {
                "name": "matrix",
                "mysql": {
                    "host": place.host,
                    "port": place.port,
                    "user": place.user,
                    "password": place.password,
                    "database": "mysql",
                },
                "kafka": {"bootstrap_servers": "127.0.0.1:9"},
            }
        )
        trouble = refusal(examine_mysql(settings))
    finally:
        server.remove()
    assert isinstance(trouble, Refused) and listed.because in trouble.message
