"""A trace with gangs played on a real kube-scheduler with its gates of gang scheduling."""

from collections.abc import Sequence

from clusters.ports.gateway import Manifest
from clusters.ports.objects import GANG_POD_GROUP, GANG_WORKLOAD
from tests.real.scenarios.objects import class_name
from tests.real.scenarios.traces import SPACE, KubePlayer, Submission


class GangPlayer(KubePlayer):
    """Pods and gangs. A gang goes whole."""

    def group(self, submission: Submission) -> Sequence[Manifest]:
        if submission.workers == 1:
            return ()
        template: Manifest = {
            "schedulingPolicy": {"gang": {"minCount": submission.workers}},
            "priorityClassName": class_name(submission.priority, never=False),
            "disruptionMode": "PodGroup",
        }
        metadata = {"name": submission.name, "namespace": SPACE}
        reference = {"workload": {"workloadName": submission.name, "podGroupTemplateName": "pods"}}
        specs = {
            GANG_WORKLOAD: {"podGroupTemplates": [{"name": "pods", **template}]},
            GANG_POD_GROUP: {"podGroupTemplateRef": reference, **template},
        }
        return [
            {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
            for kind, spec in specs.items()
        ]

    def pod(self, submission: Submission, name: str) -> Manifest:
        found = super().pod(submission, name)
        found["spec"] |= {"schedulingGroup": {"podGroupName": submission.name}} if submission.workers > 1 else {}
        return found
