"""Workspaces and pipelines: notebooks, devfiles, Tekton runs and Argo workflows."""

from typing import Any, Final

from workloads.intake.rules.environment import env, volumes
from workloads.intake.rules.kinds.core import not_suspended
from workloads.intake.rules.pods import FIELDS as CONTAINER
from workloads.intake.rules.pods import PLACED, pod_metadata, pod_priority_class, pod_spec, template, words
from workloads.intake.rules.scalars import cpu, dns_label, identifier, image, memory
from workloads.intake.rules.values import (
    ABSENT,
    Location,
    Rule,
    boolean,
    choice,
    forbidden,
    integer,
    listing,
    table,
    text,
)

notebook: Rule = table({"template": template(pod_spec(restart=("Always",)))}, required=["template"])

_exposed: Rule = table(
    {
        "name": dns_label,
        "targetPort": integer(1, 65_535),
        "exposure": choice("none", "internal"),
        "protocol": choice("http", "https", "ws", "wss", "tcp"),
    },
    required=["name", "targetPort"],
)
_tool: Rule = table(
    {
        "image": image,
        "command": words,
        "args": words,
        "env": env,
        "endpoints": listing(_exposed, 20, unique="name"),
        "mountSources": boolean,
        "cpuRequest": cpu,
        "cpuLimit": cpu,
        "memoryRequest": memory,
        "memoryLimit": memory,
    },
    required=["image"],
)
_component: Rule = table({"name": dns_label, "container": _tool}, required=["name", "container"])
dev_workspace: Rule = table(
    {
        "started": boolean,
        "routingClass": choice("basic"),
        "template": table({"components": listing(_component, 20, least=1, unique="name")}, required=["components"]),
    },
    required=["template"],
)

_parameter: Rule = table({"name": identifier, "value": text(65_536), "description": text(1024)}, required=["name"])
_parameters: Rule = listing(_parameter, 100, unique="name")
_step: Rule = table(
    {
        **{key: CONTAINER[key] for key in ("name", "image", "command", "args", "workingDir", "env", "volumeMounts")},
        "computeResources": forbidden("Use resources instead."),
        "resources": CONTAINER["resources"],
        "securityContext": CONTAINER["securityContext"],
        "script": text(65_536),
        "timeout": text(20, r"([0-9]+(s|m|h))+", "a duration such as 1h30m"),
    },
    required=["image"],
)
task_spec: Rule = table(
    {
        "steps": listing(_step, 50, least=1),
        "params": _parameters,
        "description": text(1024),
        "volumes": volumes,
        "sidecars": forbidden("Task sidecars are not supported. Add a step instead."),
    },
    required=["steps"],
)
_DURATION: Final = text(20, r"([0-9]+(s|m|h))+", "a duration such as 1h30m")
_pod_of_run: Rule = table(
    {
        "nodeSelector": PLACED["nodeSelector"],
        "tolerations": PLACED["tolerations"],
        "priorityClassName": pod_priority_class,
        "schedulerName": forbidden("Rung sets the scheduler."),
    }
)
_own_account: Rule = forbidden("Runs use the project's default service account.", "service_account")
task_run: Rule = table(
    {
        "taskSpec": task_spec,
        "params": _parameters,
        "timeout": _DURATION,
        "retries": integer(0, 100),
        "podTemplate": _pod_of_run,
        "taskRef": forbidden("References are not supported. Write the task inline."),
        "serviceAccountName": _own_account,
    },
    required=["taskSpec"],
)
_pipeline_task: Rule = table(
    {
        "name": dns_label,
        "taskSpec": task_spec,
        "params": _parameters,
        "runAfter": listing(dns_label, 50),
        "retries": integer(0, 100),
        "timeout": _DURATION,
        "taskRef": forbidden("References are not supported. Write the task inline."),
    },
    required=["name", "taskSpec"],
)
_pipeline: Rule = table(
    {
        "tasks": listing(_pipeline_task, 100, least=1, unique="name"),
        "finally": listing(_pipeline_task, 100, unique="name"),
        "params": _parameters,
        "description": text(1024),
    },
    required=["tasks"],
)
pipeline_run: Rule = table(
    {
        "pipelineSpec": _pipeline,
        "params": _parameters,
        "timeouts": table({"pipeline": _DURATION, "tasks": _DURATION, "finally": _DURATION}),
        "pipelineRef": forbidden("References are not supported. Write the pipeline inline."),
        "taskRunTemplate": forbidden("Rung sets the placement. Choose a node pool instead."),
    },
    required=["pipelineSpec"],
)

_INNER: Final[dict[str, Rule]] = {key: rule for key, rule in CONTAINER.items() if key not in {"lifecycle", "envFrom"}}
_main: Rule = table(_INNER, required=["image"])
_script: Rule = table({**_INNER, "source": text(65_536)}, required=["image", "source"])
_arguments: Rule = table({"parameters": _parameters})
_call: Rule = table(
    {
        "name": dns_label,
        "template": dns_label,
        "arguments": _arguments,
        "dependencies": listing(dns_label, 50),
        "templateRef": forbidden("References are not supported. Write the template inline."),
    },
    required=["name", "template"],
)
_argo_template: Rule = table(
    {
        "name": dns_label,
        "container": _main,
        "script": _script,
        "steps": listing(listing(_call, 50, least=1), 100, least=1),
        "dag": table({"tasks": listing(_call, 100, least=1, unique="name")}, required=["tasks"]),
        "inputs": _arguments,
        "metadata": pod_metadata,
        "nodeSelector": forbidden("Write it next to the templates. Here it would override the node pool's."),
        "tolerations": PLACED["tolerations"],
        "priorityClassName": pod_priority_class,
        "activeDeadlineSeconds": integer(1),
        "retryStrategy": table({"limit": integer(0, 100)}),
        "podSpecPatch": forbidden("Pod patches are not allowed."),
        "serviceAccountName": _own_account,
    },
    required=["name"],
    one_of=["container", "script", "steps", "dag"],
)
_ARGO: Final[dict[str, Rule]] = {
    "entrypoint": dns_label,
    "templates": listing(_argo_template, 100, least=1, unique="name"),
    "arguments": _arguments,
    "activeDeadlineSeconds": integer(1),
    "ttlStrategy": table({"secondsAfterCompletion": integer()}),
    "parallelism": integer(1, 1000),
    "nodeSelector": PLACED["nodeSelector"],
    "volumes": volumes,
    "suspend": not_suspended,
    "podSpecPatch": forbidden("Pod patches are not allowed."),
    "serviceAccountName": _own_account,
    "workflowTemplateRef": forbidden("References are not supported. Write the templates inline."),
}


def _known_entry(plain: Rule) -> Rule:
    """The entry point is one of the templates."""

    def check(value: Any, place: Location) -> Any:
        rebuilt = plain(value, place)
        if rebuilt is not ABSENT and "entrypoint" in rebuilt:
            names = tuple(each["name"] for each in rebuilt.get("templates", []) if "name" in each)
            if rebuilt["entrypoint"] not in names:
                place.at("entrypoint").refuse("template_missing", "Unknown template.", names)
        return rebuilt

    return check


workflow: Rule = _known_entry(table(_ARGO, required=["entrypoint", "templates"]))
scheduled_workflow: Rule = table(
    {
        "enabled": boolean,
        "maxConcurrency": integer(1, 10),
        "maxHistory": integer(1, 100),
        "trigger": table(
            {
                "cronSchedule": table(
                    {"cron": text(100, r"[-0-9A-Za-z*/,?@ ]+", "a cron schedule such as 0 0 3 * * *", shortest=1)},
                    required=["cron"],
                ),
                "periodicSchedule": table({"intervalSecond": integer(60)}, required=["intervalSecond"]),
            },
            one_of=["cronSchedule", "periodicSchedule"],
        ),
        "workflow": table({"parameters": _parameters, "spec": workflow}, required=["spec"]),
    },
    required=["trigger", "workflow"],
)

SPECS: Final[dict[str, Rule]] = {
    "Notebook": notebook,
    "DevWorkspace": dev_workspace,
    "TaskRun": task_run,
    "PipelineRun": pipeline_run,
    "Workflow": workflow,
    "ScheduledWorkflow": scheduled_workflow,
}
