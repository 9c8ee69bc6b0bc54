# shellcheck shell=bash
# Sourced by ./dev: what each service is when it runs without containers. For each kind K of service:
#   make_K NAME DATA    a fresh data folder           run_K NAME DATA     spawns it
#   listening_K NAME    it talks to its superuser     fill_K NAME         accounts and databases, once
#   ready_K NAME        it answers as its users ask   version_K NAME

DEFAULT_SERVICES=(kafka mysql mariadb postgres memcached1 memcached2 memcached3 memcached4 etcd)
# shellcheck disable=SC2034 # for ./dev
ALL_SERVICES=("${DEFAULT_SERVICES[@]}" pg17)

kind_of() {
  case $1 in
    memcached?) echo memcached ;;
    pg17) echo postgres ;;
    *) echo "$1" ;;
  esac
}

# ports_of NAME: the one that clients use first.
ports_of() {
  case $1 in
    kafka) echo "$KAFKA_PORT $KAFKA_CONTROLLER_PORT" ;;
    mysql) echo "$MYSQL_PORT" ;;
    mariadb) echo "$MARIADB_PORT" ;;
    postgres) echo "$POSTGRES_PORT" ;;
    pg17) echo "$POSTGRES17_PORT" ;;
    memcached?) local key="MEMCACHED${1#memcached}_PORT" && echo "${!key}" ;;
    etcd) echo "$ETCD_PORT $ETCD_PEER_PORT" ;;
  esac
}

# missing_packages NAME: the Debian packages it lacks.
missing_packages() {
  lacks() { [[ -e $1 ]] || echo "$2"; }
  lacks_command() { command -v "$1" >/dev/null || echo "$2"; }
  if [[ $1 != connect ]]; then # which runs beside containers too, on any system
    lacks_command setsid util-linux
    lacks_command ss iproute2
  fi
  case $1 in
    kafka | connect)
      find_java || echo default-jre-headless
      lacks_command mvn maven
      ;;
    mysql)
      lacks /usr/bin/mariadb mariadb-client # speaks to MySQL, whose package holds no client
      compgen -G '/usr/lib/*/libaio.so.1' >/dev/null || echo libaio1
      compgen -G '/usr/lib/*/libnuma.so.1' >/dev/null || echo libnuma1
      lacks_command mvn maven
      ;;
    mariadb)
      lacks /usr/sbin/mariadbd mariadb-server
      lacks /usr/bin/mariadb mariadb-client
      ;;
    postgres) lacks /usr/lib/postgresql/15/bin/postgres postgresql-15 ;;
    pg17)
      lacks /usr/lib/postgresql/15/bin/psql postgresql-client-15 # none is with the fetched binaries
      lacks_command mvn maven
      lacks_command xz xz-utils
      ;;
    memcached?) lacks_command memcached memcached ;;
    nutcracker) lacks /usr/sbin/nutcracker nutcracker ;;
    systemd) lacks_command systemd-analyze systemd ;; # only looks at deploy/systemd
    prometheus) lacks_command promtool prometheus ;;
    etcd)
      lacks_command etcd etcd-server
      lacks_command etcdctl etcd-client
      ;;
  esac
}

# --- Kafka -------------------------------------------------------------------------------------------------------------------

# find_java: sets JAVA to a Java of at least 17.
find_java() {
  local version
  for JAVA in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} "$(command -v java)" /usr/lib/jvm/*/bin/java; do
    [[ -x $JAVA ]] || continue
    version=$("$JAVA" -version 2>&1)
    [[ $version =~ version\ \"([0-9]+) ]] && ((BASH_REMATCH[1] >= 17)) && return 0
  done
  return 1
}

make_kafka() {
  kafka_conf "$@" && find_java || return 1
  "$JAVA" -cp "$DEV/lib/kafka/*" kafka.tools.StorageTool format -t aW52YWxpZGF0b3ItZGV2MA -c "$DEV/run/kafka.conf"
}

kafka_conf() {
  sed '/^#/d' "$LOCAL/kafka.properties" >"$DEV/run/kafka.conf" && cat >>"$DEV/run/kafka.conf" <<END
listeners=PLAINTEXT://127.0.0.1:$KAFKA_PORT,CONTROLLER://127.0.0.1:$KAFKA_CONTROLLER_PORT
advertised.listeners=PLAINTEXT://127.0.0.1:$KAFKA_PORT
controller.quorum.voters=1@127.0.0.1:$KAFKA_CONTROLLER_PORT
log.dirs=$2
END
}

run_kafka() {
  kafka_conf "$@" && find_java || return 1
  spawn "$1" "$JAVA" -Xmx512m -Dorg.slf4j.simpleLogger.showDateTime=true -Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS \
    -cp "$DEV/lib/kafka/*" kafka.Kafka "$DEV/run/kafka.conf"
}

# A metadata request (v1, no topics) must be answered with one broker: then it is unfenced and takes topics and records.
ready_kafka() {
  local answer
  exec 8<>"/dev/tcp/127.0.0.1/$KAFKA_PORT" || return 1
  printf '\0\0\0\016\0\003\0\001\0\0\0\001\377\377\0\0\0\0' >&8
  answer=$(timeout 2 head -c 12 <&8 | od -An -tx1 | tr -d ' \n')
  exec 8>&-
  [[ $answer == *00000001 && ${#answer} == 24 ]]
}
listening_kafka() { ready_kafka; }
fill_kafka() { :; }
version_kafka() { basename "$DEV"/lib/kafka/kafka_2.13-*.jar .jar | cut -d - -f 2; }

# --- Kafka Connect with Debezium: no service, each test runs one of its own ---------------------------------------------------

# run_connect FILE…: in the foreground, with the worker's properties and those of its connectors.
run_connect() {
  find_java || die "Kafka Connect needs Java 17 or newer: install it, or name it in JAVA_HOME"
  exec "$JAVA" -Xmx700m -Dorg.slf4j.simpleLogger.showDateTime=true -Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS \
    -cp "$DEV/lib/connect/*" org.apache.kafka.connect.cli.ConnectStandalone "$@"
}

# --- Schema registry: no service, each test runs one of its own ---------------------------------------------------------------

# run_registry PORT: in the foreground, with its schemas in memory.
run_registry() {
  find_java || die "the schema registry needs Java 17 or newer: install it, or name it in JAVA_HOME"
  exec "$JAVA" -Xmx300m -Dquarkus.http.host=127.0.0.1 -Dquarkus.http.port="$1" -jar "$DEV"/lib/registry/apicurio-registry-app-*-runner.jar
}

# --- MySQL and MariaDB -------------------------------------------------------------------------------------------------------
# A killed server leaves lock files with its pid; they go before a start, whose caller has made sure that no process is left.
# The sockets' names are relative to the data folder: a socket's whole path may hold 107 bytes, a clone's may be longer.

as_root_user() { ((EUID != 0)) || echo --user=root; }

sql() { # NAME USER PASSWORD DATABASE [arguments of the client]
  local port
  port=$(ports_of "$1")
  MYSQL_PWD=$3 timeout 20 mariadb --no-defaults --protocol=tcp -h 127.0.0.1 -P "$port" -u "$2" --connect-timeout=2 -D "$4" "${@:5}"
}

make_mysql() {
  # shellcheck disable=SC2046 # nothing or one word
  "$DEV/lib/mysql/bin/mysqld" --defaults-file="$LOCAL/mysql.cnf" --initialize-insecure $(as_root_user) \
    --basedir="$DEV/lib/mysql" --lc-messages-dir="$DEV/lib/mysql/share" --datadir="$2"
}

run_mysql() {
  rm -f "$2"/mysql.sock{,.lock}
  # shellcheck disable=SC2046
  spawn "$1" "$DEV/lib/mysql/bin/mysqld" --defaults-file="$LOCAL/mysql.cnf" $(as_root_user) \
    --basedir="$DEV/lib/mysql" --lc-messages-dir="$DEV/lib/mysql/share" --datadir="$2" \
    --bind-address=127.0.0.1 --port="$MYSQL_PORT" --socket=mysql.sock --pid-file="$2/mysqld.pid" --tmpdir="$2"
}

# mariadb-install-db cannot take a space in a path: a link for its time has none.
make_mariadb() {
  local link code=0
  link=$(mktemp -d) && ln -s "$2" "$link/data" || return 1
  # shellcheck disable=SC2046
  mariadb-install-db --no-defaults $(as_root_user) --datadir="$link/data" --auth-root-authentication-method=normal --skip-test-db || code=1
  rm -r "$link"
  return $code
}

run_mariadb() {
  rm -f "$2/mariadb.sock"
  # shellcheck disable=SC2046
  spawn "$1" mariadbd --defaults-file="$LOCAL/mariadb.cnf" $(as_root_user) --datadir="$2" \
    --bind-address=127.0.0.1 --port="$MARIADB_PORT" --socket=mariadb.sock --pid-file="$2/mariadbd.pid" --tmpdir="$2"
}

listening_mysql() { sql "$1" root "" mysql -e "SELECT 1"; }
listening_mariadb() { sql "$1" root "" mysql -e "SELECT 1"; }
fill_mysql() { sql "$1" root "" mysql <"$LOCAL/sql/mysql.sql"; }
fill_mariadb() { sql "$1" root "" mysql <"$LOCAL/sql/mysql.sql"; }
ready_mysql() { sql "$1" app app-password shop -e "SELECT 1"; }
ready_mariadb() { sql "$1" app app-password shop -e "SELECT 1"; }
version_mysql() { sql "$1" app app-password shop -BN -e "SELECT version()"; }
version_mariadb() { sql "$1" app app-password shop -BN -e "SELECT version()" | cut -d - -f 1; }

# --- Postgres 15 and 17 ------------------------------------------------------------------------------------------------------

pg_bin() { if [[ $1 == pg17 ]]; then echo "$DEV/lib/pg17/bin"; else echo /usr/lib/postgresql/15/bin; fi; }

pg() { # NAME USER PASSWORD DATABASE [arguments of psql]
  local port
  port=$(ports_of "$1")
  PGPASSWORD=$3 PGCONNECT_TIMEOUT=2 timeout 20 /usr/lib/postgresql/15/bin/psql -X -q -w -v ON_ERROR_STOP=1 \
    -h 127.0.0.1 -p "$port" -U "$2" -d "$4" "${@:5}"
}

make_postgres() {
  drop_root || return 1
  [[ -z $OWNER ]] || chown -R "$OWNER" "$2"
  "${DROP[@]}" "$(pg_bin "$1")/initdb" -D "$2" -U postgres --auth=trust --encoding=UTF8 --locale=C --no-sync
}

run_postgres() {
  drop_root || return 1
  [[ -z $OWNER ]] || chown -R "$OWNER" "$2" # an earlier start may have dropped root another way
  rm -f "$2/postmaster.pid"
  spawn "$1" "${DROP[@]}" "$(pg_bin "$1")/postgres" -D "$2" -c "config_file=$LOCAL/postgres.conf" -c "hba_file=$LOCAL/pg_hba.conf" \
    -c listen_addresses=127.0.0.1 -c "port=$(ports_of "$1")" -c unix_socket_directories=
}

listening_postgres() { pg "$1" postgres "" postgres -c "SELECT 1"; }
fill_postgres() { pg "$1" postgres "" postgres -f "$LOCAL/sql/postgres.sql"; }
ready_postgres() { pg "$1" app app-password shop -c "SELECT 1"; }
version_postgres() { pg "$1" app app-password shop -At -c "SHOW server_version" | cut -d ' ' -f 1; }

# --- memcached, etcd ---------------------------------------------------------------------------------------------------------

make_memcached() { :; }
run_memcached() {
  # shellcheck disable=SC2046
  spawn "$1" memcached -m 64 -l 127.0.0.1 -p "$(ports_of "$1")" $( ((EUID != 0)) || echo -u root)
}
# say_to PORT TEXT: the first line of the answer.
say_to() {
  local answer
  exec 8<>"/dev/tcp/127.0.0.1/$1" || return 1
  printf '%b' "$2" >&8
  read -r -t 2 answer <&8 || answer=
  exec 8>&-
  echo "${answer%$'\r'}"
}
ready_memcached() { [[ $(say_to "$(ports_of "$1")" 'version\r\n') == VERSION\ * ]]; }
listening_memcached() { ready_memcached "$1"; }
fill_memcached() { :; }
version_memcached() { say_to "$(ports_of "$1")" 'version\r\n' | cut -d ' ' -f 2; }

make_etcd() { :; }
run_etcd() {
  local client="http://127.0.0.1:$ETCD_PORT" peer="http://127.0.0.1:$ETCD_PEER_PORT"
  spawn "$1" etcd --name dev --data-dir "$2/dev.etcd" --logger=zap --heartbeat-interval=50 --election-timeout=500 \
    --listen-client-urls "$client" --advertise-client-urls "$client" \
    --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "dev=$peer"
}
ready_etcd() { [[ $(ETCDCTL_API=3 etcdctl --endpoints="127.0.0.1:$ETCD_PORT" --command-timeout=2s endpoint health 2>&1) == *"is healthy"* ]]; }
listening_etcd() { ready_etcd; }
fill_etcd() { :; }
version_etcd() { etcd --version | sed -n 's/^etcd Version: //p'; }
