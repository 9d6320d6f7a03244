"""What is kept for later submissions: half-filled native bodies, and the assets they are put together from.

A field that is there is checked as it would be in a submission; what is missing may still come with one.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from portal.core.redaction import SECRET_TEXT
from portal.core.strict.documents import measure
from workloads.intake.native.fields import FIELDS, MASTER, Fields, object_rule
from workloads.intake.native.parts import PORT, WORD, items
from workloads.intake.native.reader import LIMITS, Native, read_native
from workloads.intake.problems import IntakeRefused, Report
from workloads.intake.rules import Place, Rule, boolean, table, text
from workloads.intake.scope import Scope

Values = Mapping[str, Any]
LARGEST: Final = 64 * 1024
"""Bytes of JSON: they are read at every submission that names the template."""
SECURITY: Final = (
    "uidGidSource",
    "runAsUid",
    "runAsGid",
    "runAsNonRoot",
    "supplementalGroups",
    "seccompProfileType",
    "readOnlyRootFilesystem",
    "allowPrivilegeEscalation",
    "capabilities",
    "hostIpc",
    "hostNetwork",
)
"""Of an environment these stand beside its other fields; of a submission below `security`."""
_SETTINGS: Final = (
    "image",
    "command",
    "args",
    "workingDir",
    "environmentVariables",
    "imagePullPolicy",
    "probes",
    "createHomeDir",
    "stdin",
    "tty",
    "security",
)
ENVIRONMENT: Final[Fields] = {name: FIELDS["workspaces"][name] for name in _SETTINGS}
COMPUTE: Final[Fields] = {"compute": FIELDS["workspaces"]["compute"]}
_SECRET_NAME: Final = re.compile(r"(^|_)(password|passwd|secret|token|credentials?|(api|access|private)_?key)$", re.I)
_NO_SECRETS: Final = "Everybody in its scope reads this: name a Secret granted to the project instead."


def _as_it_is(value: Any, _place: Place) -> Any:
    """Rung opens no address to the outside: what was asked for one has no effect."""
    return value


_tool: Rule = table(
    {
        "toolType": WORD,
        "connectionType": WORD,
        "containerPort": PORT,
        "nodePortInfo": _as_it_is,
        "externalUrlInfo": _as_it_is,
        "servingPortInfo": _as_it_is,
    },
    required=["containerPort"],
)
_connections: Rule = items(
    table(
        {
            "name": text(256, shortest=1),
            "isExternal": boolean,
            "internalToolInfo": _tool,
            "externalToolInfo": table({"toolType": WORD, "externalUrl": text(2048, shortest=1)}),
        },
        required=["name"],
    )
)
_OWN: Final[Mapping[str, Rule]] = {"connections": _connections, "overrideUidGidInWorkspace": boolean}
"""Fields of an environment that no submission has."""


def check_template(native: Native, *, scope: Scope) -> None:
    """IntakeRefused at every field that a submission would be refused for, whatever else it says."""
    parts = {"spec": (native.spec, FIELDS[native.kind]), "masterSpec": (native.master, MASTER)}
    report = _measured({name: values for name, (values, _fields) in parts.items()})
    for name, (values, fields) in parts.items():
        if values is not None:
            place = Place(f"/{name}", report, scope)
            object_rule(fields)(values, place)
            _refuse_secrets(values, place)
    report.settle()


def lacking(native: Native, *, scope: Scope) -> str:
    """What a submission of it as it stands would be refused for, first of all; empty for nothing."""
    try:
        read_native(native, scope=scope)
    except IntakeRefused as refusal:
        return refusal.problems[0].message
    return ""


def check_asset(kind: str, spec: Values, *, scope: Scope) -> None:
    """IntakeRefused at every field, by pointers into the asset's own `/spec`."""
    report = _measured(spec)
    place = Place("/spec", report, scope)
    plain = {name: value for name, value in spec.items() if name not in _OWN} if kind == "environment" else spec
    try:
        table(_OWN)({name: spec[name] for name in _OWN if name in spec and plain is not spec}, place)
        object_rule(ENVIRONMENT if kind == "environment" else COMPUTE)(_below(kind, plain), place)
        _refuse_secrets(plain, place)
        report.settle()
    except IntakeRefused as refusal:
        within = f"/spec/{'security' if kind == 'environment' else 'compute'}"
        problems = [replace(each, pointer=each.pointer.replace(within, "/spec", 1)) for each in refusal.problems]
        raise IntakeRefused(refusal.status, problems) from None


def asset_fields(kind: str, spec: Values) -> dict[str, Any]:
    """A checked asset as the fields of a submission's `spec`."""
    fields = _below(kind, {name: value for name, value in spec.items() if name not in _OWN and value is not None})
    if kind == "environment":
        fields |= {name: found for name, found in _addresses(spec.get("connections") or []) if found}
    return fields


def _below(kind: str, spec: Values) -> dict[str, Any]:
    if kind == "compute":
        return {"compute": dict(spec)} if spec else {}
    security = {name: spec[name] for name in SECURITY if name in spec}
    plain = {name: value for name, value in spec.items() if name not in security}
    return {**plain, **({"security": security} if security else {})}


def _addresses(connections: list[Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Ports of its tools, and addresses of tools elsewhere."""
    inside = [each for each in connections if each and each.get("internalToolInfo")]
    outside = [each for each in connections if each and each.get("externalToolInfo")]
    yield (
        "ports",
        [{"container": each["internalToolInfo"]["containerPort"], "name": each["name"]} for each in inside],
    )
    yield (
        "relatedUrls",
        [{"url": each["externalToolInfo"].get("externalUrl", ""), "name": each["name"]} for each in outside],
    )


def _measured(values: Any) -> Report:
    """A new report. IntakeRefused for what is too large to keep."""
    measure(values, LIMITS)
    report, size = Report(), len(json.dumps(values).encode())
    if size > LARGEST:
        Place("/spec", report, Scope(namespace="")).refuse("too_large", f"{size} bytes; up to {LARGEST} are kept.")
        report.settle()
    return report


def _refuse_secrets(values: Values, place: Place) -> None:
    """By the name of a variable, or the look of its value."""
    given = values.get("environmentVariables")
    for index, each in enumerate(given if isinstance(given, list) else ()):
        name, value = (each.get("name"), each.get("value")) if isinstance(each, Mapping) else (None, None)
        told = isinstance(name, str) and _SECRET_NAME.search(name)
        if isinstance(value, str) and value and (told or SECRET_TEXT.search(value)):
            place.at("environmentVariables").at(index).at("value").refuse("secret_value", _NO_SECRETS)
