//! Entry point of child processes. A test that needs a process of its own starts this test program again, with a role
//! in the environment.

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
