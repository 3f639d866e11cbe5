"""Every operation of the API is reachable by a method, and called by a test."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any, Dict, List, Set

import pytest

import workspace_sdk
import workspace_sdk.sync
from server import REPOSITORY, TestServer
from workspace_sdk.sync import WorkspaceClient

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


# Parameters of the API that methods do not have: other methods do, or the SDK sets them.
WITHOUT_PARAMETER: Dict[str, Set[str]] = {
    "connect_terminal": {"binary", "ticket"},
    "diff_project": {"patch"},
    "diff_snapshots": {"patch"},
    "get_changes": {"patch"},
    "list_events": {"limit"},
    "list_project_events": {"limit"},
    "read_file": {"archive"},
    "run_command": {"argv", "background", "kill_on_disconnect", "overflow", "stream"},
    "set_policy": {"if_match"},
    "upload_snapshot": {"label"},
    "write_file": {"archive"},
    "write_stdin": {"data_base64"},
}
HEADERS = {"Idempotency-Key": "idempotency_key", "If-Match": "if_match", "X-Agent": "agent"}
DESCRIPTION: Dict[str, Any] = json.loads((REPOSITORY / "docs" / "openapi.json").read_text(encoding="utf-8"))


def test_every_operation_has_a_method() -> None:
    operations = {operation["operationId"] for path in DESCRIPTION["paths"].values() for operation in path.values()}
    assert operations == set(METHODS)


def properties(schema: Dict[str, Any]) -> Set[str]:
    if "$ref" in schema:
        return properties(DESCRIPTION["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]])
    names = set(schema.get("properties", {}))
    return names.union(*(properties(part) for key in ("oneOf", "allOf") for part in schema.get(key, [])))


def test_methods_have_the_parameters_of_their_operations() -> None:
    for operation in (operation for path in DESCRIPTION["paths"].values() for operation in path.values()):
        name = operation["operationId"]
        parameters = inspect.signature(method_of(workspace_sdk, METHODS[name])).parameters
        if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()):
            continue
        given = operation.get("parameters", [])
        wire = {parameter["name"] for parameter in given if parameter["in"] == "query"}
        content = operation.get("requestBody", {}).get("content", {})
        wire |= properties(content.get("application/json", {}).get("schema", {}))
        wire |= {HEADERS[parameter["name"]] for parameter in given if parameter["name"] in HEADERS}
        expected = {re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", field).lower() for field in wire}
        expected = {"from_" if field == "from" else field for field in expected}
        assert expected - set(parameters) == WITHOUT_PARAMETER.get(name, set()), name


def uncalled_operations(description: Dict[str, Any], metrics: str) -> List[str]:
    """Returns the operations that no request has called with success, by the metrics of the server."""
    called = {
        endpoint.replace("{*", "{")
        for endpoint, status in re.findall(
            r'^api_request_total\{endpoint="([^"]+)",status="(\d+)"\} [1-9]', metrics, re.M
        )
        if int(status) < 400
    }
    operations = {f"{method.upper()} {path}" for path, methods in description["paths"].items() for method in methods}
    return sorted(operations - called)


def test_an_operation_that_no_request_has_called_is_found() -> None:
    paths = {"/api/v1/a/{id}": {"get": {}, "delete": {}}, "/api/v1/b/{path}": {"put": {}}, "/c": {"get": {}}}
    metrics = (
        'api_request_total{endpoint="GET /api/v1/a/{id}",status="200"} 12\n'
        'api_request_total{endpoint="DELETE /api/v1/a/{id}",status="404"} 1\n'
        'api_request_total{endpoint="PUT /api/v1/b/{*path}",status="204"} 1\n'
        'api_request_total{endpoint="GET /c",status="200"} 0\n'
    )
    assert uncalled_operations({"paths": paths}, metrics) == ["DELETE /api/v1/a/{id}", "GET /c"]


# Runs last, and only with all other tests: see `conftest.py`.
def test_every_operation_was_called_by_a_test(server: TestServer) -> None:
    with WorkspaceClient(server.url, server.key) as client:
        uncalled = uncalled_operations(DESCRIPTION, client.system.metrics())
    assert uncalled == [], "add steps to sdk-scenarios/scenarios.json"


def method_of(module: Any, name: str) -> Any:
    """Returns the method with a name of `METHODS`."""
    client = module.WorkspaceClient("http://127.0.0.1:1", "some-key")
    names = [name for name, _, _, _ in workspace_sdk.types.SandboxInfo._wire]
    info = workspace_sdk.types.SandboxInfo(**{**dict.fromkeys(names), "id": "sbx-none"})  # type: ignore[arg-type]
    first, *rest = name.split(".")
    value = {"client": client, "sandbox": module.Sandbox(client.sandbox, info)}.get(first) or getattr(client, first)
    for attribute in rest:
        value = getattr(value, attribute)
    return value


@pytest.mark.parametrize("module", [workspace_sdk, workspace_sdk.sync], ids=["async", "sync"])
def test_all_methods_exist(module: object) -> None:
    for name in METHODS.values():
        assert callable(method_of(module, name)), name


def test_both_sdks_have_the_same_signatures() -> None:
    for name in workspace_sdk.__all__:
        value, twin = getattr(workspace_sdk, name), getattr(workspace_sdk.sync, name)
        if not inspect.isclass(value):
            continue
        for attribute, function in inspect.getmembers(value, inspect.isfunction):
            if not attribute.startswith("_"):
                expected = list(inspect.signature(function).parameters)
                assert list(inspect.signature(getattr(twin, attribute)).parameters) == expected, (name, attribute)
