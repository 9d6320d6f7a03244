# Read by lab/cluster: Kueue and JobSet as processes of the cluster, with their kinds and webhooks.
kueue() ( # kueue KUBECONFIG [OPTION…]: its kinds, its program as one of the cluster's processes, its webhooks and its API by address
  # in a condition `set -e` does not hold
  admin=("$bin/kubectl" --kubeconfig "$1")
  frameworks="batch/job, jobset.x-k8s.io/jobset" hooked="-batch-v1-job|-jobset-x-k8s-io-|-kueue-x-k8s-io-"
  if [[ " $* " == *" --kueue-pods "* ]]; then
    frameworks+=", pod, deployment, statefulset" hooked+="|--v1-pod|-apps-v1-deployment|-apps-v1-statefulset"
  fi
  fair=() && [[ " $* " != *" --kueue-fair "* ]] || fair=("fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}")
  of=$bin/kueue.d own=$folder/kueue port=$(free_port) probe=$(free_port) visible=$(free_port)
  certs=$own/etc/kueue/metrics/certs
  mkdir -p "$certs" "$own$folder/bin" || exit
  openssl req -x509 -newkey rsa:2048 -nodes -days 365 -subj /CN=localhost \
    -addext subjectAltName=IP:127.0.0.1,DNS:visibility-server.kueue-system.svc \
    -keyout "$certs/tls.key" -out "$certs/tls.crt" 2> /dev/null || exit
  "${admin[@]}" apply --server-side -f "$of/crds" -f "$bin/jobset.d/crds" > /dev/null || exit
  for _ in {1..20}; do # kubectl trips over one that has no status yet
    "${admin[@]}" wait --for condition=established --timeout=60s crd --all > /dev/null 2>&1 && break
    sleep 0.2
  done
  "${admin[@]}" create namespace kueue-system > /dev/null || exit
  jobset || exit
  cat > "$own/kueue.yaml" << YAML
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {healthProbeBindAddress: "127.0.0.1:$probe"}
metrics: {bindAddress: "0"}
webhook: {host: 127.0.0.1, port: $port, certDir: /etc/kueue/metrics/certs}
visibilityServer: {bindAddress: 127.0.0.1, bindPort: $visible}
leaderElection: {leaderElect: false}
internalCertManagement: {enable: false}
clientConnection: {qps: 300, burst: 500}
integrations: {frameworks: [$frameworks]}
${fair[*]}
YAML
  "${admin[@]}" --namespace kueue-system create configmap kueue-manager-config \
    --from-file="controller_manager_config.yaml=$own/kueue.yaml" > /dev/null || exit # where Rung reads it
  # It reads certificates from /etc/kueue and /visibility whatever it is told, so its root is the cluster's folder.
  cp -r "$certs" "$own/visibility" && cp "$bin/kueue" "$own$folder/bin/kueue" || exit
  "${admin[@]}" config view --raw --flatten --minify > "$own/kubeconfig" || exit
  apart=(unshare --user --map-root-user)
  "${apart[@]}" true 2> /dev/null || apart=() # where user namespaces are closed, root needs none
  POD_NAMESPACE=kueue-system setsid "${apart[@]}" chroot "$own" "$folder/bin/kueue" --config=/kueue.yaml \
    --kubeconfig=/kubeconfig --zap-log-level=1 > "$folder/logs/kueue.log" 2>&1 < /dev/null 9>&- &
  echo $! > "$folder/pids/kueue.pid"
  until listens "$port" && listens "$visible" && listens "$jobs"; do gone "$(< "$folder/pids/kueue.pid")" && exit 1; sleep 0.1; done
  webhooks kueue "$port" "$hooked" < "$of/webhooks.yaml" | "${admin[@]}" apply --server-side -f - > /dev/null || exit
  webhooks jobset "$jobs" -jobset-x-k8s-io- < "$bin/jobset.d/webhooks.yaml" | "${admin[@]}" apply --server-side -f - > /dev/null || exit
  visibility "$visible" | "${admin[@]}" apply --server-side -f - > /dev/null || exit
  kinds=clusterqueues,cohorts,localqueues,resourceflavors,workloadpriorityclasses,workloads,topologies,jobsets
  for _ in {1..100}; do # its webhooks answer a little later than its ports, and its kinds than they are established
    "${admin[@]}" create job ready --image=none --dry-run=server > /dev/null 2>&1 &&
      "${admin[@]}" get "$kinds" --all-namespaces > /dev/null 2>&1 &&
      "${admin[@]}" get --raw /apis/visibility.kueue.x-k8s.io/v1beta2 > /dev/null 2>&1 && exit
    sleep 0.1
  done
  exit 1
)

jobset() { # JobSet's program: what makes the jobs of a JobSet that Kueue has let go
  jobs=$(free_port)
  cat > "$own/jobset.yaml" << YAML
apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
health: {healthProbeBindAddress: "127.0.0.1:$(free_port)"}
metrics: {bindAddress: "0"}
webhook: {host: 127.0.0.1, port: $jobs, certDir: $certs}
leaderElection: {leaderElect: false}
internalCertManagement: {enable: false}
YAML
  ln -sf "$(readlink -f "$bin/jobset")" "$folder/bin/jobset"
  setsid "$folder/bin/jobset" "--config=$own/jobset.yaml" "--kubeconfig=${admin[2]}" --zap-log-level=1 \
    > "$folder/logs/jobset.log" 2>&1 < /dev/null 9>&- &
  echo $! > "$folder/pids/jobset.pid"
}

webhooks() { # webhooks NAME PORT WHICH < MANIFESTS: those of them, under a name, at an address instead of a service
  awk -v name="$1" -v at="https://127.0.0.1:$2" -v which="$3" -v ca="$(base64 < "$certs/tls.crt" | tr -d '\n')" '
    function flush() { if (item ~ which) printf "%s", item; item = "" }
    /^- / { flush(); inside = 1 }
    /^[^- ]/ || /^---/ { flush(); inside = 0 }
    /^    service:/ || /^      (name|namespace): / { next }
    /^      path: / { item = item "    url: " at $2 "\n    caBundle: " ca "\n"; next }
    inside { item = item $0 "\n"; next }
    /^  name: / { $0 = "  name: " name "-" $2 }
    { print }
    END { flush() }'
}

visibility() { # visibility PORT: the API that Kueue serves itself, through a service that is a name of this machine
  cat << YAML
apiVersion: v1
kind: Service
metadata: {name: visibility-server, namespace: kueue-system}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta2.visibility.kueue.x-k8s.io}
spec:
  group: visibility.kueue.x-k8s.io
  version: v1beta2
  groupPriorityMinimum: 100
  versionPriority: 100
  service: {name: visibility-server, namespace: kueue-system, port: $1}
  caBundle: $(base64 < "$certs/tls.crt" | tr -d '\n')
YAML
}

volcano() ( # volcano KUBECONFIG: its kinds, its programs as processes of the cluster, configured as Rung needs it
  admin=("$bin/kubectl" --kubeconfig "$1")
  own=$folder/volcano crds=$here/crds/schedulers/volcano.yaml
  [ ! -d "$LAB_VOLCANO_BIN/crds" ] || crds=$LAB_VOLCANO_BIN/crds
  mkdir -p "$own" || exit
  cp "$here/volcano.conf" "$own/volcano-scheduler.conf" || exit # alone there: whatever is written beside it makes it be read again
  "${admin[@]}" apply --server-side -f "$crds" > /dev/null || exit
  for _ in {1..20}; do # kubectl trips over one that has no status yet
    "${admin[@]}" wait --for condition=established --timeout=60s crd --all > /dev/null 2>&1 && break
    sleep 0.2
  done
  "${admin[@]}" create namespace volcano-system > /dev/null || exit
  "${admin[@]}" --namespace volcano-system create configmap volcano-scheduler-configmap \
    --from-file="$own/volcano-scheduler.conf" > /dev/null || exit
  volcano_program controller-manager "--kubeconfig=$1" --controllers=pg-controller,queue-controller \
    --feature-gates=QueueCommandSync=false
  volcano_program scheduler "--kubeconfig=$1" --feature-gates=ResourceTopology=false --cache-dumper=false \
    "--scheduler-conf=$own/volcano-scheduler.conf" --schedule-period=200ms
  for _ in {1..300}; do # its scheduler makes this queue, its controllers open it
    [ "$("${admin[@]}" get queues.scheduling.volcano.sh default -o 'jsonpath={.status.state}' 2> /dev/null)" != Open ] || exit 0
    for program in controller-manager scheduler; do gone "$(< "$folder/pids/volcano-$program.pid")" && exit 1; done
    sleep 0.1
  done
  exit 1
)

volcano_program() { # volcano_program NAME OPTION...: none of its ports is open without being asked for
  local name=volcano-$1 program=$LAB_VOLCANO_BIN/$1
  ln -sf "$(readlink -f "$program")" "$folder/bin/$name"
  shift
  setsid "$folder/bin/$name" --leader-elect=false "$@" > "$folder/logs/$name.log" 2>&1 < /dev/null 9>&- &
  echo $! > "$folder/pids/$name.pid"
}
