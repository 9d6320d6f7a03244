"""One question to a Prometheus: how busy is each pod's busiest GPU? Over the same transport as an API server."""

import json
import math
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final
from urllib.parse import quote

from clusters.backends.kubernetes.transport import Answer, HttpTransport, TransportLimits
from clusters.ports.connection import CheckedAddress, Connection
from clusters.ports.gateway import ClusterBusy, ClusterRefused, ClusterUnreachable, GpuUtilization, NotAuthorized

LIMITS: Final = TransportLimits(total=30.0)
# An exporter that is scraped as a pod of its own has the user's pod under the "exported" names.
NAMESPACE: Final = ("exported_namespace", "namespace")
POD: Final = ("exported_pod", "pod")


def gpu_readings(connection: Connection, target: CheckedAddress, metric: str) -> list[GpuUtilization]:
    """One reading per pod that the metric knows. Raises ClusterError."""
    with closing(HttpTransport(connection, target, connections=1, limits=LIMITS)) as transport:
        answer = transport.ask("GET", f"/api/v1/query?query={quote(metric, safe='')}")
    _refuse(answer)
    return _busiest(_series(answer.body))


def _refuse(answer: Answer) -> None:
    if answer.status in {401, 403}:
        raise NotAuthorized(f"Prometheus rejects the token (status {answer.status}).")
    if answer.status == 429 or answer.status >= 500:
        raise ClusterBusy(f"Prometheus returned status {answer.status}.")
    if answer.status != 200:
        raise ClusterRefused(f"Not a Prometheus: /api/v1/query returns status {answer.status}.")


def _series(body: bytes) -> Iterator[tuple[dict[str, Any], float]]:
    """Labels and value of each series of an instant vector. ClusterUnreachable: this is no Prometheus."""
    try:
        found = json.loads(body)["data"]["result"]
        for each in found:
            yield dict(each["metric"]), float(each["value"][1])
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise ClusterUnreachable("The response is not from a Prometheus.") from error


def _busiest(series: Iterator[tuple[dict[str, Any], float]]) -> list[GpuUtilization]:
    found: dict[tuple[str, str], float] = {}
    for labels, value in series:
        key = _label(labels, NAMESPACE), _label(labels, POD)
        if all(key) and 0 <= value < math.inf:
            found[key] = max(value, found.get(key, 0.0))
    return [GpuUtilization(namespace, pod, min(100, math.ceil(value))) for (namespace, pod), value in found.items()]


def _label(labels: dict[str, Any], names: tuple[str, ...]) -> str:
    return next((str(labels[name]) for name in names if labels.get(name)), "")
