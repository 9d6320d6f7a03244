"""The body of an update: our manifest over the live object, less what our last write held and this one does not. Pure.

The API server records who wrote which field (`metadata.managedFields`, paths in the FieldsV1 form). What is recorded
under our name and is no longer wanted goes. Everything else stays: what others wrote, and what nobody wrote because the
server filled it in after the request, such as a Job's selector. A default that counts as ours comes back by itself.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from clusters.diff import WHOLE_MAPS
from clusters.ports import Manifest
from clusters.records import NOTHING, Fields, own_fields

_GONE: Final = object()


def merged(manifest: Manifest, observed: Manifest, *, manager: str) -> Manifest:
    """The body of the update. `observed` is the whole object as it was read last, with our entries of managedFields."""
    body: Manifest = _maps(observed, manifest, own_fields(observed, manager))
    for name in ("uid", "resourceVersion", "creationTimestamp"):
        body["metadata"].pop(name, None)
        if name in observed["metadata"]:
            body["metadata"][name] = observed["metadata"][name]
    body["metadata"].pop("managedFields", None)  # absent means: keep the record
    return body


def _maps(live: Mapping[str, Any], desired: Mapping[str, Any], owned: Fields) -> dict[str, Any]:
    result = {}
    for key, value in live.items():
        mine = owned.get(f"f:{key}")
        kept = _both(key, value, desired[key], mine) if key in desired else _pruned(value, mine)
        if kept is not _GONE:
            result[key] = kept
    return result | {key: value for key, value in desired.items() if key not in live}


def _both(key: str, live: Any, desired: Any, owned: Fields | None) -> Any:
    """A leaf of ours is written whole: a plain value, or a map or list that the API takes as one value."""
    is_leaf = owned is not None and not owned
    if key not in WHOLE_MAPS and not is_leaf:
        if isinstance(live, Mapping) and isinstance(desired, Mapping):
            return _maps(live, desired, owned or NOTHING)
        if isinstance(live, list) and isinstance(desired, list):
            return _lists(live, desired, owned or NOTHING)
    return desired


def _lists(live: list[Any], desired: list[Any], owned: Fields) -> list[Any]:
    """Items that have keys are merged by them, and foreign ones stay behind ours; any other list is wholly ours."""
    if any(name.startswith("v:") for name in owned):
        return desired + [each for each in _foreign(live, owned) if each not in desired]
    records = _records(owned)
    if not records:
        return desired
    names = records[0][0].keys()
    pairs = [(each, _same(each, live, names)) for each in desired]
    ours = [each if same is None else _maps(same, each, _record(same, records)) for each, same in pairs]
    taken = [same for _, same in pairs if same is not None]
    return ours + [each for each in _foreign(live, owned) if not any(each is same for same in taken)]


def _pruned(value: Any, owned: Fields | None) -> Any:
    """What is left of a live value that is not wanted any more."""
    if owned is None:
        return value
    left: Any = None
    if isinstance(value, Mapping) and owned:
        kept = ((key, _pruned(each, owned.get(f"f:{key}"))) for key, each in value.items())
        left = {key: each for key, each in kept if each is not _GONE}
    elif isinstance(value, list) and owned:
        left = list(_foreign(value, owned))
    return left or _GONE


def _foreign(live: list[Any], owned: Fields) -> Iterator[Any]:
    """Items that somebody else put into the list."""
    records, values = _records(owned), [json.loads(name[2:]) for name in owned if name.startswith("v:")]
    for item in live:
        if item not in values and "." not in _record(item, records):
            yield item


def _records(owned: Fields) -> list[tuple[dict[str, Any], Fields]]:
    """Keys and fields of every item of ours."""
    return [(json.loads(name[2:]), fields) for name, fields in owned.items() if name.startswith("k:")]


def _record(item: Any, records: list[tuple[dict[str, Any], Fields]]) -> Fields:
    if isinstance(item, Mapping):
        for keys, fields in records:
            if all(item.get(name) == value for name, value in keys.items()):
                return fields
    return NOTHING


def _same(desired: Any, live: list[Any], names: Any) -> Any:
    """The live item of the same keys. A key that ours leaves out (a port's protocol) was filled in by the server."""
    given = {name: desired[name] for name in names if name in desired} if isinstance(desired, Mapping) else {}
    if not given:
        return None
    found = [each for each in live if isinstance(each, Mapping) and given.items() <= each.items()]
    return found[0] if len(found) == 1 else None
