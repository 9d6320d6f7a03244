"""Where something holds: a project, a department, a cluster or the whole installation, as metadata names it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rung_cli.manifests.resources import DeclaredKey, DeclaredObject, ServerState

SCOPES: Final = ("project", "department", "cluster")
KINDS: Final[Mapping[str, str]] = {"project": "Project", "department": "Department", "cluster": "Cluster"}
TENANT: Final = "tenant"


def scope_of(metadata: Mapping[str, str]) -> str:
    """The nearest that is named; a cluster beside a department says which department."""
    return next((scope for scope in SCOPES if metadata.get(scope)), TENANT)


def scope_errors(metadata: Mapping[str, str]) -> Iterator[str]:
    """What does not name one place."""
    if metadata.get("department") and not metadata.get("cluster"):
        yield "/metadata/cluster is missing: departments belong to a cluster."
    if metadata.get("project") and metadata.get("department"):
        yield "/metadata names a project and a department. Name one of them."


def scope_key(metadata: Mapping[str, str]) -> DeclaredKey | None:
    """The thing that is the place; None for the whole installation."""
    scope = scope_of(metadata)
    if scope == TENANT:
        return None
    cluster = metadata.get("cluster", "") if scope != "cluster" else ""
    return DeclaredKey(KINDS[scope], metadata[scope], cluster)


def place_of(metadata: Mapping[str, str]) -> str:
    """In words: `project llm-team`, `department research on lab`, `the installation`."""
    scope = scope_of(metadata)
    if scope == TENANT:
        return "the installation"
    where = f" on {metadata['cluster']}" if scope == "department" else ""
    return f"{scope} {metadata[scope]}{where}"


def scope_id(server: ServerState, metadata: Mapping[str, str]) -> str:
    """The server's id of the place; empty for the whole installation."""
    key = scope_key(metadata)
    return server.id_of(key) if key else ""


def metadata_of(server: ServerState, scope: str, key: Any) -> dict[str, str] | None:
    """The same of what the server says; None where the caller does not see the place."""
    if scope not in KINDS:
        return {}
    found: DeclaredObject | None = server.by_id(KINDS[scope], str(key))
    if found is None:
        return None
    named = {scope: found.key.name}
    return {**named, "cluster": found.key.cluster} if scope == "department" else named
