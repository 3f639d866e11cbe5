# Sourced by the other scripts: stops at the first error, works from the root of the repository.

set -eu
cd "$(dirname "$0")/.."

# A run in CI takes the pinned versions or fails; a developer's may write Cargo.lock.
locked=
ci() {
    [ "${CI:-}" = true ]
}
if ci; then locked=--locked; fi

say() {
    printf '\n== %s\n' "$*"
}

die() {
    printf 'error: %s\n' "$1" >&2
    [ $# -lt 2 ] || printf 'hint: %s\n' "$2" >&2
    exit 1
}

# `step TITLE COMMAND…` runs the command and says how long it took.
step() {
    title=$1
    shift
    say "$title"
    began=$(date +%s)
    "$@"
    printf '== %s: %s s\n' "$title" "$(($(date +%s) - began))"
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# `cargo` takes `nextest`, `deny` and `fuzz` as subcommands when they are installed.
have_cargo() {
    have "cargo-$1"
}

# Where cargo puts what it builds, whatever configuration says so.
target_directory() {
    cargo metadata --format-version 1 --no-deps --offline |
        sed 's/.*"target_directory":"\([^"]*\)".*/\1/'
}

# `port_is_taken HOST PORT` succeeds if a program listens at that IPv4 address, or at all addresses. It fails where the
# system does not list its sockets.
port_is_taken() {
    cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk -v host="$1" -v port="$2" '
        BEGIN {
            split(host, part, ".")
            address = sprintf("%02X%02X%02X%02X", part[4], part[3], part[2], part[1])
            suffix = sprintf(":%04X", port)
        }
        # Fields 2 and 4: local address and state; 0A is LISTEN.
        $4 == "0A" && substr($2, length($2) - 4) == suffix {
            listener = substr($2, 1, length($2) - 5)
            if (listener ~ /^0+$/ || listener == address || host == "0.0.0.0" || host == "::") taken = 1
        }
        END { exit !taken }'
}
