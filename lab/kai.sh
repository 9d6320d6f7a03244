# Read by lab/cluster: the KAI scheduler as processes of a cluster. Its programs come from the folder LAB_KAI_BIN.
# Its podgroupcontroller and queuecontroller are left out: they only add up what queues use, which nothing here reads, and
# the former serves metrics to everybody at port 8080, whatever it is told.
kai_programs=(scheduler binder podgrouper)

kai_is_there() {
  local program
  [ -n "${LAB_KAI_BIN:-}" ] || fail "--kai needs LAB_KAI_BIN: a folder with KAI's ${kai_programs[*]}" 69
  for program in "${kai_programs[@]}"; do
    [ -x "$LAB_KAI_BIN/$program" ] || fail "no program $program of KAI in $LAB_KAI_BIN (LAB_KAI_BIN)" 69
  done
}

kai() ( # kai KUBECONFIG: its kinds, its namespaces, its programs; in a condition `set -e` does not hold
  admin=("$bin/kubectl" --kubeconfig "$1") port=$(free_port) other=$(free_port)
  export KUBECONFIG=$1
  crds=$here/crds/schedulers/kai.yaml
  [ ! -d "$LAB_KAI_BIN/crds" ] || crds=$LAB_KAI_BIN/crds
  "${admin[@]}" apply --server-side -f "$crds" > /dev/null || exit
  for _ in {1..20}; do # kubectl trips over one that has no status yet
    "${admin[@]}" wait --for condition=established --timeout=60s crd --all > /dev/null 2>&1 && break
    sleep 0.2
  done
  for space in kai-scheduler kai-resource-reservation; do "${admin[@]}" create namespace "$space" > /dev/null || exit; done
  "${admin[@]}" -n kai-resource-reservation create serviceaccount kai-resource-reservation > /dev/null || exit
  "${admin[@]}" apply -f "$here/kai-shares.yaml" > /dev/null || exit
  quiet=(--metrics-bind-address=0 --health-probe-bind-address=0)
  kai_program podgrouper "${quiet[@]}"
  kai_program binder "${quiet[@]}"
  kai_program scheduler --listen-address="127.0.0.1:$port" --plugin-server-port="$other" --schedule-period=200ms \
    ${LAB_KAI_CONF:+--scheduler-conf="$LAB_KAI_CONF"}
  until listens "$port" && grep -q "Starting workers" "$folder/logs/kai-podgrouper.log" &&
    grep -q "Starting workers" "$folder/logs/kai-binder.log"; do
    for program in "${kai_programs[@]}"; do ! gone "$(< "$folder/pids/kai-$program.pid")" || exit 1; done
    sleep 0.1
  done
)

kai_program() { # kai_program NAME OPTION...
  local name=kai-$1
  ln -sf "$(readlink -f "$LAB_KAI_BIN/$1")" "$folder/bin/$name"
  shift
  setsid "$folder/bin/$name" "$@" --qps=300 --burst=500 > "$folder/logs/$name.log" 2>&1 < /dev/null 9>&- &
  echo $! > "$folder/pids/$name.pid"
}
