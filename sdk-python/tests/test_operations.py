"""Every operation of the API is reachable by a method."""

from __future__ import annotations

import inspect
import json
from typing import Dict

import pytest

import workspace_sdk
import workspace_sdk.sync
from server import REPOSITORY

# Names of methods from the client, or of a sandbox.
METHODS: Dict[str, str] = {
    "api_docs": "system.docs",
    "build_template": "templates.build",
    "change_files": "sandbox.files.batch",
    "close_terminal": "sandbox.pty.kill",
    "collect": "system.gc",
    "command_output": "sandbox.process.output",
    "commit_sandbox": "sandbox.commit",
    "complete_sandbox": "sandbox.complete",
    "complete_snapshot": "projects.complete_snapshot",
    "complete_workspace": "workspaces.complete",
    "complete_workspace_of_agent": "workspaces.complete_only",
    "connect_port": "sandbox.ports.connect",
    "connect_terminal": "sandbox.pty.attach",
    "create_episode": "episodes.create",
    "create_key": "keys.create",
    "create_note": "sandbox.notes.create",
    "create_preview": "sandbox.ports.preview",
    "create_project": "projects.create",
    "create_sandbox": "client.sandbox.create",
    "create_signed_url": "sandbox.files.signed_url",
    "create_ticket": "sandbox.pty.ticket",
    "create_token": "sandbox.create_token",
    "create_workspace": "workspaces.create",
    "delete_episode": "episodes.delete",
    "delete_project": "projects.delete",
    "delete_reference": "references.delete",
    "delete_sandbox": "sandbox.delete",
    "delete_sandboxes": "client.sandbox.batch_delete",
    "delete_snapshot": "snapshots.delete",
    "delete_workspace": "workspaces.delete",
    "diff_project": "projects.diff",
    "diff_snapshots": "snapshots.diff",
    "explain_policy": "policies.explain",
    "extend_sandbox": "sandbox.extend",
    "fork_sandbox": "sandbox.fork",
    "get_best_episode": "episodes.best",
    "get_changes": "sandbox.changes",
    "get_command": "sandbox.process.get",
    "get_completion": "projects.completion",
    "get_completion_file": "projects.read_completed",
    "get_episode": "episodes.get",
    "get_episode_path": "episodes.path",
    "get_episode_subtree": "episodes.subtree",
    "get_policy": "policies.get",
    "get_project": "projects.get",
    "get_project_archive": "projects.archive",
    "get_project_file": "projects.read_bytes",
    "get_project_root": "projects.tree",
    "get_project_tree": "projects.tree",
    "get_reference": "references.get",
    "get_review": "reviews.get",
    "get_review_version": "reviews.version",
    "get_sandbox": "client.sandbox.get",
    "get_snapshot": "snapshots.get",
    "get_snapshot_archive": "snapshots.archive",
    "get_snapshot_file": "snapshots.read_bytes",
    "get_snapshot_root": "snapshots.tree",
    "get_snapshot_tree": "snapshots.tree",
    "get_template": "templates.get",
    "get_workspace": "workspaces.get",
    "get_workspace_changes": "workspaces.changes",
    "get_workspace_path": "workspaces.own",
    "health": "system.health",
    "import_project": "projects.import_archive",
    "import_template": "templates.import_archive",
    "kill_command": "sandbox.process.kill",
    "label_sandbox": "sandbox.set_labels",
    "list_commands": "sandbox.process.list",
    "list_completions": "projects.completions",
    "list_episode_children": "episodes.children",
    "list_events": "events.follow",
    "list_files": "sandbox.files.list",
    "list_keys": "keys.list",
    "list_nfs_exports": "system.nfs_exports",
    "list_notes": "sandbox.notes.list",
    "list_operations": "projects.operations",
    "list_ports": "sandbox.ports.list",
    "list_processes": "sandbox.process.processes",
    "list_project_events": "projects.follow_events",
    "list_project_snapshots": "projects.snapshots",
    "list_projects": "projects.list",
    "list_references": "references.list",
    "list_reviews": "reviews.list",
    "list_sandboxes": "client.sandbox.list",
    "list_searches": "episodes.list",
    "list_snapshots": "snapshots.list",
    "list_templates": "templates.list",
    "list_versions": "projects.versions",
    "list_workspaces": "workspaces.list",
    "me": "keys.me",
    "metrics": "system.metrics",
    "open_terminal": "sandbox.pty.create",
    "openapi": "system.openapi",
    "pause_sandbox": "sandbox.pause",
    "read_file": "sandbox.files.read_bytes",
    "ready": "system.ready",
    "rebase_sandbox": "sandbox.rebase",
    "rebase_workspace": "workspaces.rebase",
    "remove_file": "sandbox.files.remove",
    "remove_template": "templates.delete",
    "resize_terminal": "sandbox.pty.resize",
    "resolve_review": "reviews.resolve",
    "restore_sandbox": "sandbox.restore",
    "resume_sandbox": "sandbox.resume",
    "revoke_key": "keys.revoke",
    "rollback_project": "projects.rollback",
    "run_command": "sandbox.process.run",
    "sandbox_logs": "sandbox.logs",
    "sandbox_metrics": "sandbox.metrics",
    "sandbox_stats": "sandbox.stats",
    "server_info": "system.info",
    "set_policy": "policies.set",
    "set_reference": "references.set",
    "set_timeout": "sandbox.set_timeout",
    "sync_project": "workspaces.sync",
    "system_stats": "system.stats",
    "update_project": "projects.update",
    "upload_snapshot": "snapshots.upload",
    "watch_files": "sandbox.files.watch",
    "write_file": "sandbox.files.write",
    "write_stdin": "sandbox.process.write_stdin",
}


def test_every_operation_has_a_method() -> None:
    description = json.loads((REPOSITORY / "docs" / "openapi.json").read_text(encoding="utf-8"))
    operations = {operation["operationId"] for path in description["paths"].values() for operation in path.values()}
    assert operations == set(METHODS)


@pytest.mark.parametrize("module", [workspace_sdk, workspace_sdk.sync], ids=["async", "sync"])
def test_all_methods_exist(module: object) -> None:
    client = module.WorkspaceClient("http://127.0.0.1:1", "some-key")  # type: ignore[attr-defined]
    info = workspace_sdk.types.SandboxInfo(
        **dict.fromkeys(
            (
                "agent_connected",
                "created_at",
                "expires_at",
                "labels",
                "network",
                "not_applied",
                "owner",
                "resources",
                "runtime",
                "state",
                "template",
            ),
            None,
        ),
        id="sbx-none",
    )  # type: ignore[arg-type]
    sandbox = module.Sandbox(client.sandbox, info)  # type: ignore[attr-defined]
    for name in METHODS.values():
        first, *rest = name.split(".")
        value = {"client": client, "sandbox": sandbox}.get(first) or getattr(client, first)
        for attribute in rest:
            value = getattr(value, attribute)
        assert callable(value), name


def test_both_sdks_have_the_same_signatures() -> None:
    for name in workspace_sdk.__all__:
        value, twin = getattr(workspace_sdk, name), getattr(workspace_sdk.sync, name)
        if not inspect.isclass(value):
            continue
        for attribute, function in inspect.getmembers(value, inspect.isfunction):
            if not attribute.startswith("_"):
                expected = list(inspect.signature(function).parameters)
                assert list(inspect.signature(getattr(twin, attribute)).parameters) == expected, (name, attribute)
