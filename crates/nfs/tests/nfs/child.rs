//! Roles of this test program as a child process.

use workspace_test_support::child::role;

/// Runs the role that the environment selects; does nothing if there is none.
#[test]
fn child_process_role() {
    let Some((role, _)) = role() else { return };
    match role.as_str() {
        "search-without-descriptors" => crate::search::search_without_descriptors(),
        other => panic!("there is no role `{other}`"),
    }
}
