#!/bin/sh
# Builds the release and starts the server with its defaults, in the foreground.

. "$(dirname "$0")/lib.sh"

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
