"""Documents to what they declare. Everything that is wrong with a document alone is found here."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from rung_cli.errors import UsageError
from rung_cli.lookup import did_you_mean
from rung_cli.manifests.documents import ManifestDocument
from rung_cli.manifests.kinds import KINDS
from rung_cli.manifests.resources import VERSION, DeclaredKey, DeclaredObject, ResourceKind

Body = dict[str, Any]


def bodies_of(documents: Sequence[ManifestDocument]) -> list[tuple[str, Body]]:
    """(place, content) of each document; a Kubernetes List yields its items."""
    return [each for document in documents for each in _bodies(document)]


def declared_objects(bodies: Sequence[tuple[str, Body]]) -> list[DeclaredObject]:
    """Every thing that is declared. UsageError, naming file and document, for invalid or repeated ones."""
    found = [_declared_object(source, body) for source, body in bodies]
    seen: dict[DeclaredKey, DeclaredObject] = {}
    for each in found:
        if other := seen.get(each.key):
            raise UsageError(f"{each.source}: {each.key} is already in {other.source}.")
        seen[each.key] = each
    return found


def _bodies(document: ManifestDocument) -> Iterator[tuple[str, Body]]:
    try:
        body = yaml.safe_load(document.text)
    except yaml.YAMLError as error:
        raise UsageError(f"{document}: not valid YAML: {error}") from None
    if not isinstance(body, dict):
        raise UsageError(f"{document}: a document must be a mapping.")
    items = body.get("items") if (body.get("apiVersion"), body.get("kind")) == ("v1", "List") else None
    if not isinstance(items, list):
        yield str(document), body
        return
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            raise UsageError(f"{document}: /items/{number} must be a mapping.")
        yield f"{document}, item {number + 1}", item


def _declared_object(source: str, body: Body) -> DeclaredObject:
    kind = KINDS.get(str(body.get("kind")))
    if body.get("apiVersion") != VERSION or kind is None:
        guess = did_you_mean(str(body.get("kind")), list(KINDS)) if kind is None else ""
        raise UsageError(f"{source}: apiVersion must be {VERSION} and kind one of {', '.join(KINDS)}.{guess}")
    _only(source, "", body, ("apiVersion", "kind", "metadata", "spec"))
    metadata, spec = body.get("metadata"), body.get("spec")
    if spec is None and not kind.fields:
        spec = {}
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        raise UsageError(f"{source}: metadata and spec must be mappings.")
    _check(source, kind, metadata, spec)
    return DeclaredObject(kind, metadata, spec, source)


def _check(source: str, kind: ResourceKind, metadata: Body, spec: Body) -> None:
    _only(source, "/metadata", metadata, (*kind.required, *kind.optional))
    _only(source, "/spec", spec, kind.fields)
    for name in kind.required:
        if not metadata.get(name):
            raise UsageError(f"{source}: /metadata/{name} is missing.")
    for name, value in metadata.items():
        if not isinstance(value, str):
            raise UsageError(f"{source}: /metadata/{name} must be a text.")
    for problem in kind.shape_errors(metadata, spec):
        raise UsageError(f"{source}: {problem}")


def _only(source: str, at: str, found: Mapping[str, Any], known: Sequence[str]) -> None:
    if unknown := [str(name) for name in found if name not in known]:
        fields = ", ".join(known) or "none"
        raise UsageError(f"{source}: {at}/{unknown[0]}: unknown field; known fields: {fields}.")
