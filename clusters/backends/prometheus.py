"""One question to a Prometheus: how busy is each pod's busiest GPU? Over the same lines as an API server is asked."""

import json
import math
import time
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import quote

from clusters.addresses import server_of
from clusters.backends.kubernetes_http import Answer, Lines, head_of, request_of
from clusters.backends.kubernetes_tls import tls_context
from clusters.connections import Connection, Target
from clusters.errors import ClusterBusy, ClusterRefused, ClusterUnreachable, NotAuthorized
from clusters.gpu_readings import GpuReading

CONNECT, READ, TOTAL, CAP = 5.0, 15.0, 30.0, 64 << 20
FOREIGN: Final = (HTTPException, OSError)
# An exporter that is scraped as a pod of its own has the user's pod under the "exported" names.
NAMESPACE: Final = ("exported_namespace", "namespace")
POD: Final = ("exported_pod", "pod")


def gpu_readings(connection: Connection, target: Target, metric: str) -> list[GpuReading]:
    """One reading per pod that the metric knows. Raises ClusterError."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    headers = {"Host": f"{host}:{target.port}", "Accept": "application/json", "Connection": "close"}
    if connection.token:
        headers["Authorization"] = f"Bearer {connection.token}"
    path = f"{server_of(connection.server).path}/api/v1/query?query={quote(metric, safe='')}"
    answer = _ask(connection, target, request_of("GET", path, head_of(headers), None))
    _refuse(answer)
    return _busiest(_series(answer.body))


def _ask(connection: Connection, target: Target, request: bytes) -> Answer:
    lines = Lines(tls_context(connection), target, name=target.host, most=1)
    try:
        return lines.ask(request, connect=CONNECT, read=READ, until=time.monotonic() + TOTAL, cap=CAP)
    except FOREIGN as error:
        raise ClusterUnreachable(f"It does not answer: {error}.") from error
    finally:
        lines.close()


def _refuse(answer: Answer) -> None:
    if answer.status in {401, 403}:
        raise NotAuthorized(f"It refuses the token: {answer.status}.")
    if answer.status == 429 or answer.status >= 500:
        raise ClusterBusy(f"It answers {answer.status}.")
    if answer.status != 200:
        raise ClusterRefused(f"It answers {answer.status}; a Prometheus answers /api/v1/query with 200.")


def _series(body: bytes) -> Iterator[tuple[dict[str, Any], float]]:
    """Labels and value of each series of an instant vector. ClusterUnreachable: this is no Prometheus."""
    try:
        found = json.loads(body)["data"]["result"]
        for each in found:
            yield dict(each["metric"]), float(each["value"][1])
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise ClusterUnreachable("The answer is not one of a Prometheus.") from error


def _busiest(series: Iterator[tuple[dict[str, Any], float]]) -> list[GpuReading]:
    found: dict[tuple[str, str], float] = {}
    for labels, value in series:
        key = _label(labels, NAMESPACE), _label(labels, POD)
        if all(key) and 0 <= value < math.inf:
            found[key] = max(value, found.get(key, 0.0))
    return [GpuReading(namespace, pod, min(100, math.ceil(value))) for (namespace, pod), value in found.items()]


def _label(labels: dict[str, Any], names: tuple[str, ...]) -> str:
    return next((str(labels[name]) for name in names if labels.get(name)), "")
