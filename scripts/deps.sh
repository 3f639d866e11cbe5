#!/bin/sh
# Installs the Debian packages that building or testing needs and that are missing.
#
#   scripts/deps.sh build    a C compiler and make
#   scripts/deps.sh check    these, and Node and Python for the SDKs
#   scripts/deps.sh test     these, and what the tests run: FUSE, git, attr, busybox, PostgreSQL, openssl, Docker, runc,
#                            crun, passt, slirp4netns, Python, rsync, Chromium, libnfs, and what makes ext4, XFS
#                            and btrfs
#   scripts/deps.sh vm       what the virtual machine of scripts/vm.sh is made with

. "$(dirname "$0")/lib.sh"

missing=

# `need COMMAND PACKAGE…`
need() {
    command=$1
    shift
    have "$command" || missing="$missing $*"
}

# /usr/sbin is not on everyone's PATH, and some packages put their commands there.
PATH=$PATH:/usr/sbin:/sbin
# Debian keeps the programs of the PostgreSQL server in a directory per version.
for programs in /usr/lib/postgresql/*/bin; do
    PATH=$PATH:$programs
done

have cargo || die "no Rust toolchain found" "install one from https://rustup.rs"

need_sdk_tools() {
    need node nodejs
    need npm npm
    need python3 python3
    python3 -c "import ensurepip" 2>/dev/null || missing="$missing python3-venv"
}

need cc gcc libc6-dev
need make make
case ${1:-build} in
build) ;;
check) need_sdk_tools ;;
test)
    need_sdk_tools
    need fusermount3 fuse3
    need git git
    need setfattr attr
    need unshare util-linux
    need setpriv util-linux
    need perl perl-base
    need busybox busybox-static
    need initdb postgresql
    need openssl openssl
    need dockerd docker.io
    need iptables iptables
    need runc runc
    need ip iproute2
    need pasta passt
    need slirp4netns slirp4netns
    need crun crun
    need mkfs.ext4 e2fsprogs
    need mkfs.xfs xfsprogs
    need mkfs.btrfs btrfs-progs
    need rsync rsync
    need nfs-ls libnfs-utils
    [ -e /usr/include/nfsc/libnfs.h ] || missing="$missing libnfs-dev"
    if ! have chromium-browser && ! have google-chrome; then need chromium chromium; fi
    ;;
vm)
    need qemu-system-x86_64 qemu-system-x86
    need busybox busybox-static
    need cpio cpio
    need depmod kmod
    need mkfs.ext4 e2fsprogs
    need mkfs.xfs xfsprogs
    ;;
*) die "unknown set of packages \`$1\`" "build, check, test or vm" ;;
esac

[ -n "$missing" ] || exit 0

if ! have apt-get; then
    die "missing programs, by their Debian packages:$missing" "install them with your package manager"
elif [ "$(id -u)" -eq 0 ]; then
    as_root=
elif have sudo && sudo -n true 2>/dev/null; then
    as_root='sudo -n'
else
    die "missing packages:$missing" "sudo apt-get install$missing"
fi

say "installing$missing"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
# shellcheck disable=SC2086
$as_root apt-get install -y -qq --no-install-recommends $missing
