"""The organisation as the server has it, thing by thing, and what is sent to make a thing so."""

from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Final

from rung_cli.errors import ApiError, UsageError
from rung_cli.http.client import Api
from rung_cli.http.pagination import rows
from rung_cli.manifests.organisation import (
    DEPARTMENT,
    PRIORITY,
    PROJECT,
    RULES,
    TYPE,
    DeclaredKey,
    DeclaredObject,
    Spec,
    amounts,
)

UNIT_PATHS: Final = {DEPARTMENT: "v1/org-unit/departments", PROJECT: "v1/org-unit/projects"}
PRIORITIES: Final = "v1/workload-priorities"
TYPES: Final = "v1/workload-types"


@dataclass(frozen=True, slots=True)
class ServerOrganisation:
    """Everything there is, with the ids that requests need. `pools`: ids by name, of each cluster by its name."""

    things: MutableMapping[DeclaredKey, DeclaredObject]
    clusters: Mapping[str, str]
    pools: Mapping[str, Mapping[str, str]]
    categories: Mapping[str, str]
    withdrawn: Mapping[DeclaredKey, DeclaredObject]
    """Types that are not there until they are offered again."""

    def id_of(self, key: DeclaredKey) -> str:
        """The id of a thing that another one names. Refused while there is none: it was to be made, and was not."""
        if key not in self.things:
            raise ApiError(f"{key} does not exist yet.", status=409)
        return str(self.things[key].extra["id"])


def read(api: Api) -> ServerOrganisation:
    """In seven requests and the pages of two lists."""
    clusters = {each["uuid"]: each["name"] for each in api.get("v1/clusters")}
    pools: dict[str, dict[str, str]] = {name: {} for name in clusters.values()}
    for each in rows(api, "v1/node-pools", "nodepools", query={}):
        pools.setdefault(each["clusterName"], {})[each["name"]] = each["id"]
    found = [_priority(each) for each in api.get(PRIORITIES)["priorities"]]
    found += [_type(each) for each in api.get(TYPES)["types"]]
    withdrawn = [_type(each) for each in api.get(TYPES, withdrawn=True)["types"]]
    for kind, path in UNIT_PATHS.items():
        units = rows(api, path, path.rpartition("/")[2], query={"sortBy": "name"})
        found += [_unit(kind, each, clusters) for each in units]
    categories = {each["name"]: each["id"] for each in api.get("v1/workload-categories")["categories"]}
    by_name = {name: cluster_id for cluster_id, name in clusters.items()}
    away = {each.key: each for each in withdrawn}
    return ServerOrganisation({each.key: each for each in found}, by_name, pools, categories, away)


def refuse_unknown(thing: DeclaredObject, known: ServerOrganisation, *, coming: Collection[DeclaredKey]) -> None:
    """Misused where it names what neither is there nor is `coming`, with what there is."""
    for named, there in _named(thing, known, coming):
        raise UsageError(f"{thing.source}: {named}: {', '.join(there) or 'none'}.")


def _named(
    thing: DeclaredObject, known: ServerOrganisation, coming: Collection[DeclaredKey]
) -> Iterator[tuple[str, Collection[str]]]:
    """What it names in vain, and what it could have named."""
    (kind, _, cluster), spec = thing.key, thing.spec
    if kind == TYPE and spec.get("category") not in (None, *known.categories):
        yield f"unknown category {spec['category']}", known.categories
    levels = {key.name for key in (*known.things, *coming) if key.kind == PRIORITY}
    if kind == TYPE and spec.get("priority") not in (None, *levels):
        yield f"unknown priority {spec['priority']}", sorted(levels)
    if kind not in UNIT_PATHS:
        return
    if cluster not in known.clusters:
        yield f"unknown cluster {cluster}", known.clusters
    pools = known.pools.get(cluster, {})
    for pool in spec.get("quotas") or ():
        if pool not in pools:
            yield f"{cluster} has no node pool {pool}", pools
    departments = {key.name for key in (*known.things, *coming) if key.kind == DEPARTMENT and key.cluster == cluster}
    if kind == PROJECT and thing.department not in departments:
        yield f"{cluster} has no department {thing.department}", sorted(departments)


def create(api: Api, thing: DeclaredObject, known: ServerOrganisation) -> None:
    """Make it; what comes after it may name it."""
    if thing.key.kind == PRIORITY:
        path, body = PRIORITIES, {"name": thing.key.name, **thing.spec}
    elif thing.key.kind == TYPE:
        path, body = TYPES, _offered_type(thing, known)
    else:
        path, body = UNIT_PATHS[thing.key.kind], _new_unit(thing, known)
    known.things[thing.key] = replace(thing, extra=api.post(path, body))


def _offered_type(thing: DeclaredObject, known: ServerOrganisation) -> dict[str, Any]:
    """A withdrawn type again; what the document leaves out is as it was."""
    was = known.withdrawn[thing.key].extra
    kept = {name: was[name] for name in ("name", "group", "categoryId", "priorityId")}
    return kept | _type_body(thing, known)


def _new_unit(thing: DeclaredObject, known: ServerOrganisation) -> dict[str, Any]:
    cluster = thing.key.cluster
    body = {"name": thing.key.name, "clusterId": known.clusters[cluster], **_unit_body(thing, known, {})}
    if thing.key.kind == PROJECT:
        body["parentId"] = known.id_of(DeclaredKey(DEPARTMENT, thing.department, cluster))
        if thing.spec.get("namespace"):
            body["requestedNamespace"] = thing.spec["namespace"]
    return body


def change(api: Api, thing: DeclaredObject, known: ServerOrganisation) -> None:
    """Make it so; what the document leaves out stays."""
    now = known.things[thing.key]
    _CHANGES[thing.key.kind](api, thing, now, known)


def remove(api: Api, thing: DeclaredObject) -> None:
    """Take it away."""
    path = PRIORITIES if thing.key.kind == PRIORITY else UNIT_PATHS[thing.key.kind]
    api.delete(f"{path}/{thing.extra['id']}")


def _change_priority(api: Api, thing: DeclaredObject, now: DeclaredObject, _known: ServerOrganisation) -> None:
    api.patch(f"{PRIORITIES}/{now.extra['id']}", thing.spec)


def _change_type(api: Api, thing: DeclaredObject, now: DeclaredObject, known: ServerOrganisation) -> None:
    api.put(f"{TYPES}/{now.extra['id']}", _type_body(thing, known))


def _type_body(thing: DeclaredObject, known: ServerOrganisation) -> dict[str, Any]:
    spec = thing.spec
    body: dict[str, Any] = {name: spec[name] for name in ("preemptibility",) if name in spec}
    if spec.get("category"):
        body["categoryId"] = known.categories[spec["category"]]
    if spec.get("priority"):
        body["priorityId"] = known.id_of(DeclaredKey(PRIORITY, spec["priority"]))
    return body


def _change_unit(api: Api, thing: DeclaredObject, now: DeclaredObject, known: ServerOrganisation) -> None:
    api.put(f"{UNIT_PATHS[thing.key.kind]}/{now.extra['id']}", _unit_body(thing, known, now.spec))


_CHANGES: Final[Mapping[str, Callable[[Api, DeclaredObject, DeclaredObject, ServerOrganisation], None]]] = {
    PRIORITY: _change_priority,
    TYPE: _change_type,
    DEPARTMENT: _change_unit,
    PROJECT: _change_unit,
}


def _unit_body(thing: DeclaredObject, known: ServerOrganisation, now: Spec) -> dict[str, Any]:
    """`resources` replaces every quota, so those of now are sent where the document has none."""
    spec = thing.spec
    quotas: Mapping[str, Any] = spec["quotas"] if "quotas" in spec else now.get("quotas") or {}
    said = {pool: each for pool, each in quotas.items() if amounts(each) != amounts({})}
    body: dict[str, Any] = {"resources": [_entry(pool, each, thing, known) for pool, each in said.items()]}
    names = {"description": "description", "schedulingRules": "schedulingRules", "nodePools": "defaultNodePools"}
    return body | {names[name]: spec[name] for name in names if name in spec}


def _entry(pool: str, quota: Mapping[str, Any], thing: DeclaredObject, known: ServerOrganisation) -> dict[str, Any]:
    pool_id = known.pools[thing.key.cluster][pool]
    weight = {} if quota.get("overQuotaWeight") is None else {"overQuotaWeight": quota["overQuotaWeight"]}
    entry: dict[str, Any] = {"nodePool": {"id": pool_id, "name": pool}, "gpu": {"deserved": 0, **weight}}
    for name in ("gpu", "cpu", "memory"):
        if quota.get(name):
            entry[name] = {**entry.get(name, {}), **quota[name]}
    return entry | ({"rank": quota["rank"]} if quota.get("rank") else {})


def _priority(row: Mapping[str, Any]) -> DeclaredObject:
    spec = {name: row[name] for name in ("value", "preemptionPolicy", "description")}
    return DeclaredObject(DeclaredKey(PRIORITY, row["name"]), spec, extra=row)


def _type(row: Mapping[str, Any]) -> DeclaredObject:
    said = {
        "category": row.get("categoryName"),
        "priority": row.get("priorityName"),
        "preemptibility": row.get("preemptibility"),
    }
    return DeclaredObject(
        DeclaredKey(TYPE, row["name"]), {name: value for name, value in said.items() if value}, extra=row
    )


def _unit(kind: str, row: Mapping[str, Any], clusters: Mapping[str, str]) -> DeclaredObject:
    key = DeclaredKey(kind, row["name"], clusters.get(row["clusterId"], row["clusterId"]))
    quotas = {each["nodePool"]["name"]: _quota(each) for each in row["resources"]}
    rules = {name: value for name in RULES if (value := (row.get("schedulingRules") or {}).get(name)) is not None}
    spec: Spec = {"description": row["description"], "schedulingRules": rules, "quotas": quotas}
    if kind == DEPARTMENT:
        return DeclaredObject(key, spec, extra=row)
    own = {"namespace": row["status"]["namespace"], "nodePools": row.get("defaultNodePools") or []}
    return DeclaredObject(key, {**own, **spec}, row["parent"]["name"], extra=row)


def _quota(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Without what says nothing."""
    found: dict[str, Any] = {}
    for name in ("gpu", "cpu", "memory"):
        part = {way: entry[name][way] for way in ("deserved", "limit") if entry[name].get(way) is not None}
        if entry[name].get("overQuotaWeight") != entry["gpu"]["overQuotaWeight"]:
            part["overQuotaWeight"] = entry[name]["overQuotaWeight"]
        if part:
            found[name] = part | ({"units": entry[name]["units"]} if name == "memory" else {})
    return {**found, "overQuotaWeight": entry["gpu"]["overQuotaWeight"], "rank": entry["rank"]}
