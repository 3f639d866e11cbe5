#!/bin/sh
# Runs a program on another kernel, Debian's in QEMU, as the superuser:
#
#   scripts/vm.sh PROGRAM ARGS…
#
# It finds the files of this machine (what it changes there is forgotten), cgroups of the second version and no
# others, an ext4 with project quotas at /data, where temporary files go, an XFS with the same at /data/xfs, and no network.
# VM_MODULES names more modules of the kernel, such as `nfsv3` for `scripts/vm/nfs-client`.
# It is run at the root of the repository, and its exit code is this script's. VM_SECONDS (240) is how long all of it may
# take.

. "$(dirname "$0")/lib.sh"

[ $# -gt 0 ] || die "no program to run" "scripts/vm.sh PROGRAM ARGS…"
[ "$(uname -m)" = x86_64 ] || die "the virtual machine is for x86_64 only"
scripts/deps.sh vm
PATH=$PATH:/usr/sbin:/sbin

cache=$(target_directory)/vm
mkdir -p "$cache"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Takes the kernel out of Debian's package, once. Nothing is installed.
fetch_kernel() {
    [ ! -e "$cache/kernel/complete" ] || return 0
    package=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p')
    [ -n "$package" ] || die "no package of Debian's kernel is known" "apt-get update"
    rm -rf "$cache/kernel"
    mkdir "$cache/kernel"
    (cd "$work" && apt-get download -qq -o APT::Sandbox::User=root "$package") || die "cannot download $package" "apt-get update"
    dpkg-deb -x "$work/$package"_*.deb "$cache/kernel"
    depmod -b "$cache/kernel" "${package#linux-image-}"
    rm "$work/$package"_*.deb
    touch "$cache/kernel/complete"
}

# The modules of the first root, in the order in which they are to be loaded.
modules() {
    for module in virtio_pci virtio_blk 9p 9pnet_virtio overlay ext4 quota_v2 xfs ${VM_MODULES:-}; do
        modprobe -d "$cache/kernel" -S "$version" --show-depends "$module"
    done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++'
}

# `quote WORD…` as a shell reads it.
quote() {
    for word; do
        printf "'%s' " "$(printf %s "$word" | sed "s/'/'\\\\''/g")"
    done
}

make_first_root() {
    root=$work/root
    mkdir -p "$root/bin" "$root/modules"
    cp "$(command -v busybox)" "$root/bin/busybox"
    cp scripts/vm/init "$root/init"
    cp scripts/vm/run "$root/run"
    chmod +x "$root/init" "$root/run"
    modules | while read -r module; do
        cp "$module" "$root/modules/"
        basename "$module" >>"$root/modules/order"
    done
    printf 'cd %s || exit 1\n%s\n' "$(quote "$PWD")" "$(quote "$@")" >"$root/command"
    (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/first-root"
}

make_disks() {
    truncate -s 512M "$work/ext4" "$work/xfs"
    mkfs.ext4 -q -O quota,project -E quotatype=prjquota "$work/ext4"
    mkfs.xfs -q "$work/xfs"
}

# Some machines have the device and cannot use it.
accelerator() {
    if [ -w /dev/kvm ] && grep -qwE 'vmx|svm' /proc/cpuinfo; then echo kvm; else echo tcg; fi
}

boot() {
    timeout "${VM_SECONDS:-240}" qemu-system-x86_64 -accel "$(accelerator)" -cpu max -smp 2 -m 2G \
        -nodefaults -no-user-config -display none -no-reboot \
        -kernel "$cache/kernel/boot/vmlinuz-$version" -initrd "$work/first-root" \
        -append "console=ttyS0 quiet panic=-1 cgroup_no_v1=all" \
        -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
        -drive "file=$work/ext4,format=raw,if=virtio,cache=unsafe" \
        -drive "file=$work/xfs,format=raw,if=virtio,cache=unsafe" \
        -serial stdio -serial "file:$work/code" </dev/null | tr -d '\r'
}

fetch_kernel
version=$(ls "$cache/kernel/lib/modules")
make_first_root "$@"
make_disks
boot
code=$(tr -dc 0-9 <"$work/code")
[ -n "$code" ] || die "the virtual machine ended before the program did" "VM_SECONDS says how long it may take"
echo "vm: exit code $code"
exit "$code"
