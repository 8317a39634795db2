"""JSON schemas of what answers show. No answer is made by these models: they cost a request nothing."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, SkipJsonSchema, models_json_schema

REF = "#/components/schemas/{model}"
# Of a field that an answer may leave out: it is never null, and its default None is no value of it.
LeftOut: TypeAlias = SkipJsonSchema[None]
Time = datetime
Uuid = Annotated[str, Field(json_schema_extra={"format": "uuid"})]
Count = Annotated[int, Field(ge=0)]
# Between two clocks: a moment may be below zero.
Seconds = float
Fingerprint = Annotated[str, Field(description="of a group: 32 hexadecimal digits")]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
NextCursor = Annotated[str | None, Field(description="to be given as `cursor`; null on the last page")]


class Shown(BaseModel):
    """Something that answers show. A test holds the answers against it."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class _Schemas(GenerateJsonSchema):
    """Without titles that repeat a field's name, and without defaults: an answer has none."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def components(models: Iterable[type[BaseModel]]) -> dict[str, Any]:
    """The schemas of these models and of all that they name, by name."""
    kinds: list[Any] = [(model, "validation") for model in dict.fromkeys(models)]
    _, found = models_json_schema(kinds, ref_template=REF, schema_generator=_Schemas)
    schemas: dict[str, Any] = found.get("$defs", {})
    return schemas


def ref(name: str) -> dict[str, str]:
    return {"$ref": REF.format(model=name)}
