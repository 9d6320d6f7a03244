"""The organisation as the server has it, thing by thing, and what is sent to make a thing so."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rung_cli.declared import DEPARTMENT, PRIORITY, PROJECT, RULES, TYPE, Key, Spec, Thing, amounts
from rung_cli.errors import Misused
from rung_cli.paging import rows
from rung_cli.signing import Api

UNIT_PATHS: Final = {DEPARTMENT: "v1/org-unit/departments", PROJECT: "v1/org-unit/projects"}
PRIORITIES: Final = "v1/workload-priorities"


@dataclass(frozen=True, slots=True)
class Organisation:
    """Everything there is, with the ids that requests need. `pools`: ids by name, of each cluster by its name."""

    things: Mapping[Key, Thing]
    clusters: Mapping[str, str]
    pools: Mapping[str, Mapping[str, str]]
    categories: Mapping[str, str]

    def id_of(self, key: Key, *, wanted_by: str) -> str:
        """The id of a thing that another one names. Misused where there is none."""
        if key not in self.things:
            raise Misused(f"{wanted_by}: there is no {key}.")
        return str(self.things[key].extra["id"])


def read(api: Api) -> Organisation:
    """In six requests and the pages of two lists."""
    clusters = {each["uuid"]: each["name"] for each in api.get("v1/clusters")}
    pools: dict[str, dict[str, str]] = {name: {} for name in clusters.values()}
    for each in rows(api, "v1/node-pools", "nodepools", query={}):
        pools.setdefault(each["clusterName"], {})[each["name"]] = each["id"]
    found = [_priority(each) for each in api.get(PRIORITIES)["priorities"]]
    found += [_type(each) for each in api.get("v1/workload-types")["types"]]
    for kind, path in UNIT_PATHS.items():
        units = rows(api, path, path.rpartition("/")[2], query={"sortBy": "name"})
        found += [_unit(kind, each, clusters) for each in units]
    categories = {each["name"]: each["id"] for each in api.get("v1/workload-categories")["categories"]}
    by_name = {name: cluster_id for cluster_id, name in clusters.items()}
    return Organisation({each.key: each for each in found}, by_name, pools, categories)


def create(api: Api, thing: Thing, known: Organisation) -> None:
    """Make it."""
    if thing.key.kind == PRIORITY:
        api.post(PRIORITIES, {"name": thing.key.name, **thing.spec})
        return
    if thing.key.kind == TYPE:
        raise Misused(f"{thing.source}: there is no {thing.key}, and types are not made: rung types")
    body = {"name": thing.key.name, "clusterId": _cluster(thing, known), **_unit_body(thing, known, {})}
    if thing.key.kind == PROJECT:
        parent = Key(DEPARTMENT, thing.department, thing.key.cluster)
        body["parentId"] = known.id_of(parent, wanted_by=thing.source)
        if thing.spec.get("namespace"):
            body["requestedNamespace"] = thing.spec["namespace"]
    api.post(UNIT_PATHS[thing.key.kind], body)


def change(api: Api, thing: Thing, known: Organisation) -> None:
    """Make it so; what the document leaves out stays."""
    now = known.things[thing.key]
    _CHANGES[thing.key.kind](api, thing, now, known)


def remove(api: Api, thing: Thing) -> None:
    """Take it away."""
    path = PRIORITIES if thing.key.kind == PRIORITY else UNIT_PATHS[thing.key.kind]
    api.delete(f"{path}/{thing.extra['id']}")


def _change_priority(api: Api, thing: Thing, now: Thing, _known: Organisation) -> None:
    api.patch(f"{PRIORITIES}/{now.extra['id']}", thing.spec)


def _change_type(api: Api, thing: Thing, now: Thing, known: Organisation) -> None:
    spec = thing.spec
    body: dict[str, Any] = {name: spec[name] for name in ("preemptibility",) if name in spec}
    if "category" in spec:
        if spec["category"] not in known.categories:
            raise Misused(f"{thing.source}: there is no category {spec['category']}: {', '.join(known.categories)}.")
        body["categoryId"] = known.categories[spec["category"]]
    if "priority" in spec:
        body["priorityId"] = known.id_of(Key(PRIORITY, spec["priority"]), wanted_by=thing.source)
    api.put(f"v1/workload-types/{now.extra['id']}", body)


def _change_unit(api: Api, thing: Thing, now: Thing, known: Organisation) -> None:
    api.put(f"{UNIT_PATHS[thing.key.kind]}/{now.extra['id']}", _unit_body(thing, known, now.spec))


_CHANGES: Final[Mapping[str, Callable[[Api, Thing, Thing, Organisation], None]]] = {
    PRIORITY: _change_priority,
    TYPE: _change_type,
    DEPARTMENT: _change_unit,
    PROJECT: _change_unit,
}


def _unit_body(thing: Thing, known: Organisation, now: Spec) -> dict[str, Any]:
    """`resources` replaces every quota, so those of now are sent where the document has none."""
    spec = thing.spec
    quotas: Mapping[str, Any] = spec["quotas"] if "quotas" in spec else now.get("quotas") or {}
    said = {pool: each for pool, each in quotas.items() if amounts(each) != amounts({})}
    body: dict[str, Any] = {"resources": [_entry(pool, each, thing, known) for pool, each in said.items()]}
    names = {"description": "description", "schedulingRules": "schedulingRules", "nodePools": "defaultNodePools"}
    return body | {names[name]: spec[name] for name in names if name in spec}


def _entry(pool: str, quota: Mapping[str, Any], thing: Thing, known: Organisation) -> dict[str, Any]:
    pools = known.pools.get(thing.key.cluster, {})
    if pool not in pools:
        raise Misused(f"{thing.source}: {thing.key.cluster} has no node pool {pool}: {', '.join(pools) or 'none'}.")
    weight = {"overQuotaWeight": quota["overQuotaWeight"]} if "overQuotaWeight" in quota else {}
    entry: dict[str, Any] = {"nodePool": {"id": pools[pool], "name": pool}, "gpu": {"deserved": 0, **weight}}
    for name in ("gpu", "cpu", "memory"):
        if quota.get(name):
            entry[name] = {**entry.get(name, {}), **quota[name]}
    return entry | ({"rank": quota["rank"]} if quota.get("rank") else {})


def _cluster(thing: Thing, known: Organisation) -> str:
    if thing.key.cluster not in known.clusters:
        names = ", ".join(known.clusters) or "none"
        raise Misused(f"{thing.source}: there is no cluster {thing.key.cluster}: {names}.")
    return known.clusters[thing.key.cluster]


def _priority(row: Mapping[str, Any]) -> Thing:
    spec = {name: row[name] for name in ("value", "preemptionPolicy", "description")}
    return Thing(Key(PRIORITY, row["name"]), spec, extra=row)


def _type(row: Mapping[str, Any]) -> Thing:
    said = {
        "category": row.get("categoryName"),
        "priority": row.get("priorityName"),
        "preemptibility": row.get("preemptibility"),
    }
    return Thing(Key(TYPE, row["name"]), {name: value for name, value in said.items() if value}, extra=row)


def _unit(kind: str, row: Mapping[str, Any], clusters: Mapping[str, str]) -> Thing:
    key = Key(kind, row["name"], clusters.get(row["clusterId"], row["clusterId"]))
    quotas = {each["nodePool"]["name"]: _quota(each) for each in row["resources"]}
    rules = {name: value for name in RULES if (value := (row.get("schedulingRules") or {}).get(name)) is not None}
    spec: Spec = {"description": row["description"], "schedulingRules": rules, "quotas": quotas}
    if kind == DEPARTMENT:
        return Thing(key, spec, extra=row)
    own = {"namespace": row["status"]["namespace"], "nodePools": row.get("defaultNodePools") or []}
    return Thing(key, {**own, **spec}, row["parent"]["name"], extra=row)


def _quota(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Without what says nothing."""
    found: dict[str, Any] = {}
    for name in ("gpu", "cpu", "memory"):
        part = {way: entry[name][way] for way in ("deserved", "limit") if entry[name].get(way) is not None}
        if part:
            found[name] = part | ({"units": entry[name]["units"]} if name == "memory" else {})
    return {**found, "overQuotaWeight": entry["gpu"]["overQuotaWeight"], "rank": entry["rank"]}
