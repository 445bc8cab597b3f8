"""What an application imports: quickly, and nothing that it does not use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import cdc_outbox

ROOT = Path(__file__).parents[3]


def test_importing_the_consumer_loads_no_client() -> None:
    heavy = ("kafka", "confluent_kafka", "pymysql", "sqlalchemy", "pydantic", "typer")
    script = f"import sys; from cdc_outbox import IdempotentConsumer; print([m for m in {heavy} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ran.stdout == "[]\n"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        _ = cdc_outbox.Nothing
