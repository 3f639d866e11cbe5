#!/bin/sh
# A guided tour of projects on a server of its own: three agents change one project, two of them the same line.
# Each step prints its command, then runs it. Leaves nothing behind, also when a step fails.

. "$(dirname "$0")/lib.sh"
. scripts/tour-lib.sh

if [ -z "${WORKSPACE:-}" ]; then
    scripts/deps.sh build
    AGENT_PROGRAM=$(realpath "$(scripts/agent.sh)")
    export AGENT_PROGRAM
    step "building the release" cargo build --release $locked -p workspace-cli -p workspace-server
    WORKSPACE=$(target_directory)/release/workspace
fi
[ -x "$WORKSPACE" ] || die "$WORKSPACE is not built" "make tour-projects"
[ -x "$WORKSPACE-server" ] || die "$WORKSPACE-server is not built" "make tour-projects"

tour=$(mktemp -d "${TMPDIR:-/tmp}/workspace-tour.XXXXXX")
server=
clean_up() {
    if [ -n "$server" ]; then
        for agent in writer editor reviewer; do
            "$WORKSPACE" sandbox rm "$agent" >"$tour/removal" 2>&1 || true
        done
        kill "$server" && wait "$server" || true
    fi
    rm -rf --one-file-system "$tour"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

export WORKSPACE_STORE="$tour/store" DATA_DIR="$tour/data" API_PORT="${TOUR_PORT:-7411}"
export WORKSPACE_SERVER="http://127.0.0.1:$API_PORT"
cd "$tour"

# Runs a command that reports conflicts by its exit status.
run_with_conflicts() {
    show "$@"
    "$@" && die "there should be a conflict" "please report this" || status=$?
    [ "$status" -eq 3 ] || die "the command failed with status $status" "the reason is above"
}

start_server() {
    POOL_SIZE=0 "$WORKSPACE-server" >"$tour/server.log" 2>&1 &
    server=$!
    tries=0
    until workspace project ls >"$tour/answer" 2>&1; do
        tries=$((tries + 1))
        kill -0 "$server" 2>/dev/null && [ "$tries" -lt 100 ] || {
            cat "$tour/server.log" "$tour/answer"
            die "the server does not start" "TOUR_PORT=PORT make tour-projects, if port $API_PORT is in use"
        }
        sleep 0.1
    done
}

make_site() {
    mkdir site
    printf '# Our product\n\nIt is good.\n\nContact us.\n' >site/index.md
    printf 'title = "Product"\ncolour = "blue"\n' >site/site.toml
}

say "A server, and a project that begins with a directory"
start_server
make_site
run workspace project create website
run workspace project import website site -m "first version"

say "Three agents, each with a sandbox of its own over the same files"
for agent in writer editor reviewer; do
    run workspace sandbox create --name "$agent" --project website --agent "$agent"
done

say "They work at the same time: two of them on one line"
run workspace exec writer -- sh -c "sed -i 's/It is good./It is fast and safe./' index.md; echo 'Call +1 555.' > contact.md"
run workspace exec editor -- sh -c "sed -i 's/Contact us./Write to us./' index.md; sed -i 's/blue/green/' site.toml"
run workspace exec reviewer -- sh -c "sed -i 's/It is good./It is the best./' index.md; sed -i 's/Product/Our product/' site.toml"

say "The first completion lands as it is; the second one is merged with it, line by line and value by value"
run workspace complete writer -m "say what it is"
run workspace complete editor -m "a friendlier page"

say "The third one changed a line that the first one changed: the rest lands, the project keeps its line"
run_with_conflicts workspace complete reviewer -m "praise it"

say "The files now: changes of all three"
run workspace project export website result
run cat result/index.md result/site.toml

say "The last change, and the way back"
run workspace project diff website --patch
run workspace rollback website 3 site.toml -m "keep the title"
run workspace history website site.toml

say "The conflict waits as a review, with all versions; somebody decides"
run workspace review ls website
review=$(workspace --json review ls website | sed -n 's/.*"id":"\([^"]*\)".*/\1/p' | head -n 1)
run workspace review show website "$review"
sed 's/It is fast and safe./It is fast, safe and the best./' result/index.md >index.md
run workspace review resolve website "$review" --file index.md -m "say both"

say "The history as a picture: all three began with sequence 1"
run workspace project log website --graph

say "That was the tour; its server and files are removed. Next: docs/projects.md"
