"""The JSON Schema of the settings, for editors. `python -m cdc_outbox.config_schema` prints it."""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from cdc_outbox.config import Settings

_VARIABLE = {"type": "string", "pattern": r"\$\{"}


class _ForYaml(GenerateJsonSchema):
    """Numbers may also come from a `${VAR}`; generated titles only repeat the keys."""

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        return {"anyOf": [super().int_schema(schema), _VARIABLE]}

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        return {"anyOf": [super().float_schema(schema), _VARIABLE]}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema_text() -> str:
    """The whole schema, as config/cdc-outbox.schema.json holds it."""
    schema = Settings.model_json_schema(schema_generator=_ForYaml)
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "cdc-outbox"}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
