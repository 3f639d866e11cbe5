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
