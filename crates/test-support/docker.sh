#!/bin/sh
# Runs a Docker daemon of its own in DIRECTORY, with one image, prints `ready`, and ends both when standard input
# ends, which happens however the tests die. A daemon that the machine has already is not touched.
#
#   docker.sh DIRECTORY PROGRAM…    programs whose shared libraries the image gets, not the programs themselves

directory=$1
shift
PATH=$PATH:/usr/sbin:/sbin

# Ctrl-C reaches this process too; the end of standard input follows it.
trap '' INT TERM HUP

cd "$directory" || exit 1

# Creates the image from `busybox`, and from the shared libraries of the programs that are not linked statically.
image() {
    mkdir -p root/bin root/tmp root/etc || return 1
    cp "$(command -v busybox)" root/bin/busybox || return 1
    for name in $(busybox --list); do
        [ "$name" = busybox ] || ln -s busybox "root/bin/$name" || return 1
    done
    # A set-uid program. Tests check that nobody gains rights with it.
    cp root/bin/busybox root/bin/su-busybox && chmod 4755 root/bin/su-busybox || return 1
    for program; do ldd "$program" 2>/dev/null; done | grep -o '/[^ ]*' | sort -u | while read -r library; do
        mkdir -p "root$(dirname "$library")" && cp -L "$library" "root$library" || return 1
    done
    echo 'root:x:0:0:root:/:/bin/sh' >root/etc/passwd
    tar -C root -c . | docker -H "unix://$directory/docker.sock" import - workspace-base:latest >/dev/null
}

dockerd --data-root "$directory/data" --exec-root "$directory/exec" --pidfile "$directory/pid" \
    --host "unix://$directory/docker.sock" --bridge none --iptables=false --ip6tables=false --ip-forward=false \
    --ip-masq=false --storage-driver "${WORKSPACE_TEST_DOCKER_STORAGE:-overlay2}" </dev/null >dockerd.log 2>&1 9>&- &
daemon=$!

stop() {
    kill "$daemon" 2>/dev/null
    tries=0
    while kill -0 "$daemon" 2>/dev/null && [ $tries -lt 150 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
    kill -9 "$daemon" 2>/dev/null
    wait "$daemon"
    # What the daemon left mounted would keep its directory.
    grep -o " $directory/[^ ]*" /proc/self/mounts | sort -r | xargs -r umount -l 2>/dev/null
    cd / && rm -rf "$directory"
}

tries=0
until docker -H "unix://$directory/docker.sock" version >/dev/null 2>&1; do
    tries=$((tries + 1))
    if [ $tries -gt 300 ] || ! kill -0 "$daemon" 2>/dev/null; then
        cat dockerd.log >&2
        stop
        exit 1
    fi
    sleep 0.1
done
image "$@" || {
    stop
    exit 1
}

echo ready
cat >/dev/null
docker -H "unix://$directory/docker.sock" ps -aq | xargs -r docker -H "unix://$directory/docker.sock" rm -f >/dev/null 2>&1
docker -H "unix://$directory/docker.sock" network prune --force >/dev/null 2>&1
stop
