#!/bin/sh
# Sends what the API's description allows, and what it does not, to a server with real sandboxes.
#
#   scripts/schemathesis.sh [SECONDS]    for so long, 80 by default
#
# Needs Python with `venv` and, the first time, PyPI: Schemathesis is installed below the target directory.

. "$(dirname "$0")/lib.sh"

version=4.32.5
seconds=${1:-80}
target=$(target_directory)
environment=$target/schemathesis-$version
key=schemathesis-key-0123456789

install() {
    have python3 || die "no Python found" "apt-get install python3 python3-venv"
    rm -rf "$environment"
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check "schemathesis==$version"
}

# Starts the server on a free port; sets `server` and `url`.
start() {
    : >"$data/announced"
    DATA_DIR=$data API_PORT=0 API_KEY=$key RATE_LIMIT=off REQUIRE_ISOLATION=best-effort MAX_SANDBOXES=20 \
        DEFAULT_COMMAND_TIMEOUT=2000 "$target/debug/workspace-server" >"$data/announced" 2>>"$data/log" &
    server=$!
    tries=0
    until grep -q '^runtime' "$data/announced"; do
        tries=$((tries + 1))
        [ $tries -le 300 ] || die "the server does not start: $(cat "$data/log")"
        sleep 0.1
    done
    url=$(sed -n 's/^API  *//p' "$data/announced")
}

stop() {
    kill "$server" 2>/dev/null || true
    wait "$server" || true
    server=
}

# Ends every sandbox, also after a failure: a server that knows of none removes those it finds.
finish() {
    status=$?
    trap - EXIT
    if [ -n "$server" ]; then
        stop
        rm -f "$data"/catalog.db*
        start
        stop
    fi
    if [ -e "$data/holder" ]; then
        kill -9 "$(sed 's/[^0-9]*\([0-9]*\).*/\1/' "$data/holder")" 2>/dev/null || true
    fi
    rm -rf "$data"
    exit $status
}

# `post PATH BODY` prints the id in the answer.
post() {
    "$environment/bin/python" -c '
import json, sys, urllib.request
url, key, body = sys.argv[1:]
headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
answer = json.load(urllib.request.urlopen(urllib.request.Request(url, body.encode(), headers)))
print(answer.get("id") or answer["commandId"])' "$url/api/v1/$1" "$key" "$2"
}

# `try SECONDS OPTION…`: all checks but one, because what a description allows may still be more than is there. With one
# worker: Python 3.11 fails when two threads parse Python source at once, which the generator of data does.
try() {
    for_seconds=$1
    shift
    SCHEMATHESIS_HOOKS=scripts/schemathesis_hooks.py "$environment/bin/schemathesis" --config-file "$data/schemathesis.toml" run "$url/api/v1/openapi.json" \
        --header "Authorization: Bearer $key" --max-time "$for_seconds" --request-timeout 20 --workers 1 \
        --exclude-checks positive_data_acceptance --warnings off --generation-deterministic "$@" || {
        grep '"level":"ERROR"' "$data/log" | tail -5 >&2
        die "the server does not keep to its description"
    }
}

[ -x "$environment/bin/schemathesis" ] || step "installing Schemathesis $version" install

# What is too long is refused as such, whatever else is wrong with it.
checks='[checks]
negative_data_rejection.expected-statuses = [400, 401, 403, 404, 405, 406, 409, 410, 412, 413, 414, 415, 422, 428, 429, 431, "5xx"]'

data=$(mktemp -d)
server=
trap finish EXIT
start

# First with a sandbox, a command and a terminal that are there and stay. Streams of a running command and of a watch do
# not end.
sandbox=$(post sandboxes '{"template": "base"}')
command=$(post "sandboxes/$sandbox/process/run" '{"command": "cat", "stdin": true, "background": true, "timeout": 0}')
terminal=$(post "sandboxes/$sandbox/pty" '{"cols": 80, "rows": 24}')
cat >"$data/schemathesis.toml" <<END
[parameters]
"path.id" = "$sandbox"
"path.command" = "$command"
"path.pty" = "$terminal"
$checks
END
try $((seconds / 2)) --exclude-operation-id delete_sandbox --exclude-operation-id delete_sandboxes \
    --exclude-operation-id command_output --exclude-operation-id watch_files

# Then with whatever comes to its mind; but it must not revoke its own key.
printf '%s\n' "$checks" >"$data/schemathesis.toml"
try $((seconds / 2)) --exclude-operation-id revoke_key

if grep '"status":5' "$data/log" | grep -v '"status":503' >&2; then
    die "the server failed"
fi
