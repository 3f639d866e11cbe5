//! Roles of child processes: functions that this test program runs in place of its tests, when a test starts it again.

use workspace_test_support::child::role;

/// Runs the role that the environment selects; does nothing if there is none.
#[test]
fn child_process_role() {
    let Some((role, arguments)) = role() else { return };
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match role.as_str() {
        "read-earlier-heads" => crate::abandoned::read_earlier_heads(&arguments),
        "import-and-complete" => crate::abandoned::import_and_complete(&arguments),
        "delete-project" => crate::abandoned::delete_project(&arguments),
        "work" => crate::crash::work(&arguments),
        "land" => crate::servers::land(&arguments),
        "land-on-full-disk" => crate::disk_full::land_on_full_disk(&arguments),
        "follow-events" => crate::servers::follow_events(&arguments),
        other => panic!("there is no role `{other}`"),
    }
}
