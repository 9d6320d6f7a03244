"""Small OpenAPI schemas of our own for kinds that Kubernetes itself does not know, strict about unknown fields."""

from typing import Any, Final

_SHARE: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["quota", "limit", "overQuotaWeight"],
    "properties": {
        "quota": {"type": "number", "minimum": -1},
        "limit": {"type": "number", "minimum": -1},
        "overQuotaWeight": {"type": "number", "minimum": 0},
    },
}

_METADATA: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "labels", "annotations"],
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$"},
        "labels": {
            "type": "object",
            "additionalProperties": {"pattern": "^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$"},
        },
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}

KAI_QUEUE: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "scheduling.run.ai/v2"},
        "kind": {"const": "Queue"},
        "metadata": _METADATA,
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["resources"],
            "properties": {
                "displayName": {"type": "string"},
                "parentQueue": {"type": "string", "minLength": 1},
                "priority": {"type": "integer"},
                "preemptMinRuntime": {"type": "string"},
                "reclaimMinRuntime": {"type": "string"},
                "resources": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["gpu", "cpu", "memory"],
                    "properties": {"gpu": _SHARE, "cpu": _SHARE, "memory": _SHARE},
                },
            },
        },
    },
}

_AMOUNTS: Final[dict[str, Any]] = {
    "type": "object",
    "propertyNames": {"enum": ["nvidia.com/gpu", "cpu", "memory"]},
    "additionalProperties": {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?[MGPE]?$"},
}

VOLCANO_QUEUE: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "scheduling.volcano.sh/v1beta1"},
        "kind": {"const": "Queue"},
        "metadata": _METADATA,
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["weight", "priority", "reclaimable", "deserved", "capability"],
            "properties": {
                "weight": {"type": "integer", "minimum": 1, "maximum": 65535},
                "priority": {"type": "integer", "minimum": 0},
                "parent": {"type": "string", "minLength": 1},
                "reclaimable": {"type": "boolean"},
                "deserved": {**_AMOUNTS, "required": ["nvidia.com/gpu"]},
                "capability": _AMOUNTS,
            },
        },
    },
}

QUEUES: Final = {each["properties"]["apiVersion"]["const"]: each for each in (KAI_QUEUE, VOLCANO_QUEUE)}
"""Every scheduler's kind Queue, by version."""
