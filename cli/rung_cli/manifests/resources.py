"""What every kind of document has in common: how it is named, read, compared, and written over REST.

A document names its thing by kind and metadata; its spec says how it is to be. What a spec leaves out is not managed
and stays as it is.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Final, NamedTuple

from rung_cli.errors import ApiError, UsageError
from rung_cli.http.client import Api

VERSION: Final = "rung.dev/v1"
Spec = dict[str, Any]


class DeclaredKey(NamedTuple):
    """Which thing. `cluster` is empty for what belongs to all of them."""

    kind: str
    name: str
    cluster: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" on {self.cluster}" if self.cluster else "")

    def names(self, other: "DeclaredKey") -> bool:
        """Is it the other one? A key without a cluster names the thing of that name on any."""
        return self[:2] == other[:2] and self.cluster in {"", other.cluster}


@dataclass(frozen=True, slots=True)
class Difference:
    """One field: as it is, and as it is to be."""

    field: str
    before: object
    after: object


@dataclass(frozen=True, slots=True)
class DeclaredObject:
    """One document, or one thing as the server has it. `source`: its place, for errors."""

    kind: "ResourceKind"
    metadata: Mapping[str, str]
    spec: Spec
    source: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What the server said besides; not part of the document."""

    @property
    def key(self) -> DeclaredKey:
        """What identifies it."""
        return self.kind.key(self.metadata)

    @property
    def id(self) -> str:
        """The server's."""
        return self.kind.id_of(self.extra)

    def as_document(self) -> dict[str, Any]:
        """As it is written."""
        order = (*self.kind.required, *self.kind.optional)
        metadata = {name: self.metadata[name] for name in order if self.metadata.get(name)}
        spec = {"spec": self.spec} if self.kind.fields else {}
        return {"apiVersion": VERSION, "kind": self.kind.name, "metadata": metadata, **spec}


class ServerState:
    """Everything there is, kind by kind as it is asked for."""

    def __init__(self, api: Api, kinds: "Mapping[str, ResourceKind]") -> None:
        self.api = api
        self.kinds = kinds
        self._things: dict[str, dict[DeclaredKey, DeclaredObject]] = {}

    @cached_property
    def categories(self) -> Mapping[str, str]:
        """Ids of the categories of workload types, by name. They are always the same."""
        return {each["name"]: each["id"] for each in self.api.get("v1/workload-categories")["categories"]}

    def things(self, kind: str) -> dict[DeclaredKey, DeclaredObject]:
        """All of one kind that the caller sees."""
        if kind not in self._things:
            self._things[kind] = {each.key: each for each in self.kinds[kind].read(self)}
        return self._things[kind]

    def find(self, key: DeclaredKey) -> DeclaredObject | None:
        """The thing of that key."""
        return next((thing for known, thing in self.things(key.kind).items() if key.names(known)), None)

    def by_id(self, kind: str, key: str) -> DeclaredObject | None:
        """The thing with that id."""
        return next((thing for thing in self.things(kind).values() if thing.id == key), None)

    def id_of(self, key: DeclaredKey) -> str:
        """The id of a thing that another one names. ApiError while there is none: it was to be made, and was not."""
        if (found := self.find(key)) is None:
            raise ApiError(f"{key} does not exist yet.", status=409)
        return found.id

    def keep(self, thing: DeclaredObject) -> None:
        """It is there from now on."""
        self.things(thing.key.kind)[thing.key] = thing

    def drop(self, key: DeclaredKey) -> None:
        """It is there no more."""
        self.things(key.kind).pop(key, None)


class ResourceKind(ABC):
    """One kind of document and the REST resource behind it.

    `required` and `optional`: its metadata. `fields`: of its spec; of these, `fixed` cannot change, and `secret` are
    written but never read. `prunable`: may `--prune` delete it? `order_with_parent`: it may have to change before what
    it names, such as the quotas of a project before those of its department.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    required: ClassVar[tuple[str, ...]] = ("name",)
    optional: ClassVar[tuple[str, ...]] = ()
    fields: ClassVar[tuple[str, ...]] = ()
    fixed: ClassVar[tuple[str, ...]] = ()
    secret: ClassVar[tuple[str, ...]] = ()
    prunable: ClassVar[bool] = True
    order_with_parent: ClassVar[bool] = False

    def key(self, metadata: Mapping[str, str]) -> DeclaredKey:
        """What identifies a thing."""
        return DeclaredKey(self.name, metadata["name"], metadata.get("cluster", ""))

    def id_of(self, extra: Mapping[str, Any]) -> str:
        """The server's id of a row of its."""
        return str(extra["id"])

    def shape_errors(self, metadata: Mapping[str, str], spec: Mapping[str, Any]) -> Iterator[str]:
        """What is wrong with a document by itself, each with its pointer."""
        del metadata, spec
        yield from ()

    def references(self, thing: DeclaredObject) -> Iterator[DeclaredKey]:
        """What it names, and what has to be there before it."""
        del thing
        yield from ()

    def is_managed(self, thing: DeclaredObject) -> bool:
        """Is it a thing that documents are about? Not what Rung itself brings."""
        del thing
        return True

    def refuse_impossible(self, thing: DeclaredObject, now: DeclaredObject | None, server: ServerState) -> None:
        """UsageError for what no request could do, and for a secret that is needed and not there."""
        del server
        found = list(self.differences(thing.spec, now.spec)) if now else []
        for each in found:
            if each.field in self.fixed:
                raise UsageError(f"{thing.source}: {each.field} of {thing.key} is {each.before} and cannot change.")
        for name in self.secret if found or now is None else ():
            secret(thing.spec, name, thing.source)

    def differences(self, wanted: Spec, now: Spec) -> Iterator[Difference]:
        """Field by field."""
        for name, value in wanted.items():
            if name not in self.secret and (value or None) != (now.get(name) or None):
                yield Difference(name, now.get(name), value)

    def summary(self, spec: Spec) -> Iterator[Difference]:
        """Of a new thing: what it says."""
        for name, value in spec.items():
            if name not in self.secret and value not in ("", [], {}, None):
                yield Difference(name, None, value)

    @abstractmethod
    def read(self, server: ServerState) -> Iterator[DeclaredObject]:
        """All there are."""

    def complete(self, server: ServerState, thing: DeclaredObject) -> DeclaredObject:
        """With what the list of all did not say, where it costs a request more."""
        del server
        return thing

    @abstractmethod
    def create(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> Mapping[str, Any]:
        """Make it. Answers its row."""

    @abstractmethod
    def change(self, server: ServerState, thing: DeclaredObject, now: DeclaredObject, *, dry_run: bool) -> None:
        """Make it so; what the document leaves out stays."""

    @abstractmethod
    def remove(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> None:
        """Take it away."""


def refuse_unknown(thing: DeclaredObject, server: ServerState, coming: Collection[DeclaredKey]) -> None:
    """UsageError where it names what neither is there nor is `coming`, with what there is."""
    for named in thing.kind.references(thing):
        if server.find(named) or any(named.names(each) for each in coming):
            continue
        title = server.kinds[named.kind].title
        known = [*server.things(named.kind), *(each for each in coming if each.kind == named.kind)]
        there = [each.name for each in known if named.cluster in {"", each.cluster}]
        what = f"{named.cluster} has no {title} {named.name}" if named.cluster else f"unknown {title} {named.name}"
        raise UsageError(f"{thing.source}: {what}: {', '.join(dict.fromkeys(there)) or 'none'}.")


# Secrets: `{env: NAME}` says which environment variable has one. A document never holds it.


def secret_error(spec: Mapping[str, Any], name: str) -> Iterator[str]:
    """What is no reference to a variable."""
    found = spec.get(name)
    if found is not None and not (
        isinstance(found, dict) and found.keys() == {"env"} and isinstance(found["env"], str)
    ):
        yield f"/spec/{name} must be {{env: NAME}}, the environment variable that has it."


def secret(spec: Mapping[str, Any], name: str, source: str) -> str:
    """The value of the variable that the field names; empty where the document names none. UsageError if unset."""
    if not spec.get(name):
        return ""
    variable = spec[name]["env"]
    if not (found := os.environ.get(variable)):
        raise UsageError(f"{source}: /spec/{name}: the environment variable {variable} is not set.")
    return found
