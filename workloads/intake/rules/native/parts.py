"""Rules of the nested objects of a native spec: each checks one and returns it as Kubernetes writes it."""

import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final

from portal.kit.security.strict_json import visible
from workloads.intake.rules.environment import CONFIG_KEY, config_map, field_path, secret, variable, variable_name
from workloads.intake.rules.manifests import preemptibility
from workloads.intake.rules.pods import priority_class, toleration
from workloads.intake.rules.scalars import (
    ANNOTATIONS,
    PLACING,
    PREEMPTIBILITY_LABEL,
    PRIORITY_LABEL,
    label_key,
    label_value,
)
from workloads.intake.rules.values import (
    ABSENT,
    Fields,
    Location,
    Rule,
    choice,
    forbidden,
    integer,
    table,
    text,
    wrong_type,
)

MOST_ITEMS: Final = 100
LINE: Final = text(65_536)
WORD: Final = text(256)
PORT: Final = integer(1, 65_535)
Rebuild = Callable[[dict[str, Any], Location], Any]


def nothing(why: str, code: str = "not_offered") -> Rule:
    """A field that may be empty and nothing else."""

    def check(value: Any, place: Location) -> Any:
        return ABSENT if value in (False, "", [], {}) else place.refuse(code, why)

    return check


def rebuilt(fields: Fields, make: Rebuild, *, required: tuple[str, ...] = ()) -> Rule:
    """An object of known fields, handed on as `make` writes it."""
    plain: Rule = table(fields, required=required)

    def check(value: Any, place: Location) -> Any:
        found = plain(value, place)
        return found if found is ABSENT else make(found, place)

    return check


def items(rule: Rule) -> Rule:
    """A list as Run:ai writes it: an item with `exclude: true` takes nothing along, a null neither."""

    def check(value: Any, place: Location) -> Any:
        if not isinstance(value, list):
            return wrong_type(value, place, "a list")
        if len(value) > MOST_ITEMS:
            return place.refuse("bad_length", f"{len(value)} items; the maximum is {MOST_ITEMS}.")
        built = [rule(_included(item), place.at(index)) for index, item in enumerate(value) if not _left_out(item)]
        return [item for item in built if item is not ABSENT]

    return check


def _left_out(item: Any) -> bool:
    return item is None or (isinstance(item, Mapping) and item.get("exclude") is True)


def _included(item: Any) -> Any:
    """Without `exclude: false`, which the client always sends."""
    if isinstance(item, Mapping) and item.get("exclude", 0) in (False, None):
        return {key: value for key, value in item.items() if key != "exclude"}
    return item


def words(value: Any, place: Location) -> Any:
    """One string as a shell would split it; nothing of it is evaluated."""
    line = LINE(value, place)
    if line is ABSENT:
        return line
    try:
        return shlex.split(line)
    except ValueError as error:
        return place.refuse("bad_command", f"Cannot split this into words: {error}.")


def number(value: Any, place: Location) -> Any:
    """A JSON number, not negative."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return wrong_type(value, place, "a number")
    return value if value >= 0 else place.refuse("out_of_range", f"{visible(value)} must not be negative.")


def _label(item: dict[str, Any], place: Location) -> Any:
    """A pair, or a wish for priority or preemptibility that a label may carry."""
    name, value = item.get("name"), item.get("value", "")
    at_value = place.at("value")
    match name:
        case None:
            return ABSENT
        case str() if name == PRIORITY_LABEL:
            checked = priority_class(value, at_value)
        case str() if name == PREEMPTIBILITY_LABEL:
            checked = preemptibility(value, at_value)
        case _ if label_key(name, place.at("name")) is ABSENT:
            return ABSENT
        case _:
            checked = label_value(value, at_value)
    return ABSENT if checked is ABSENT else (name, checked)


_NOTES: Final[Mapping[str, Rule]] = {**ANNOTATIONS, **PLACING}


def _annotation(item: dict[str, Any], place: Location) -> Any:
    name, value = item.get("name"), item.get("value", "")
    if name is None:
        return ABSENT
    if name not in _NOTES:
        message = f"The annotation {visible(name)} is not allowed."
        return place.at("name").refuse("annotation_not_allowed", message, sorted(_NOTES))
    checked = _NOTES[name](value, place.at("value"))
    return ABSENT if checked is ABSENT else (name, checked)


_PAIR: Final[Fields] = {"name": text(317, shortest=1), "value": LINE}
labels: Rule = items(rebuilt(_PAIR, _label, required=("name",)))
annotations: Rule = items(rebuilt(_PAIR, _annotation, required=("name",)))

_FROM: Final[Mapping[str, str]] = {"secret": "secretKeyRef", "configMap": "configMapKeyRef"}


def _variable(item: dict[str, Any], place: Location) -> Any:
    """As a container has it; exactly one place its value comes from."""
    if "name" not in item:
        return ABSENT
    found: dict[str, Any] = {"name": item["name"]}
    given = [name for name in ("value", *_FROM, "podFieldRef") if name in item]
    if len(given) > 1:
        return place.refuse("exactly_one", f"A variable must have one source, not {' and '.join(given)}.", given)
    for name, reference in _FROM.items():
        if name in item:
            found["valueFrom"] = {reference: item[name]}
    if "podFieldRef" in item:
        found["valueFrom"] = {"fieldRef": {"fieldPath": item["podFieldRef"].get("path")}}
    if "value" in item:
        found["value"] = item["value"]
        return variable(found, place)
    return found


variables: Rule = items(
    rebuilt(
        {
            "name": variable_name,
            "value": text(32_768),
            "secret": table({"name": secret, "key": CONFIG_KEY}, required=["name", "key"]),
            "configMap": table({"name": config_map, "key": CONFIG_KEY}, required=["name", "key"]),
            "podFieldRef": table({"path": field_path}, required=["path"]),
            "userCredential": nothing("Rung does not store credentials. Use a Secret available to the project."),
            "description": LINE,
        },
        _variable,
        required=("name",),
    )
)


def _pull_secret(item: dict[str, Any], _place: Location) -> Any:
    return {"name": item["name"]} if "name" in item else ABSENT


pull_secrets: Rule = items(
    rebuilt(
        {
            "name": secret,
            "userCredential": nothing("Rung does not store credentials. Use a Secret available to the project."),
        },
        _pull_secret,
        required=("name",),
    )
)


def _tolerated(item: dict[str, Any], place: Location) -> Any:
    """Kubernetes' own form: `Any` effect is an absent one, `seconds` has a longer name."""
    given: dict[str, Any] = {name: item[name] for name in ("key", "operator", "value") if name in item}
    if item.get("effect", "Any") != "Any":
        given["effect"] = item["effect"]
    if "seconds" in item:
        given["tolerationSeconds"] = item["seconds"]
    return toleration(given, place)


tolerations: Rule = items(
    rebuilt(
        {
            "name": WORD,
            "key": text(316),
            "operator": choice("Equal", "Exists"),
            "value": WORD,
            "effect": choice("NoSchedule", "PreferNoSchedule", "NoExecute", "Any"),
            "seconds": integer(1),
        },
        _tolerated,
    )
)

_own_pod: Rule = forbidden("Probes always use the pod's address. Remove host.", "probe_host")
_handler: Rule = table(
    {
        "httpGet": table(
            {"path": text(1024), "port": PORT, "scheme": choice("HTTP", "HTTPS"), "host": _own_pod}, required=["port"]
        )
    },
    required=["httpGet"],
)


def _probe(item: dict[str, Any], _place: Location) -> Any:
    handler = item.pop("handler", {})
    return {**handler, **item}


probes: Rule = table(
    {
        "readiness": rebuilt(
            {
                "initialDelaySeconds": integer(),
                "periodSeconds": integer(1),
                "timeoutSeconds": integer(1),
                "successThreshold": integer(1),
                "failureThreshold": integer(1),
                "handler": _handler,
            },
            _probe,
            required=("handler",),
        )
    }
)

_url: Rule = text(2048)
_people: Rule = items(text(320))
exposed_urls: Rule = items(
    table(
        {
            "container": PORT,
            "url": _url,
            "authorizationType": WORD,
            "authorizedUsers": _people,
            "authorizedGroups": _people,
            "toolType": WORD,
            "toolName": WORD,
            "name": WORD,
        }
    )
)
ports: Rule = items(
    table(
        {
            "container": PORT,
            "serviceType": choice("LoadBalancer", "NodePort", "ClusterIP"),
            "external": integer(1, 65_535),
            "toolType": WORD,
            "toolName": WORD,
            "name": WORD,
        }
    )
)
related_urls: Rule = items(table({"url": _url, "type": WORD, "name": WORD}))
