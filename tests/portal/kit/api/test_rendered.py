"""Rows as the fields of a schema name them."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from rest_framework import serializers

from portal.kit.api.serializers import rendered


class ThingSchema(serializers.Serializer[Any]):
    """A thing."""

    id = serializers.CharField()
    startedAt = serializers.DateTimeField(allow_null=True)
    owner = serializers.CharField(source="team.name")
    extra = serializers.CharField(required=False)


def thing(**about: Any) -> SimpleNamespace:
    told = {"id": 7, "started_at": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "team": SimpleNamespace(name="llm")}
    return SimpleNamespace(**{**told, **about})


def test_a_field_is_read_by_its_source_or_its_name_in_snake_case() -> None:
    assert rendered(ThingSchema, thing()) == {"id": "7", "startedAt": "2026-01-02T03:04:05.000006Z", "owner": "llm"}


def test_nothing_is_null() -> None:
    assert rendered(ThingSchema, thing(started_at=None))["startedAt"] is None


def test_what_is_computed_is_sent_as_it_is_in_the_order_of_the_schema() -> None:
    assert list(rendered(ThingSchema, thing(), extra="more", id=8).items())[::3] == [("id", 8), ("extra", "more")]
