#!/bin/sh
# Everything that can be said about the source without running the product.

. "$(dirname "$0")/lib.sh"

scripts/deps.sh check

shell_syntax() {
    for script in $(find scripts bench .ci -type f -not -path 'bench/data/*') sdk-*/*.sh; do
        case $(head -n 1 "$script") in
        '#!/bin/sh'*) sh -n "$script" ;;
        '#!'*bash*) bash -n "$script" ;;
        esac
    done
    sh -n scripts/lib.sh
    sh -n scripts/tour-lib.sh
}

documentation() {
    RUSTDOCFLAGS='-D warnings' cargo doc $locked --workspace --no-deps
}

outside_crates() {
    # Advisories need a database from the network: `cargo deny check advisories`, by hand.
    if have_cargo deny; then
        cargo deny check licenses bans sources
    else
        echo "cargo-deny is not installed: licences and sources were checked from the manifests"
    fi
}

step "format" cargo fmt --all --check
step "shell syntax" shell_syntax
step "lints" cargo clippy $locked --workspace --all-targets -- -D warnings
step "macOS type check" scripts/macos.sh
step "documentation" documentation
step "documents" docs/check.py
# One set of features for everything: `--workspace` with a test's name builds no crate twice.
step "dependency directions, licences" cargo test $locked --workspace --test repository
step "cargo-deny" outside_crates
step "generated files" scripts/generate.sh --check
step "TypeScript SDK" sdk-typescript/check.sh
step "Python SDK" sdk-python/check.sh
step "Python module of the state engine" sdk-python-state/check.sh
