#!/bin/sh
# Builds the release and starts the server with its defaults, in the foreground.

. "$(dirname "$0")/lib.sh"

# The server finds this out, too, but only after minutes of building. A settings file may name another port.
port=${API_PORT:-}
if [ -z "$port" ] && [ -z "${WORKSPACE_CONFIG:-}" ] && [ $# -eq 0 ]; then port=8080; fi
case $port in
'' | 0 | *[!0-9]*) ;;
*)
    ! port_is_taken "${API_HOST:-127.0.0.1}" "$port" || die "port $port is in use, so the server could not start" \
        "stop the program that uses it (another \`make up\`?), or choose another port: API_PORT=$((port + 1)) make up"
    ;;
esac

scripts/deps.sh build
step "building the release" cargo build --release $locked -p workspace-server -p workspace-cli
say "building the guest agent"
AGENT_PROGRAM=$(realpath "$(scripts/agent.sh)")
export AGENT_PROGRAM
release=$(target_directory)/release
# `workspace try` looks for it there.
ln -sf "$AGENT_PROGRAM" "$release/workspace-agent"

say "starting the server; Ctrl-C stops it; what runs in sandboxes goes on, and those whose time is up go when the server runs again"
if ! have workspace; then
    printf 'In another terminal, first:  export PATH="%s:$PATH"\n\n' "$release"
fi
# What it announces is for people here, and so is its log.
RUST_LOG=${RUST_LOG:-warn} LOG_FORMAT=${LOG_FORMAT:-text} exec "$release/workspace-server" "$@"
