"""What no pod and no container may say, as tables: (the change, the pointer below the changed object) by T number."""

from typing import Any

Table = dict[str, tuple[dict[str, Any], str]]

REFUSED_PODS: Table = {
    "t10 hostPath": ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "/volumes/0/hostPath"),
    "t12 hostNetwork": ({"hostNetwork": True}, "/hostNetwork"),
    "t12 hostPID": ({"hostPID": True}, "/hostPID"),
    "t12 hostIPC": ({"hostIPC": True}, "/hostIPC"),
    "t13 serviceAccountName": ({"serviceAccountName": "cluster-admin"}, "/serviceAccountName"),
    "t13 serviceAccount": ({"serviceAccount": "builder"}, "/serviceAccount"),
    "t13 token": ({"automountServiceAccountToken": True}, "/automountServiceAccountToken"),
    "t14 projected": (
        {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
        "/volumes/0/projected",
    ),
    "t14 secret": ({"volumes": [{"name": "v", "secret": {"secretName": "theirs"}}]}, "/volumes/0/secret/secretName"),
    "t14 configMap": ({"volumes": [{"name": "v", "configMap": {"name": "theirs"}}]}, "/volumes/0/configMap/name"),
    "t14 csi": ({"volumes": [{"name": "v", "csi": {"driver": "x"}}]}, "/volumes/0/csi"),
    "t14 nfs": ({"volumes": [{"name": "v", "nfs": {"server": "x", "path": "/"}}]}, "/volumes/0/nfs"),
    "t14 flexVolume": ({"volumes": [{"name": "v", "flexVolume": {"driver": "x"}}]}, "/volumes/0/flexVolume"),
    "t15 ephemeral": ({"ephemeralContainers": [{"name": "debug"}]}, "/ephemeralContainers"),
    "t16 root": ({"securityContext": {"runAsUser": 0}}, "/securityContext/runAsUser"),
    "t16 seccomp": (
        {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
        "/securityContext/seccompProfile/type",
    ),
    "t16 sysctls": (
        {"securityContext": {"sysctls": [{"name": "kernel.x", "value": "1"}]}},
        "/securityContext/sysctls/0/name",
    ),
    "t16 selinux": ({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}, "/securityContext/seLinuxOptions"),
    "t17 nodeName": ({"nodeName": "node-1"}, "/nodeName"),
    "t17 toleration": (
        {"tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]},
        "/tolerations/0/key",
    ),
    "t17 any taint": ({"tolerations": [{"operator": "Exists"}]}, "/tolerations/0/key"),
    "t17 schedulerName": ({"schedulerName": "default-scheduler"}, "/schedulerName"),
    "t17 runtimeClassName": ({"runtimeClassName": "nvidia"}, "/runtimeClassName"),
    "t17 hostAliases": ({"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["x"]}]}, "/hostAliases"),
    "t17 shareProcessNamespace": ({"shareProcessNamespace": True}, "/shareProcessNamespace"),
    "t24 tomorrow": ({"escapeOfTomorrow": {"now": True}}, "/escapeOfTomorrow"),
    "t36 priority": ({"priority": 1_000_000}, "/priority"),
    "t36 preemptionPolicy": ({"preemptionPolicy": "Never"}, "/preemptionPolicy"),
    "t35 node class": ({"priorityClassName": "system-node-critical"}, "/priorityClassName"),
    "t35 cluster class": ({"priorityClassName": "system-cluster-critical"}, "/priorityClassName"),
}
REFUSED_CONTAINERS: Table = {
    "t11 privileged": ({"securityContext": {"privileged": True}}, "/securityContext/privileged"),
    "t11 escalation": (
        {"securityContext": {"allowPrivilegeEscalation": True}},
        "/securityContext/allowPrivilegeEscalation",
    ),
    "t11 capabilities": (
        {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}},
        "/securityContext/capabilities/add",
    ),
    "t12 hostPort": ({"ports": [{"containerPort": 80, "hostPort": 80}]}, "/ports/0/hostPort"),
    "t16 procMount": ({"securityContext": {"procMount": "Unmasked"}}, "/securityContext/procMount"),
    "t16 root": ({"securityContext": {"runAsUser": 0}}, "/securityContext/runAsUser"),
    "t19 no name": ({"image": "docker.io/"}, "/image"),
    "t19 denied registry": ({"image": "evil.example/x:1"}, "/image"),
    "t19 digest": ({"image": "docker.io/a/b@sha256:123"}, "/image"),
    "t19 long": ({"image": "docker.io/" + "a" * 2000}, "/image"),
    "t19 credentials": ({"image": "user:secret@docker.io/a/b:1"}, "/image"),
    "a variable twice": ({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}, "/env/1/name"),
    "t20 preload": ({"env": [{"name": "LD_PRELOAD", "value": "/x.so"}]}, "/env/0/name"),
    "t20 all devices": ({"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}, "/env/0/name"),
    "t20 all capabilities": ({"env": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}]}, "/env/0/value"),
    "t22 probe": (
        {"livenessProbe": {"httpGet": {"host": "169.254.169.254", "port": 80}}},
        "/livenessProbe/httpGet/host",
    ),
    "t22 hook": (
        {"lifecycle": {"postStart": {"httpGet": {"host": "169.254.169.254", "port": 80}}}},
        "/lifecycle/postStart/httpGet/host",
    ),
}
