//! A newer server works with an older guest: what was in the contract when it was frozen stays as it was.

use std::collections::BTreeSet;
use std::path::Path;

use prost::Message as _;
use prost_types::{DescriptorProto, FileDescriptorSet};
use workspace_agent_protocol::DESCRIPTORS;

/// Every field, value and method as a line that says all that travels.
fn facts(descriptors: &FileDescriptorSet) -> BTreeSet<String> {
    let mut facts = BTreeSet::new();
    for file in &descriptors.file {
        let package = file.package();
        for message in &file.message_type {
            message_facts(&format!("{package}.{}", message.name()), message, &mut facts);
        }
        for kind in &file.enum_type {
            for value in &kind.value {
                facts.insert(format!("{package}.{}.{} = {}", kind.name(), value.name(), value.number()));
            }
        }
        for service in &file.service {
            for method in &service.method {
                let streams = (method.client_streaming(), method.server_streaming());
                let (name, from, to) = (method.name(), method.input_type(), method.output_type());
                facts.insert(format!("{package}.{}/{name} {from} → {to} {streams:?}", service.name()));
            }
        }
    }
    facts
}

fn message_facts(name: &str, message: &DescriptorProto, facts: &mut BTreeSet<String>) {
    for field in &message.field {
        let (kind, label, of) = (field.r#type(), field.label(), field.type_name());
        let one_of = field.oneof_index.is_some();
        facts.insert(format!(
            "{name}.{} = {} {kind:?} {label:?} {of} {one_of}",
            field.name(),
            field.number()
        ));
    }
    for nested in &message.nested_type {
        message_facts(&format!("{name}.{}", nested.name()), nested, facts);
    }
}

#[test]
fn what_was_frozen_is_still_there() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto/frozen/agent-v1.txt");
    let descriptors = FileDescriptorSet::decode(DESCRIPTORS).unwrap();
    let now = facts(&descriptors);
    if std::env::var_os("WORKSPACE_TEST_WRITE_CORPUS").is_some() {
        let text: String = now.iter().map(|fact| format!("{fact}\n")).collect();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let frozen = std::fs::read_to_string(&path).unwrap();
    assert!(frozen.lines().count() > 50);
    let gone: Vec<&str> = frozen.lines().filter(|fact| !now.contains(*fact)).collect();
    assert!(gone.is_empty(), "guests that run would not understand the server any more: {gone:#?}");
    let new = now.len() - frozen.lines().count();
    assert_eq!(
        new, 0,
        "freeze what is new: WORKSPACE_TEST_WRITE_CORPUS=1 cargo test -p workspace-agent-protocol"
    );
}
