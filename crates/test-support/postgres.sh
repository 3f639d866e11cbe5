#!/bin/sh
# Starts a PostgreSQL server in DIRECTORY, prints `ready`, and stops the server when standard input is closed, which
# happens however the test dies. Removes DIRECTORY in any case.
#
#   postgres.sh DIRECTORY PROGRAMS    the directory of initdb and postgres

directory=$1
PATH=$2:$PATH

# Nobody else removes the directory, not even if the server cannot be started.
trap 'cd / && rm -rf "$directory"' EXIT

# Ctrl-C reaches this process too; the end of standard input follows it.
trap '' INT TERM HUP

# PostgreSQL refuses to run as root.
as=
if [ "$(id -u)" -eq 0 ]; then
    chown nobody "$directory" || exit 1
    as="setpriv --reuid=nobody --regid=$(id -g nobody) --clear-groups"
fi

cd "$directory" || exit 1
$as initdb -D data -A trust -U postgres -E UTF8 --locale=C.UTF-8 --no-sync >initdb.log 2>&1 || {
    cat initdb.log >&2
    exit 1
}
$as postgres -D data -c listen_addresses= -c unix_socket_directories="$directory" -c fsync=off \
    -c shared_buffers=16MB -c max_connections=300 </dev/null >postgres.log 2>&1 9>&- &
server=$!

tries=0
until pg_isready -q -h "$directory" -U postgres; do
    tries=$((tries + 1))
    if [ $tries -gt 300 ] || ! kill -0 $server 2>/dev/null; then
        cat postgres.log >&2
        kill -QUIT $server 2>/dev/null
        wait $server
        exit 1
    fi
    sleep 0.1
done

echo ready
cat >/dev/null
kill -QUIT $server
wait $server
