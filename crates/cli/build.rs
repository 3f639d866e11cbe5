//! Links the command so that it starts as quickly as git does: git starts its merge driver for every file.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).as_deref() == Ok(value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        // A program that can lie anywhere has to be told where it lies: thirty thousand places are written at each start. Stack,
        // heap and libraries still lie anywhere.
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
