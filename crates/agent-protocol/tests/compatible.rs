//! Tests of the protocol's description: the generated code matches it, and a newer server supports older
//! guests, so the frozen part must not change.

use std::collections::BTreeSet;
use std::path::Path;

use prost_types::{DescriptorProto, FileDescriptorSet};

/// Returns a line for each field, enum value and method, with everything that is part of the wire format. Enums nested
/// in messages are left out; the protocol has none.
fn wire_facts(descriptors: &FileDescriptorSet) -> BTreeSet<String> {
    let mut wire_facts = BTreeSet::new();
    for file in &descriptors.file {
        let package = file.package();
        for message in &file.message_type {
            message_facts(&format!("{package}.{}", message.name()), message, &mut wire_facts);
        }
        for kind in &file.enum_type {
            for value in &kind.value {
                wire_facts.insert(format!("{package}.{}.{} = {}", kind.name(), value.name(), value.number()));
            }
        }
        for service in &file.service {
            for method in &service.method {
                let streams = (method.client_streaming(), method.server_streaming());
                let (name, from, to) = (method.name(), method.input_type(), method.output_type());
                wire_facts.insert(format!("{package}.{}/{name} {from} → {to} {streams:?}", service.name()));
            }
        }
    }
    wire_facts
}

fn message_facts(name: &str, message: &DescriptorProto, wire_facts: &mut BTreeSet<String>) {
    for field in &message.field {
        let (kind, label, of) = (field.r#type(), field.label(), field.type_name());
        let one_of = field.oneof_index.is_some();
        wire_facts.insert(format!(
            "{name}.{} = {} {kind:?} {label:?} {of} {one_of}",
            field.name(),
            field.number()
        ));
    }
    for nested in &message.nested_type {
        message_facts(&format!("{name}.{}", nested.name()), nested, wire_facts);
    }
}

/// Compiles the description of the protocol, without `protoc`.
fn descriptors() -> FileDescriptorSet {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    protox::compile(["workspace/agent/v1/agent.proto"], [&root]).unwrap()
}

#[test]
fn generated_code_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/generated/workspace.agent.v1.rs");
    let fresh = tempfile::tempdir().unwrap();
    // Content of files is not copied when a frame is decoded.
    let content = ["IoFrame.data", "TreeEntry.data", "IoReply.content", "WriteFile.content"];
    let content = content.map(|field| format!(".workspace.agent.v1.{field}"));
    let config = content.iter().fold(tonic_prost_build::configure(), tonic_prost_build::Builder::bytes);
    config.out_dir(fresh.path()).compile_fds(descriptors()).unwrap();
    let fresh = std::fs::read_to_string(fresh.path().join("workspace.agent.v1.rs")).unwrap();
    if std::env::var_os("WORKSPACE_TEST_WRITE_GENERATED").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let current = std::fs::read_to_string(&path).unwrap();
    assert!(current == fresh, "{} is out of date: make generate", path.display());
}

#[test]
fn frozen_protocol_is_unchanged() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto/frozen/agent-v1.txt");
    let now = wire_facts(&descriptors());
    if std::env::var_os("WORKSPACE_TEST_WRITE_CORPUS").is_some() {
        let text: String = now.iter().map(|fact| format!("{fact}\n")).collect();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let frozen = std::fs::read_to_string(&path).unwrap();
    assert!(frozen.lines().count() > 50);
    let gone: Vec<&str> = frozen.lines().filter(|fact| !now.contains(*fact)).collect();
    assert!(gone.is_empty(), "running guests could not talk to the server any more: {gone:#?}");
    let new = now.len() - frozen.lines().count();
    assert_eq!(
        new, 0,
        "freeze new fields: WORKSPACE_TEST_WRITE_CORPUS=1 cargo test -p workspace-agent-protocol"
    );
}
