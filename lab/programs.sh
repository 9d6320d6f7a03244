# Read by lab/cluster: the programs that kwokctl started, one by one. Each is started again with the command line it had.
programs=(etcd kube-apiserver kube-controller-manager kube-scheduler kwok-controller)
restarted=(kube-controller-manager kube-scheduler kwok-controller) # they may exit while the API server is away

remember_programs() { # save every command line: of a program that died, /proc has none
  local program
  for program in "${programs[@]}"; do
    [ ! -f "$folder/pids/$program.pid" ] || cp "/proc/$(< "$folder/pids/$program.pid")/cmdline" "$folder/pids/$program.command"
  done
}

runs() { # runs PROGRAM: its process lives; a number that another process has now does not count
  local first=""
  { IFS= read -rd '' first < "/proc/$(< "$folder/pids/$1.pid")/cmdline"; } 2> /dev/null
  [ "$first" = "$folder/bin/$1" ]
}

must_know() {
  [ -d "$folder/pids" ] || fail "no cluster $name is up"
  [ -n "${1:-}" ] && [ -f "$folder/pids/$1.command" ] && return
  fail "no program ${1:-} in cluster $name; there are: $(cd "$folder/pids" 2> /dev/null && ls -- *.command | sed 's/\.command$//' | xargs)" 64
}

launch() { # launch PROGRAM, unless it runs
  local command
  ! runs "$1" || return 0
  mapfile -d '' -t command < "$folder/pids/$1.command"
  (cd "$folder" && exec setsid "${command[@]}" >> "$folder/logs/$1.log" 2>&1 < /dev/null 9>&- 8>&-) &
  echo $! > "$folder/pids/$1.pid"
  for _ in {1..100}; do ! runs "$1" || return 0; sleep 0.02; done # before the lock is free: else the watcher would start another
}

stop_program() { # stop_program PROGRAM [TERM]: kill -9, or ask first; it stays away until it is started
  must_know "${1:-}"
  [[ ${2:-TERM} = TERM ]] || fail "lab/cluster stop NAME PROGRAM [TERM]" 64
  exec 8> "$folder/pids/lock"
  flock 8
  touch "$folder/pids/$1.stopped"
  [ -n "${2:-}" ] || kill -9 $(pids "$1" | sort -u) 2> /dev/null || true
  end "$1"
  exec 8>&-
}

start_program() {
  must_know "${1:-}"
  exec 8> "$folder/pids/lock"
  flock 8
  rm -f "$folder/pids/$1.stopped"
  launch "$1"
  exec 8>&-
}

start_watcher() {
  ln -sf "$BASH" "$folder/bin/watcher" # so that it is one of the cluster's processes by its name
  LAB_WORK=$work setsid "$folder/bin/watcher" "$here/cluster" watch "$name" > "$folder/logs/watcher.log" 2>&1 < /dev/null 9>&- &
}

end_watcher() { # what it is just starting has its name until it has its own
  local found
  while found=$(pids watcher | sort -u) && [ -n "$found" ]; do
    kill -9 $found 2> /dev/null || true
    sleep 0.05
  done
}

watch_programs() { # until killed by `down`, or the cluster's folder is gone
  local program
  while sleep 1 && [ -d "$folder/pids" ]; do
    exec 8> "$folder/pids/lock"
    flock 8
    for program in "${restarted[@]}"; do
      [ -f "$folder/pids/$program.command" ] && [ ! -f "$folder/pids/$program.stopped" ] && ! runs "$program" || continue
      echo "$(date -u +%T) $program has died and is started again"
      launch "$program"
    done
    exec 8>&-
  done
}
