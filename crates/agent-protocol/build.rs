//! Generates Rust code from `proto/` without `protoc`.

use std::error::Error;
use std::path::Path;

use prost::Message;

const PROTO: &str = "workspace/agent/v1/agent.proto";

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    println!("cargo::rerun-if-changed={}", root.display());
    let descriptors = protox::compile([PROTO], [&root])?;
    let out = std::env::var("OUT_DIR")?;
    let encoded = Path::new(&out).join("descriptors.binpb");
    std::fs::write(encoded, descriptors.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
