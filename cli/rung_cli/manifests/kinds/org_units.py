"""Departments and projects with their quotas per node pool, which are compared by what they amount to."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from rung_cli.errors import UsageError
from rung_cli.http.client import rows
from rung_cli.manifests.resources import DeclaredKey, DeclaredObject, Difference, ResourceKind, ServerState, Spec

UNITS: Final = {"Mib": 2**20, "MB": 10**6, "GB": 10**9}
RULES: Final = (
    "interactiveJobTimeLimitSeconds",
    "interactiveJobMaxIdleDurationSeconds",
    "trainingJobTimeLimitSeconds",
    "trainingJobMaxIdleDurationSeconds",
)
PARTS: Final = ("gpu", "cpu", "memory")
ENFORCED: Final = "enforceDeserved"
QUOTA: Final = (*PARTS, "overQuotaWeight", "rank")


class OrgUnitResource(ResourceKind):
    """What both have."""

    path: ClassVar[str]
    order_with_parent = True

    def shape_errors(self, metadata: Mapping[str, str], spec: Mapping[str, Any]) -> Iterator[str]:
        del metadata
        quotas, rules = spec.get("quotas", {}), spec.get("schedulingRules", {})
        if not isinstance(quotas, dict) or not all(isinstance(each, dict) for each in quotas.values()):
            yield "/spec/quotas must be a mapping from node pools to quotas."
            return
        for pool, entry in quotas.items():
            yield from _entry_errors(f"/spec/quotas/{pool}", entry)
        if not isinstance(rules, dict) or any(name not in RULES for name in rules):
            yield f"/spec/schedulingRules must be a mapping with {', '.join(RULES)}."

    def references(self, thing: DeclaredObject) -> Iterator[DeclaredKey]:
        yield DeclaredKey("Cluster", thing.key.cluster)
        for pool in thing.spec.get("quotas") or ():
            yield DeclaredKey("NodePool", pool, thing.key.cluster)

    def differences(self, wanted: Spec, now: Spec) -> Iterator[Difference]:
        for name, value in wanted.items():
            before = now.get(name)
            if name == "quotas":
                yield from _quotas(value, before or {})
            elif name == "schedulingRules":
                for rule, seconds in value.items():
                    if (before or {}).get(rule) != seconds:
                        yield Difference(rule, (before or {}).get(rule), seconds)
            elif (value or None) != (before or None):
                yield Difference(name, before, value)

    def summary(self, spec: Spec) -> Iterator[Difference]:
        yield from super().summary({name: value for name, value in spec.items() if name != "quotas"})
        for pool, entry in (spec.get("quotas") or {}).items():
            for what, amount in amounts(entry).items():
                if amount not in (None, 0):
                    yield Difference(f"quota of {pool}: {what}", None, amount)

    def read(self, server: ServerState) -> Iterator[DeclaredObject]:
        for row in rows(server.api, self.path, self.path.rpartition("/")[2], query={"sortBy": "name"}):
            found = server.by_id("Cluster", row["clusterId"])
            rules = {name: value for name in RULES if (value := (row["schedulingRules"] or {}).get(name)) is not None}
            shared = {"description": row["description"], "schedulingRules": rules, "quotas": _read_quotas(row)}
            metadata = {"name": row["name"], "cluster": found.key.name if found else row["clusterId"]}
            yield self.declared(row, metadata, shared)

    def declared(self, row: Mapping[str, Any], metadata: dict[str, str], spec: Spec) -> DeclaredObject:
        """The row as a document."""
        return DeclaredObject(self, metadata, spec, extra=row)

    def create(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> Mapping[str, Any]:
        cluster = server.id_of(DeclaredKey("Cluster", thing.key.cluster))
        body = {"name": thing.key.name, "clusterId": cluster, **self.beside(server, thing)}
        made: Mapping[str, Any] = server.api.post(self.path, body | _body(server, thing, {}), dry_run=dry_run)
        return made

    def beside(self, server: ServerState, thing: DeclaredObject) -> dict[str, Any]:
        """Fields that only a new object gets."""
        del server, thing
        return {}

    def change(self, server: ServerState, thing: DeclaredObject, now: DeclaredObject, *, dry_run: bool) -> None:
        server.api.put(f"{self.path}/{now.id}", _body(server, thing, now.spec), dry_run=dry_run)

    def remove(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> None:
        server.api.delete(f"{self.path}/{thing.id}", dry_run=dry_run)


class DepartmentResource(OrgUnitResource):
    """A parent of projects."""

    name = "Department"
    title = "department"
    path = "v1/org-unit/departments"
    required = ("name", "cluster")
    fields = ("description", "enforceDeserved", "schedulingRules", "quotas")

    def shape_errors(self, metadata: Mapping[str, str], spec: Mapping[str, Any]) -> Iterator[str]:
        yield from super().shape_errors(metadata, spec)
        if not isinstance(spec.get(ENFORCED, False), bool):
            yield f"/spec/{ENFORCED} must be true or false."

    def declared(self, row: Mapping[str, Any], metadata: dict[str, str], spec: Spec) -> DeclaredObject:
        found = {**spec, ENFORCED: row.get(ENFORCED, False)}
        return DeclaredObject(self, metadata, {name: found[name] for name in self.fields}, extra=row)

    def create(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> Mapping[str, Any]:
        made = super().create(server, thing, dry_run=dry_run)
        if thing.spec.get(ENFORCED) and not dry_run:
            self._enforce(server, self.id_of(made), thing, dry_run=False)
        return made

    def change(self, server: ServerState, thing: DeclaredObject, now: DeclaredObject, *, dry_run: bool) -> None:
        """Enforcement ends before quotas that it would refuse, and begins after those that it needs."""
        changed = {each.field for each in self.differences(thing.spec, now.spec)}
        enforced = bool(thing.spec.get(ENFORCED))
        if ENFORCED in changed and not enforced:
            self._enforce(server, now.id, thing, dry_run=dry_run)
        if changed - {ENFORCED}:
            super().change(server, thing, now, dry_run=dry_run)
        if ENFORCED in changed and enforced:
            self._enforce(server, now.id, thing, dry_run=dry_run)

    def _enforce(self, server: ServerState, department: str, thing: DeclaredObject, *, dry_run: bool) -> None:
        body = {ENFORCED: bool(thing.spec[ENFORCED])}
        server.api.put(f"{self.path}/{department}/enforce-deserved", body, dry_run=dry_run)


class ProjectResource(OrgUnitResource):
    """What a tenant works in."""

    name = "Project"
    title = "project"
    path = "v1/org-unit/projects"
    required = ("name", "cluster", "department")
    fields = ("namespace", "description", "nodePools", "schedulingRules", "quotas")
    fixed = ("namespace",)

    def references(self, thing: DeclaredObject) -> Iterator[DeclaredKey]:
        yield from super().references(thing)
        yield DeclaredKey("Department", thing.metadata["department"], thing.key.cluster)

    def refuse_impossible(self, thing: DeclaredObject, now: DeclaredObject | None, server: ServerState) -> None:
        super().refuse_impossible(thing, now, server)
        if now and thing.metadata["department"] != now.metadata["department"]:
            where = now.metadata["department"]
            raise UsageError(f"{thing.source}: {thing.key} is in department {where} and cannot be moved.")

    def declared(self, row: Mapping[str, Any], metadata: dict[str, str], spec: Spec) -> DeclaredObject:
        own = {"namespace": row["status"]["namespace"]}
        pools = {"nodePools": row.get("defaultNodePools") or []}
        ordered = {name: {**own, **pools, **spec}[name] for name in self.fields}
        return DeclaredObject(self, {**metadata, "department": row["parent"]["name"]}, ordered, extra=row)

    def beside(self, server: ServerState, thing: DeclaredObject) -> dict[str, Any]:
        parent = server.id_of(DeclaredKey("Department", thing.metadata["department"], thing.key.cluster))
        namespace = thing.spec.get("namespace")
        return {"parentId": parent, **({"requestedNamespace": namespace} if namespace else {})}


def amounts(entry: Mapping[str, Any]) -> dict[str, object]:
    """What a quota amounts to: bytes of memory, null for no limit, the rank's name in one spelling."""
    found: dict[str, object] = {}
    weight = entry.get("overQuotaWeight")
    weight = 2 if weight is None else weight
    weights: dict[str, object] = {}
    for name in PARTS:
        part = entry.get(name) or {}
        size = UNITS[part.get("units", "MB")] if name == "memory" else 1
        for way in ("deserved", "limit"):
            amount = part.get(way)
            amount = None if amount == -1 and way == "limit" else amount
            found[f"{name} {way}"] = None if amount is None else amount * size
        if (own := part.get("overQuotaWeight")) is not None and own != weight:
            weights[f"{name} over-quota weight"] = own
    found["gpu deserved"] = found["gpu deserved"] or 0
    rank = re.sub("[-_ ]", "", str(entry.get("rank") or "MediumLow")).lower()
    return {**found, "over-quota weight": weight, **weights, "rank": rank}


def _quotas(wanted: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Difference]:
    for pool in dict.fromkeys((*wanted, *now)):
        before, after = amounts(now.get(pool, {})), amounts(wanted.get(pool, {}))
        for what in dict.fromkeys((*after, *before)):
            if after.get(what) != before.get(what):
                yield Difference(f"quota of {pool}: {what}", before.get(what), after.get(what))


def _body(server: ServerState, thing: DeclaredObject, now: Spec) -> dict[str, Any]:
    """`resources` replaces every quota, so those of now are sent where the document has none."""
    spec = thing.spec
    quotas: Mapping[str, Any] = spec["quotas"] if "quotas" in spec else now.get("quotas") or {}
    changed = {pool: each for pool, each in quotas.items() if amounts(each) != amounts({})}
    body: dict[str, Any] = {"resources": [_entry(server, pool, each, thing.key) for pool, each in changed.items()]}
    names = {"description": "description", "schedulingRules": "schedulingRules", "nodePools": "defaultNodePools"}
    return body | {names[name]: spec[name] for name in names if name in spec}


def _entry(server: ServerState, pool: str, quota: Mapping[str, Any], owner: DeclaredKey) -> dict[str, Any]:
    pool_id = server.id_of(DeclaredKey("NodePool", pool, owner.cluster))
    weight = {} if quota.get("overQuotaWeight") is None else {"overQuotaWeight": quota["overQuotaWeight"]}
    entry: dict[str, Any] = {"nodePool": {"id": pool_id, "name": pool}, "gpu": {"deserved": 0, **weight}}
    for name in PARTS:
        if quota.get(name):
            entry[name] = {**entry.get(name, {}), **quota[name]}
    return entry | ({"rank": quota["rank"]} if quota.get("rank") else {})


def _read_quotas(row: Mapping[str, Any]) -> dict[str, Any]:
    return {each["nodePool"]["name"]: _quota(each) for each in row["resources"]}


def _quota(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Without what says nothing. The GPU weight covers all resources; different ones are listed."""
    found: dict[str, Any] = {}
    weight = entry["gpu"]["overQuotaWeight"]
    for name in PARTS:
        source = entry.get(name) or {}
        part = {way: source[way] for way in ("deserved", "limit") if source.get(way) is not None}
        own = (
            {"overQuotaWeight": source["overQuotaWeight"]}
            if source.get("overQuotaWeight") not in (None, weight)
            else {}
        )
        if part or own:
            found[name] = part | ({"units": source["units"]} if name == "memory" and part else {}) | own
    return {**found, "overQuotaWeight": weight, "rank": entry["rank"]}


def _entry_errors(at: str, entry: Mapping[str, Any]) -> Iterator[str]:
    if unknown := [name for name in entry if name not in QUOTA]:
        yield f"{at}/{unknown[0]}: unknown field; known fields: {', '.join(QUOTA)}."
    for name in PARTS:
        yield from _part_errors(f"{at}/{name}", entry.get(name), units=name == "memory")


def _part_errors(at: str, part: Any, *, units: bool) -> Iterator[str]:
    if part is None:
        return
    known = {"deserved", "limit", "overQuotaWeight"} | ({"units"} if units else set())
    if not isinstance(part, dict) or part.keys() - known:
        yield f"{at} must be a mapping with {', '.join(sorted(known))}."
        return
    numbers = [part[name] for name in ("deserved", "limit", "overQuotaWeight") if part.get(name) is not None]
    if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in numbers):
        yield f"{at}: amounts must be numbers; null or -1 means no limit."
    if units and (part.keys() & {"deserved", "limit", "units"}) and part.get("units") not in UNITS:
        yield f"{at}/units must be one of {', '.join(UNITS)}."
