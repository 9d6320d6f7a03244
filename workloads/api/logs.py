"""The end of a pod's log, fit to be read. Beyond Run:ai."""

from collections.abc import Mapping
from typing import Any, Final

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.models import ObservedPod
from portal.core.bodies import REFUSALS
from portal.core.errors import Absent
from portal.core.filtering import number_in
from portal.core.http import actor_of
from portal.core.routes import Route, Rule
from workloads.models import Workload
from workloads.selectors import containers_of, logs, pods_of, workload_or_404
from workloads.selectors.history import MOST_ENTRIES

LINES: Final = 200
MOST_LINES: Final = 3000


class PodLogSchema(serializers.Serializer[Any]):
    """The last lines, oldest first. `pod` is null while the workload has no pod."""

    pod = serializers.CharField(allow_null=True)
    container = serializers.CharField(allow_blank=True)
    pods = serializers.ListField(
        child=serializers.CharField(), help_text=f"Its pods, newest first, {MOST_ENTRIES} at most."
    )
    containers = serializers.ListField(child=serializers.CharField())
    lines = serializers.ListField(child=serializers.CharField(allow_blank=True))
    cut = serializers.BooleanField(help_text="There are earlier lines.")
    trouble = serializers.CharField(allow_blank=True, help_text="Why there are none, in words of the cluster.")


class Logs(Route):
    """What one container of a workload said."""

    access = {"GET": Rule("view_project", "project")}

    @extend_schema(
        operation_id="get_workload_logs",
        summary="Read the end of a workload's log",
        description="Beyond Run:ai. Without escape sequences and control characters, 400,000 characters at most.",
        parameters=[
            OpenApiParameter("pod", str, description="A pod's name; the newest one when absent."),
            OpenApiParameter("container", str, description="Its first one when absent."),
            OpenApiParameter("lines", int, description=f"1 to {MOST_LINES}, {LINES} when absent."),
        ],
        responses={200: PodLogSchema, **REFUSALS},
    )
    def get(self, request: Request, workload_id: str) -> Response:
        """The lines, or the trouble; 404 for a workload, pod or container that is not there."""
        workload = workload_or_404(actor_of(request), workload_id)
        query = request.query_params
        lines = number_in(query, "lines", LINES, 1, MOST_LINES)
        pods = {pod.name: pod for pod in pods_of(workload)}
        pod = _chosen(pods, query.get("pod", ""))
        if pod is None:
            return Response({**_NOTHING, "pods": []})
        return Response(_said(workload, pod, query.get("container", ""), lines) | {"pods": list(pods)})


def _chosen(pods: dict[str, ObservedPod], wanted: str) -> ObservedPod | None:
    if not wanted:
        return next(iter(pods.values()), None)
    if wanted not in pods:
        raise Absent(f"There is no pod {wanted[:80]!r} of this workload.")
    return pods[wanted]


def _said(workload: Workload, pod: ObservedPod, wanted: str, lines: int) -> dict[str, Any]:
    containers = containers_of(workload, pod)
    if wanted and wanted not in containers:
        raise Absent(f"There is no container {wanted[:80]!r} in this pod.")
    container = wanted or next(iter(containers), "")
    text = logs(workload, pod.name, container=container if len(containers) > 1 else "", lines=lines)
    said = {"lines": list(text.lines), "cut": text.cut, "trouble": str(text.trouble)}
    return {"pod": pod.name, "container": container, "containers": containers, **said}


_NOTHING: Final[Mapping[str, Any]] = {
    "pod": None,
    "container": "",
    "containers": [],
    "lines": [],
    "cut": False,
    "trouble": "",
}
