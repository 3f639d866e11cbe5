#!/bin/sh
# A guided tour of the engine on a temporary store: each step prints its command, then runs it.
# Leaves nothing behind, also when a step fails.

. "$(dirname "$0")/lib.sh"
. scripts/tour-lib.sh

if [ -z "${WORKSPACE:-}" ]; then
    scripts/deps.sh build
    step "building the release" cargo build --release $locked -p workspace-cli
    WORKSPACE=$(target_directory)/release/workspace
fi
[ -x "$WORKSPACE" ] || die "$WORKSPACE is not built" "make tour"

tour=$(mktemp -d "${TMPDIR:-/tmp}/workspace-tour.XXXXXX")
mounted=
clean_up() {
    [ -z "$mounted" ] || "$WORKSPACE" umount "$tour/mnt" || true
    # A lazy mount that could not be unmounted must not be walked into.
    rm -rf --one-file-system "$tour"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

export WORKSPACE_STORE="$tour/store"
cd "$tour"

# `take NAME COMMAND…` runs the command and keeps the id it prints.
take() {
    name=$1
    shift
    show "$@"
    id=$("$@")
    printf '%s\n' "$id"
    eval "$name=\$id"
}

make_project() {
    mkdir -p project/src project/docs
    printf 'fn main() {\n    println!("hello");\n}\n' >project/src/main.rs
    printf '# A project\n' >project/docs/index.md
    printf '#!/bin/sh\ncargo build\n' >project/build.sh
    printf 'target/\n' >project/.workspaceignore
}

edit_project() {
    printf 'fn main() {\n    println!("hello, world");\n}\n' >project/src/main.rs
    mv project/docs/index.md project/docs/guide.md
    chmod +x project/build.sh
}

look_through_the_mount() {
    mkdir -p mnt
    if run workspace mount mnt; then
        mounted=yes
        run ls -R "mnt/$first"
        run cat "mnt/$first/src/main.rs"
        run workspace umount mnt
        mounted=
    else
        echo "This machine cannot mount it (the reason is above); everything else works without."
    fi
}

say "A directory becomes a snapshot: its tree, named by its hash, and who, when and why"
make_project
take first workspace snapshot project -m "first version" --ref main

say "Edit, and take another: only what changed is read and stored"
edit_project
take second workspace snapshot project -m "greet the world" --ref main

say "The line of snapshots that the reference names"
run workspace log --ref main

say "What changed: a file moved, another became executable, one has other lines"
run workspace diff "$first" "$second" --stat
run workspace diff "$first" "$second" --patch

say "Look into a snapshot without checking it out"
run workspace ls "$first" docs
run workspace cat "$first" src/main.rs

say "Check out the first, then turn the same directory into the second: only the difference is touched"
run workspace checkout "$first" copy
run workspace checkout "$second" copy
run cat copy/src/main.rs

say "The lazy mount: any snapshot as a read-only directory, at once, whatever its size"
look_through_the_mount

say "A search keeps its steps as episodes: where it was, what it did, what that was worth"
take root workspace episode add "$first" --action "start" --reward 0
take step workspace episode add "$second" --parent "$root" --action "greet the world" --reward 0.8
run workspace episode best
run workspace episode path "$step"

say "An experiment that nobody needs: remove its snapshot, and collect what only it used"
printf 'an idea\n' >project/idea.txt
take experiment workspace snapshot project -m "an experiment"
run workspace rm "$experiment"
run workspace gc --dry-run
run workspace gc

say "Read back everything that is left, and check every hash"
run workspace verify

say "That was the tour; its store is removed. Next: README.md, and \`workspace help\`"
