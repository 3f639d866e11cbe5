#!/bin/sh
# Runs a program of the build directory as an ordinary user, who owns nothing on the machine. Needs root. Cargo
# and nextest start the test programs with it when `CARGO_TARGET_<TARGET>_RUNNER` names it.
#
#   as-ordinary-user.sh TARGET/debug/deps/PROGRAM ARGUMENT…
set -eu

program=$1
shift
build=$(dirname "$(dirname "$program")")
name=$(basename "$program")

# The user may have no access to the directories above the build directory, so it is mounted where everybody can
# reach it. Everybody may open /dev/fuse and has the usual limit of open files, as on most machines.
# What an ordinary user cannot test is tested as root, and not recorded as skipped.
exec unshare --mount sh -euc '
    mount -t tmpfs -o mode=755 tmpfs /mnt
    mkdir /mnt/build
    mount --bind "$1" /mnt/build
    if [ -e /dev/fuse ]; then
        mknod -m 666 /mnt/fuse c 10 229
        mount --bind /mnt/fuse /dev/fuse
    fi
    program=/mnt/build/deps/$2
    shift 2
    cd /
    unset TMPDIR WORKSPACE_TEST_SKIPPED
    export WORKSPACE_TEST_SERVER=/mnt/build/workspace-server WORKSPACE_TEST_AGENT=/mnt/build/workspace-agent
    exec prlimit --nofile=1024:8192 setpriv --reuid 61235 --regid 61235 --clear-groups -- "$program" "$@"
' sh "$build" "$name" "$@"
