# shellcheck shell=bash
# Sourced by ./dev: the life of services that run without containers. What one service is (install, make, run, ask) stands in
# services.sh; here is what all of them share. Everything lives under $DEV:
#   lib/  fetched binaries      data/  one folder a service, with .made when its accounts are in place
#   log/  one file a service    run/   NAME.pid, NAME.id (start time and boot of that pid), NAME.version, NAME.conf

START_LIMIT=90 # seconds until a service that does not answer counts as failed
BUSY_LIMIT=15  # seconds that one which runs already may take to answer before it counts as hanging
STOP_LIMIT=30  # seconds until a service that does not stop is killed

# --- processes ---------------------------------------------------------------------------------------------------------------

# proc_id PID: what tells this process from a later one with the same pid.
proc_id() {
  local stat fields
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  read -r -a fields <<<"${stat##*) }" # from the state on: before it is a name, which may hold spaces
  [[ ${fields[0]} != Z ]] || return 1
  echo "${fields[19]} $(</proc/sys/kernel/random/boot_id)"
}

# pid_of NAME: the pid of a service that we started and that still runs; fails when there is none.
pid_of() {
  local pid id
  { read -r pid <"$DEV/run/$1.pid" && id=$(<"$DEV/run/$1.id"); } 2>/dev/null || return 1
  [[ $(proc_id "$pid") == "$id" ]] || return 1
  echo "$pid"
}

# spawn NAME COMMAND…: runs it as a daemon of its own session, with its output in the service's log.
spawn() {
  local name=$1 log="$DEV/log/$1.log"
  shift
  [[ ! -s $log ]] || mv -f "$log" "$log.1"
  (cd "$DEV" && exec setsid "$@" </dev/null >"$log" 2>&1 9>&-) &
  local pid=$!
  echo "$pid" >"$DEV/run/$name.pid"
  proc_id "$pid" >"$DEV/run/$name.id" || true # gone already: wait_for says so
}

# wait_for NAME PROBE…: until the probe succeeds. Fails, with the reason in $WHY, when the process ends first or the time is up.
wait_for() {
  local name=$1 deadline=$((SECONDS + START_LIMIT))
  shift
  until "$@" >/dev/null 2>&1; do
    if ! pid_of "$name" >/dev/null; then
      WHY="the process ended before it answered"
      return 1
    elif ((SECONDS > deadline)); then
      WHY="no answer within $START_LIMIT s ($*)"
      return 1
    fi
    sleep 0.1
  done
}

# settle FOLDER: waits until no process works in it. A database's children outlive a killed server for a moment.
settle() {
  local deadline=$((SECONDS + STOP_LIMIT))
  while readlink /proc/[0-9]*/cwd | grep -qxF "$1"; do
    ((SECONDS <= deadline)) || { WHY="processes of an earlier start still work in $1; find them with: fuser -v $1" && return 1; }
    sleep 0.1
  done
}

# stop_one NAME: by its own polite signal, then by force; returns when the process is gone.
stop_one() {
  local name=$1 pid deadline=$((SECONDS + STOP_LIMIT)) signal=TERM
  if ! pid=$(pid_of "$name"); then
    rm -f "$DEV/run/$name".{pid,id}
    return 0
  fi
  case $name in postgres | pg17) signal=INT ;; esac # fast shutdown: does not wait for clients
  kill -s "$signal" "$pid" 2>/dev/null || true
  kill -s CONT "$pid" 2>/dev/null || true # a paused process takes no other signal
  while pid_of "$name" >/dev/null; do
    if ((SECONDS > deadline)); then
      say "$name: did not stop within $STOP_LIMIT s, killing it"
      kill -s KILL "$pid" 2>/dev/null || true
      deadline=$((SECONDS + STOP_LIMIT))
    fi
    sleep 0.05
  done
  rm -f "$DEV/run/$name".{pid,id}
}

# --- users -------------------------------------------------------------------------------------------------------------------

# drop_root: sets DROP, the words before a command that may not be root (Postgres), and OWNER, whose its files must be. The folder
# may be one that nobody but root can enter. The first of these that works:
#   - a user namespace that maps root to a user that is not: the files stay root's (a chroot and most containers forbid it);
#   - the user postgres;
#   - the user postgres with the one capability to enter any folder: env takes it up, for setpriv itself has none left, and
#     with no_setuid_fixup access(2) heeds it, which Postgres asks about its own files.
# shellcheck disable=SC2034 # OWNER is for services.sh
drop_root() {
  local postgres=(setpriv --reuid=postgres --regid=postgres --init-groups)
  DROP=() OWNER=
  ((EUID == 0)) || return 0
  DROP=(unshare --user --map-user=1000 --map-group=1000) OWNER=root:root
  ! "${DROP[@]}" test -d "$DEV/data/." 2>/dev/null || return 0
  DROP=("${postgres[@]}") OWNER=postgres:postgres
  ! "${DROP[@]}" test -d "$DEV/data/." 2>/dev/null || return 0
  DROP=("${postgres[@]}" --inh-caps=+dac_override --ambient-caps=+dac_override --securebits=+no_setuid_fixup env)
  ! "${DROP[@]}" test -d "$DEV/data/." 2>/dev/null || return 0
  WHY="Postgres refuses to run as root, and neither unshare --user nor setpriv to the user postgres gets it into $DEV. Clone to a folder that everyone may enter, or run ./dev as another user."
  return 1
}

# --- ports -------------------------------------------------------------------------------------------------------------------

# port_holder PORT: who listens there, as "name (pid N)"; fails when nobody does.
port_holder() {
  local line
  line=$(ss -Hltnp "sport = :$1" 2>/dev/null | head -n 1)
  [[ -n $line ]] || return 1
  if [[ $line =~ \(\(\"([^\"]*)\",pid=([0-9]+) ]]; then
    echo "${BASH_REMATCH[1]} (pid ${BASH_REMATCH[2]})"
  else
    echo "a process of another user"
  fi
}

check_ports() {
  local name=$1 port holder
  for port in $(ports_of "$name"); do
    if holder=$(port_holder "$port"); then
      WHY="port $port is taken by $holder. Stop that process, or name other ports in a file: DEV_PORTS_FILE=my-ports.env ./dev up"
      return 1
    fi
  done
}

# --- installing --------------------------------------------------------------------------------------------------------------

# install_packages NAME…: installs with apt what these services lack, without starting any daemon of the distribution.
install_packages() {
  local missing instead=", or start a Docker engine"
  [[ $* != connect ]] || instead="" # it needs them beside one too
  missing=$(for name in "$@"; do missing_packages "$name"; done | sort -u | tr '\n' ' ')
  missing=${missing% }
  [[ -n $missing ]] || return 0
  if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
    die "missing packages: $missing
  Install them as root on Debian 12 (apt-get install $missing)$instead, then run ./dev again."
  fi
  say "installing $missing"
  (
    policy=/usr/sbin/policy-rc.d
    no_cluster=/etc/postgresql-common/createcluster.d/invalidator-dev.conf
    # shellcheck disable=SC2317 # called by the trap
    restore() {
      rm -f "$policy" "$no_cluster"
      [[ ! -e $policy.before-dev ]] || mv -f "$policy.before-dev" "$policy"
      rmdir --ignore-fail-on-non-empty "${no_cluster%/*}" 2>/dev/null || true
    }
    trap restore EXIT
    trap 'exit 130' INT TERM
    [[ ! -e $policy ]] || mv -n "$policy" "$policy.before-dev"
    printf '#!/bin/sh\n# No daemon starts while ./dev installs packages.\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    mkdir -p "${no_cluster%/*}"
    echo "create_main_cluster = false" >"$no_cluster"
    export DEBIAN_FRONTEND=noninteractive
    install="apt-get install -y -q --no-install-recommends -o Dpkg::Use-Pty=0 $missing"
    $install || { apt-get update -q && $install; } || exit 1
    # Nor at the next boot: these units were enabled by the installation just now.
    if command -v systemctl >/dev/null; then
      for unit in mariadb etcd memcached nutcracker prometheus; do
        case " $missing " in *" $unit"*) systemctl disable "$unit" 2>/dev/null || true ;; esac
      done
    fi
  ) </dev/null >"$DEV/log/apt.log" 2>&1 9>&- || {
    tail -n 20 "$DEV/log/apt.log" >&2
    die "apt-get could not install: $missing
  The whole output is in $DEV/log/apt.log. Fix what it says (often: no network), then run ./dev again."
  }
}

# pom_of NAME: where its version is pinned.
pom_of() { if [[ $1 == pg18 ]]; then echo "$LOCAL/pom-tests.xml"; else echo "$LOCAL/pom.xml"; fi; }

# fetch NAME…: brings lib/NAME for those of kafka, mysql, pg17, pg18, connect and registry that lack it.
fetch() {
  local name want=() new="$DEV/lib/.new"
  for name in "$@"; do
    case $name in kafka | mysql | pg17 | pg18 | connect | registry) ;; *) continue ;; esac
    [[ $(cat "$DEV/lib/$name/.pom" 2>/dev/null) == "$(sha256sum <"$(pom_of "$name")")" ]] || want+=("$name")
  done
  ((${#want[@]})) || return 0
  if [[ $(uname -m) != x86_64 && ${want[*]} != connect && ${want[*]} != registry ]]; then
    die "the pinned binaries of ${want[*]} are for x86_64; on $(uname -m) start a Docker engine instead"
  fi
  say "fetching ${want[*]}"
  rm -rf "$new" && mkdir -p "$new"
  for name in "${want[@]}"; do # one by one: profiles that are active together would choose each other's versions
    mvn -q -B -f "$(pom_of "$name")" -P "$name" "-Dlib=$new" generate-resources </dev/null >"$DEV/log/mvn.log" 2>&1 9>&- && continue
    tail -n 20 "$DEV/log/mvn.log" >&2
    die "mvn could not fetch $name
  The whole output is in $DEV/log/mvn.log. Fix what it says (often: no network, or a proxy missing in ~/.m2/settings.xml), then run ./dev again."
  done
  for name in "${want[@]}"; do
    case $name in
      mysql) tar -xzf "$new/mysql/mysql-Linux-amd64.tar.gz" -C "$new/mysql" --no-same-owner && rm "$new/mysql/mysql-Linux-amd64.tar.gz" ;;
      pg17 | pg18) tar -xJf "$new/$name/postgres-linux-x86_64.txz" -C "$new/$name" --no-same-owner && rm "$new/$name/postgres-linux-x86_64.txz" ;;
    esac || die "unpacking $name failed: is the disk full?"
    chmod -R a+rX "$new/$name"
    sha256sum <"$(pom_of "$name")" >"$new/$name/.pom"
    rm -rf "${DEV:?}/lib/$name" && mv "$new/$name" "$DEV/lib/$name"
  done
  rm -rf "$new"
}

# --- up, down, status --------------------------------------------------------------------------------------------------------

# start_one NAME: makes its data when there is none, runs it, waits until it answers and has its accounts. When it fails the reason
# is in WHY; the status is 1 when the service's log may tell more, 2 when it cannot.
start_one() {
  local name=$1 data="$DEV/data/$1" made="$DEV/data/$1/.made" begun=$EPOCHREALTIME
  WHY=
  if pid_of "$name" >/dev/null; then
    if [[ -e $made ]] && START_LIMIT=$BUSY_LIMIT wait_for "$name" "ready_$(kind_of "$name")" "$name"; then
      return 0
    fi
    say "$name: it hangs, or its first start was cut short: starting it anew"
    stop_one "$name"
  fi
  check_ports "$name" || return 2
  settle "$data" || return 2
  if [[ ! -e $made ]]; then
    rm -rf "$data" && mkdir -p "$data" || return 1
    WHY="its data folder could not be made"
    "make_$(kind_of "$name")" "$name" "$data" >"$DEV/log/$name.log" 2>&1 || return 1
  fi
  WHY="it could not be run"
  "run_$(kind_of "$name")" "$name" "$data" || return 1
  wait_for "$name" "listening_$(kind_of "$name")" "$name" || return 1
  if [[ ! -e $made ]]; then
    WHY="its accounts and databases could not be made"
    "fill_$(kind_of "$name")" "$name" >>"$DEV/log/$name.log" 2>&1 || return 1
    : >"$made"
  fi
  wait_for "$name" "ready_$(kind_of "$name")" "$name" || return 1
  "version_$(kind_of "$name")" "$name" >"$DEV/run/$name.version" 2>/dev/null || true
  say "$name is up on 127.0.0.1:$(ports_of "$name" | cut -d ' ' -f 1) after $(since "$begun")"
}

# native_up NAME…: all at once; fails when one of them did not start, after saying which and why.
native_up() {
  local name begun=$EPOCHREALTIME jobs=() failed=()
  install_packages "$@"
  fetch "$@"
  for name in "$@"; do
    (
      set +e
      start_one "$name"
      code=$?
      if ((code)); then
        echo "dev: $name did not start: $WHY" >"$DEV/run/$name.failed"
        ((code == 2)) || log_end "$name" >>"$DEV/run/$name.failed"
        stop_one "$name"
        exit 1
      fi
    ) &
    jobs+=("$!")
  done
  for name in "$@"; do
    wait "${jobs[0]}" || failed+=("$name")
    jobs=("${jobs[@]:1}")
  done
  for name in "${failed[@]}"; do
    cat "$DEV/run/$name.failed" >&2 || say "$name did not start: ./dev was interrupted"
    rm -f "$DEV/run/$name.failed"
  done
  ((${#failed[@]} == 0)) || return 1
  if (($# == 1)); then say "$1 is up"; else say "all $# services are up ($(since "$begun"))"; fi
}

log_end() {
  local log="$DEV/log/$1.log"
  if [[ -s $log ]]; then
    echo "  --- the end of $log"
    tail -n 15 "$log" | sed 's/^/  | /'
  else
    echo "  --- $log is empty"
  fi
}

native_down() {
  local name jobs=()
  for name in "$@"; do
    stop_one "$name" &
    jobs+=("$!")
  done
  wait "${jobs[@]}"
}

native_status() {
  local name state pid version bad=0
  printf '%-11s %-14s %-6s %-8s %-16s %s\n' SERVICE STATE PORT PID VERSION LOG
  for name in "$@"; do
    version=$(cat "$DEV/run/$name.version" 2>/dev/null) || version=-
    if pid=$(pid_of "$name"); then
      state=up
      "ready_$(kind_of "$name")" "$name" >/dev/null 2>&1 || state="no answer"
    else
      pid=- state=down
      ! port_holder "$(ports_of "$name" | cut -d ' ' -f 1)" >/dev/null || state="port taken"
    fi
    if [[ $name == pg17 && $state == down ]]; then
      state="down, optional"
    elif [[ $state != up ]]; then
      bad=1
    fi
    printf '%-11s %-14s %-6s %-8s %-16s %s\n' "$name" "$state" "$(ports_of "$name" | cut -d ' ' -f 1)" "$pid" "$version" "${DEV#"$PWD/"}/log/$name.log"
  done
  return $bad
}
