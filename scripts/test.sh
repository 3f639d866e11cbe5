#!/bin/sh
# Runs every test. With CI=true a test fails that lacks what it needs; otherwise it is skipped and listed.

. "$(dirname "$0")/lib.sh"

scripts/deps.sh test

# Tests that cannot run on this machine append a line each.
WORKSPACE_TEST_SKIPPED=$PWD/target/skipped-tests
export WORKSPACE_TEST_SKIPPED
mkdir -p target
rm -f "$WORKSPACE_TEST_SKIPPED"

list_skipped() {
    if [ ! -s "$WORKSPACE_TEST_SKIPPED" ]; then
        echo "no test was skipped"
        return
    fi
    sort -u "$WORKSPACE_TEST_SKIPPED" -o "$WORKSPACE_TEST_SKIPPED"
    echo "$(wc -l < "$WORKSPACE_TEST_SKIPPED") tests or parts of tests were skipped:"
    sed 's/^/  /' "$WORKSPACE_TEST_SKIPPED"
}

# `run_tests OPTION…` takes options that select packages and programs, and at most one filter of names.
run_tests() {
    if have_cargo nextest; then
        if [ -n "${WORKSPACE_TEST_FULL:-}" ]; then set -- --profile full "$@"; fi
        # Most tests wait for processes and disks more than they compute.
        cargo nextest run $locked --no-fail-fast --test-threads $(($(nproc) * 2)) "$@"
    else
        cargo test $locked --no-fail-fast "$@"
    fi
}

ORDINARY_USER_TESTS='binary(guest) | binary(sandboxes) | binary(service) | binary(providers) | binary(api) & test(/^real::/)'

# What depends on the rights of the user, once more without any. An ordinary user has run it already.
run_tests_as_ordinary_user() {
    [ "$(id -u)" = 0 ] || return 0
    runner=$PWD/crates/test-support/as-ordinary-user.sh
    if have_cargo nextest; then
        target=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
        export "CARGO_TARGET_${target}_RUNNER=$runner"
        run_tests --workspace --tests -E "$ORDINARY_USER_TESTS"
        unset "CARGO_TARGET_${target}_RUNNER"
    else
        for name in guest sandboxes service providers; do "$runner" "$(test_program $name)"; done
        "$runner" "$(test_program api)" real::
    fi
}

# `test_program NAME` prints the path of a test program. All of them are built: a part of them would need dependencies
# with other features, built again.
test_program() {
    program=$(cargo test $locked --workspace --tests --no-run 2>&1 |
        sed -n "s/.*Executable .*(\(.*\/deps\/$1-[0-9a-f]*\))\$/\1/p")
    [ -f "$program" ] || die "the test program $1 was not built"
    realpath "$program"
}

# Limits and quotas, as a kernel has them that is not this machine's.
run_on_other_kernel() {
    VM_SECONDS=${VM_SECONDS:-900} scripts/vm.sh sh scripts/vm/tests \
        "$(test_program sandboxes)" "$(test_program service)"
}

# The kernel's NFS client on an export of the embedded server.
run_kernel_nfs_client() {
    VM_SECONDS=${VM_SECONDS:-900} VM_MODULES=nfsv3 scripts/vm.sh sh scripts/vm/nfs-client \
        "$(realpath "$(target_directory)")/debug/examples/serve"
}

# `test_sdk DIRECTORY` runs the tests of an SDK against the server.
test_sdk() {
    programs=$(realpath "$(target_directory)")/debug
    WORKSPACE_SERVER=$programs/workspace-server WORKSPACE_AGENT=$programs/workspace-agent "$1/test.sh"
}

step "building the tests" cargo build $locked --workspace --all-targets
step "tests" run_tests --workspace --tests
step "tests as an ordinary user" run_tests_as_ordinary_user
# Without hardware that helps, every instruction is emulated.
if [ -n "${WORKSPACE_TEST_FULL:-}" ]; then step "tests on another kernel" run_on_other_kernel; fi
if [ -n "${WORKSPACE_TEST_FULL:-}" ]; then step "the kernel's NFS client" run_kernel_nfs_client; fi
step "the API against its description" scripts/schemathesis.sh
step "TypeScript SDK" test_sdk sdk-typescript
step "Python SDK" test_sdk sdk-python
step "Python module of the state engine" sdk-python-state/test.sh
step "documentation tests" cargo test $locked --workspace --doc
step "skipped tests" list_skipped
