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

KAI_QUEUE: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "scheduling.run.ai/v2"},
        "kind": {"const": "Queue"},
        "metadata": {
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
        },
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
