"""Bodies that every app's REST routes share: the error, the count, and the strict reading of what was sent."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, TypeVar

from drf_spectacular.drainage import set_override
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers

from portal.kit.errors import Problem, RungError, ValidationFailed

SNAKE: Final = re.compile(r"(?<=[a-z])([A-Z])")
Handler = TypeVar("Handler", bound=Callable[..., Any])


class ProblemSchema(serializers.Serializer[Any]):
    """One refused field."""

    pointer = serializers.CharField(help_text="JSON pointer of the field.")
    code = serializers.CharField()
    message = serializers.CharField()
    allowed = serializers.ListField(child=serializers.CharField(), required=False)
    line = serializers.IntegerField(required=False)
    numbers = serializers.DictField(child=serializers.CharField(), required=False)


class ErrorSchema(serializers.Serializer[Any]):
    """Run:ai's error, with `errors` beside it where fields are refused."""

    code = serializers.IntegerField(help_text="The HTTP status.")
    message = serializers.CharField()
    details = serializers.CharField(help_text="Machine-readable code.", allow_blank=True)

    def get_fields(self) -> dict[str, Any]:
        """With `errors`, a name the class itself uses."""
        return {**super().get_fields(), "errors": ProblemSchema(many=True, required=False)}


def schema(
    name: str, about: str, base: type[serializers.Serializer[Any]] = serializers.Serializer, /, **fields: Any
) -> type[serializers.Serializer[Any]]:
    """A serializer class of few fields; `about` is its description in the OpenAPI document."""
    return type(name, (base,), {**fields, "__doc__": about})


class TypedJson(serializers.JSONField):
    """A JSON value that a service checks; the OpenAPI document describes it as `as_`."""

    def __init__(self, *, as_: Any = None, **about: Any) -> None:
        super().__init__(**about)
        if as_ is not None:
            set_override(self, "field", as_)


class TypedObject(serializers.DictField):
    """The same where anything but an object is refused at once."""

    def __init__(self, *, as_: Any, **about: Any) -> None:
        super().__init__(**about)
        set_override(self, "field", as_)


class NamedId(serializers.Serializer[Any]):
    """Something by its id and name."""

    id = serializers.CharField()
    name = serializers.CharField(required=False)


class EncodedText(serializers.CharField):
    """Base64. The library looks at every character for what cannot be stored; decoding refuses that at once."""

    def __init__(self, **about: Any) -> None:
        super().__init__(**about)
        self.validators = []


def ignored_parameters(*names: str) -> list[OpenApiParameter]:
    """Parameters that Run:ai's clients may send, and that ask for nothing Rung has."""
    text = "Accepted for Run:ai's clients, without effect."
    return [OpenApiParameter(name, str, description=text) for name in names]


class CountSchema(serializers.Serializer[Any]):
    """How many."""

    count = serializers.IntegerField()


class AcceptedSchema(serializers.Serializer[Any]):
    """Taken; the cluster follows."""

    code = serializers.IntegerField()
    message = serializers.CharField()


ERROR_RESPONSES: Final = {400: ErrorSchema, 401: ErrorSchema, 403: ErrorSchema, 404: ErrorSchema}
"""What every route may answer besides."""


def operation(
    operation_id: str, summary: str, answer: Any = None, status: int = 200, *, also: Iterable[int] = (), **more: Any
) -> Callable[[Handler], Handler]:
    """What the OpenAPI document says of one method of a route. `answer`: a serializer, None for no body, or several
    of these by status.

    `also`: further statuses of errors. Those that any write may answer need no word: `RouteSchema` adds them.
    """
    answers = answer if isinstance(answer, dict) else {status: answer}
    responses = {**answers, **ERROR_RESPONSES, **dict.fromkeys(also, ErrorSchema)}
    options = {"request": None, **more}
    found: Callable[[Handler], Handler] = extend_schema(
        operation_id=operation_id, summary=summary, responses=responses, **options
    )
    return found


FILTERS: Final = [
    OpenApiParameter(
        "filterBy", str, description="Comma-separated conditions of field, operator and value: name=@high,value>=80."
    ),
    OpenApiParameter("sortBy", str),
    OpenApiParameter("sortOrder", str, enum=["asc", "desc"]),
]
PAGES: Final = [OpenApiParameter("offset", int), OpenApiParameter("limit", int, description="1 to 500.")]


def validated_body(schema: type[serializers.Serializer[Any]], body: object) -> dict[str, Any]:
    """The body with known fields only. Raises ValidationFailed with a pointer for every bad or unknown field."""
    found, problems = _read(schema, body)
    problems += _unknown("", _reader(schema), body)
    if problems:
        raise ValidationFailed(problems[0].message, code="invalid", problems=problems)
    return found


def rendered(schema: type[serializers.Serializer[Any]], row: object, **computed: Any) -> dict[str, Any]:
    """The row as JSON values: each field of the schema by its `source`, else by its name in snake case.

    `computed`: fields that are no attribute of the row, as they are to be sent. What is not required is left out
    unless it is computed.
    """
    found: dict[str, Any] = {}
    for name, field in _reader(schema).fields.items():
        if name in computed:
            found[name] = computed[name]
        if name in computed or not field.required:
            continue
        source = field.source if field.source and field.source != name else SNAKE.sub(r"_\1", name).lower()
        value = attrgetter(source)(row)
        found[name] = None if value is None else field.to_representation(value)
    return found


@contextmanager
def map_pointers(names: Mapping[str, str], *, else_at: str | None = None) -> Iterator[None]:
    """A refusal points at fields as a route calls them: by `names`, else as it is.

    `else_at`: the field that every other pointer is a place in; the message then begins with that place.
    """
    try:
        yield
    except RungError as error:
        error.problems = tuple(_moved(each, names, else_at) for each in error.problems)
        raise


def _moved(problem: Problem, names: Mapping[str, str], else_at: str | None) -> Problem:
    if problem.pointer in names or else_at is None:
        return replace(problem, pointer=names.get(problem.pointer, problem.pointer))
    return replace(problem, pointer=else_at, message=problem.placed_message)


@lru_cache
def _reader(schema: type[serializers.Serializer[Any]]) -> serializers.Serializer[Any]:
    """One instance per process: making one copies every field, which costs more than reading a body."""
    return schema()


def _read(schema: type[serializers.Serializer[Any]], body: object) -> tuple[dict[str, Any], list[Problem]]:
    """What a good body says; a bad one is read once more by a serializer of its own, which explains it."""
    with suppress(serializers.ValidationError):
        return dict(_reader(schema).run_validation(body)), []
    explained = schema(data=body)
    explained.is_valid()
    return {}, list(_problems("", explained.errors))


def _problems(pointer: str, errors: Any) -> list[Problem]:
    if isinstance(errors, dict):
        named = (("" if key == "non_field_errors" else f"/{key}", value) for key, value in errors.items())
        return [problem for part, value in named for problem in _problems(pointer + part, value)]
    if any(isinstance(each, dict) for each in errors):  # of a list of objects: one of each, empty where it is good
        return [problem for place, each in enumerate(errors) for problem in _problems(f"{pointer}/{place}", each)]
    return [Problem(pointer, str(getattr(each, "code", "invalid")), str(each)) for each in errors]


def _unknown(pointer: str, serializer: serializers.Serializer[Any], body: object) -> list[Problem]:
    if not isinstance(body, dict):
        return []
    known = serializer.fields
    found = [
        Problem(f"{pointer}/{str(key)[:100]}", "unknown_field", "Unknown field.", allowed=tuple(known))
        for key in body
        if key not in known
    ]
    for name, field in known.items():
        found += _unknown_below(f"{pointer}/{name}", field, body.get(name))
    return found


def _unknown_below(pointer: str, field: serializers.Field[Any, Any, Any, Any], value: object) -> list[Problem]:
    if isinstance(field, serializers.Serializer):
        return _unknown(pointer, field, value)
    if not isinstance(field, serializers.ListSerializer) or not isinstance(value, list):
        return []
    item: serializers.Serializer[Any] = field.child  # type: ignore[assignment]  # many=True of a serializer
    return [problem for place, each in enumerate(value) for problem in _unknown(f"{pointer}/{place}", item, each)]
