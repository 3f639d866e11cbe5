//! Operations of the API: each has a command, or a reason why it has none.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::support::TestDir;

/// Operations, by their id in the OpenAPI document, and a command that calls them.
const COMMANDS: &[(&str, &str)] = &[
    ("change_files", "files batch"),
    ("commit_sandbox", "sandbox commit"),
    ("complete_sandbox", "complete"),
    ("complete_snapshot", "project push"),
    ("complete_workspace", "project workspace complete"),
    ("connect_port", "port-forward"),
    ("connect_terminal", "shell"),
    ("create_key", "key create"),
    ("create_note", "note add"),
    ("create_preview", "sandbox url"),
    ("create_project", "project create"),
    ("create_sandbox", "sandbox create"),
    ("create_signed_url", "files url"),
    ("create_ticket", "terminal ticket"),
    ("create_token", "token create"),
    ("create_workspace", "project workspace create"),
    ("build_template", "template build"),
    ("close_terminal", "terminal rm"),
    ("command_output", "logs"),
    ("delete_project", "project rm"),
    ("delete_reference", "ref rm"),
    ("delete_sandbox", "sandbox rm"),
    ("delete_snapshot", "rm"),
    ("delete_workspace", "project workspace rm"),
    ("diff_project", "project diff"),
    ("diff_snapshots", "diff"),
    ("explain_policy", "policy explain"),
    ("extend_sandbox", "sandbox extend"),
    ("fork_sandbox", "sandbox fork"),
    ("get_changes", "sandbox changes"),
    ("get_command", "logs"),
    ("get_completion", "complete"),
    ("get_completion_file", "project refused"),
    ("get_episode_subtree", "episodes subtree"),
    ("get_policy", "policy show"),
    ("get_project", "project show"),
    ("get_project_archive", "project export"),
    ("get_project_file", "project export"),
    ("get_project_tree", "project export"),
    ("get_reference", "ref get"),
    ("get_review", "review show"),
    ("get_review_version", "review show"),
    ("get_sandbox", "sandbox get"),
    ("get_snapshot", "rm"),
    ("get_snapshot_archive", "export"),
    ("get_template", "template show"),
    ("get_workspace", "project workspace show"),
    ("get_workspace_changes", "project workspace changes"),
    ("health", "status"),
    ("import_project", "project import"),
    ("import_template", "template import"),
    ("kill_command", "kill"),
    ("label_sandbox", "sandbox label"),
    ("list_commands", "ps"),
    ("list_completions", "project refused"),
    ("list_events", "events"),
    ("list_files", "files ls"),
    ("list_keys", "key ls"),
    ("list_nfs_exports", "nfs ls"),
    ("list_notes", "note ls"),
    ("list_operations", "project log"),
    ("list_ports", "ports"),
    ("list_processes", "ps"),
    ("list_projects", "project ls"),
    ("list_references", "ref ls"),
    ("list_reviews", "review ls"),
    ("list_sandboxes", "ps"),
    ("list_searches", "episodes ls"),
    ("list_snapshots", "log"),
    ("list_templates", "template ls"),
    ("list_versions", "history"),
    ("list_workspaces", "project workspace ls"),
    ("me", "whoami"),
    ("open_terminal", "terminal create"),
    ("pause_sandbox", "sandbox pause"),
    ("read_file", "files cat"),
    ("ready", "status"),
    ("rebase_sandbox", "sandbox rebase"),
    ("rebase_workspace", "project workspace rebase"),
    ("remove_file", "files rm"),
    ("remove_template", "template rm"),
    ("resize_terminal", "shell"),
    ("resolve_review", "review resolve"),
    ("restore_sandbox", "sandbox restore"),
    ("resume_sandbox", "sandbox resume"),
    ("revoke_key", "key rm"),
    ("rollback_project", "rollback"),
    ("run_command", "exec"),
    ("sandbox_logs", "logs"),
    ("sandbox_metrics", "sandbox metrics"),
    ("sandbox_stats", "sandbox stats"),
    ("set_policy", "policy set"),
    ("set_reference", "ref set"),
    ("set_timeout", "sandbox timeout"),
    ("sync_project", "project sync"),
    ("update_project", "project set"),
    ("upload_snapshot", "sandbox create"),
    ("watch_files", "files watch"),
    ("write_file", "files put"),
    ("write_stdin", "exec"),
];

/// Operations without a command, by reason.
const WITHOUT_COMMAND: &[(&str, &[&str])] = &[
    ("for browsers and monitoring", &["server_info", "api_docs", "openapi", "metrics", "system_stats"]),
    (
        "searches are programs, which use an SDK; `workspace episode` records those of a store",
        &[
            "create_episode",
            "get_episode",
            "delete_episode",
            "get_best_episode",
            "list_episode_children",
            "get_episode_path",
        ],
    ),
    ("a server collects garbage by itself (`GC_INTERVAL`)", &["collect"]),
    ("`sandbox rm` removes any number, one by one, and reports each", &["delete_sandboxes"]),
    (
        "`export SNAPSHOT PATH --server URL` reads any part of a snapshot",
        &["get_snapshot_file", "get_snapshot_root", "get_snapshot_tree"],
    ),
    ("`project export PROJECT PATH` reads any part of a project", &["get_project_root"]),
    ("`project log` and `events --project` list changes of a project", &["list_project_events"]),
    ("`project log` has the snapshot of each change", &["list_project_snapshots"]),
    (
        "for programs that embed workspaces, with the id of an agent instead of a project",
        &["complete_workspace_of_agent", "get_workspace_path"],
    ),
];

/// Returns the ids of the operations in the OpenAPI document.
fn operations() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let document: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let items = document["paths"].as_object().unwrap().values();
    let operations = items.flat_map(|item| item.as_object().unwrap().values());
    operations.filter_map(|operation| operation["operationId"].as_str().map(str::to_owned)).collect()
}

#[test]
fn every_operation_has_a_command_or_a_reason_why_not() {
    let mut listed: BTreeMap<&str, usize> = BTreeMap::new();
    let without = WITHOUT_COMMAND.iter().flat_map(|(_, operations)| operations.iter().copied());
    for operation in COMMANDS.iter().map(|(operation, _)| *operation).chain(without) {
        *listed.entry(operation).or_default() += 1;
    }
    let twice: Vec<_> = listed.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "listed twice: {twice:?}");
    let listed: BTreeSet<String> = listed.into_keys().map(str::to_owned).collect();
    let operations = operations();
    let missing: Vec<_> = operations.difference(&listed).collect();
    let unknown: Vec<_> = listed.difference(&operations).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "missing: {missing:?}, not in the API: {unknown:?}");
}

#[test]
fn the_commands_of_operations_exist() {
    let place = TestDir::new();
    let commands: BTreeSet<&str> = COMMANDS.iter().map(|(_, command)| *command).collect();
    for command in commands {
        let mut words: Vec<&str> = command.split(' ').collect();
        words.push("--help");
        let help = place.ok(&words);
        assert!(help.contains(&format!("Usage: workspace {command} ")), "{command}: {help}");
    }
}
