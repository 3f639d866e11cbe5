//! Tests of projects (files that many agents share) with a real catalog and store. Those that depend on the database run
//! on SQLite and on PostgreSQL.
//!
//! Helpers: `fixture` (a project), `database` (a database of one of the two kinds), `server`, `child` (roles of child
//! processes) and `crash_check` (checks after a server was killed).

mod abandoned;
mod agent_views;
mod child;
mod completions;
mod crash;
mod crash_check;
mod database;
mod disk_full;
mod fixture;
mod hidden_names;
mod history;
mod matrix;
mod model;
mod reverts;
mod reviews;
mod server;
mod servers;

/// Declares two tests for each function: one with its databases in SQLite, and one with them in PostgreSQL. The string is
/// the kind of the runtime.
macro_rules! on_both_databases {
    ($($flavor:literal $module:ident: $($test:ident)*;)*) => {
        mod sqlite {
            $($(
                #[tokio::test(flavor = $flavor)]
                async fn $test() {
                    crate::$module::$test(crate::database::DatabaseKind::Sqlite).await;
                }
            )*)*
        }

        mod postgresql {
            $($(
                #[tokio::test(flavor = $flavor)]
                async fn $test() {
                    if workspace_test_support::PostgresDatabase::is_available() {
                        crate::$module::$test(crate::database::DatabaseKind::Postgres).await;
                    }
                }
            )*)*
        }
    };
}

on_both_databases! {
    "current_thread" agent_views:
        change_numbers_of_an_agent_stay_correct_when_requests_are_dropped
        a_file_keeps_its_id_if_it_has_more_versions_than_are_returned;
    "current_thread" completions:
        changes_of_many_agents_are_all_merged
        lines_are_merged_and_counters_are_exact
        a_conflict_waits_for_a_review_and_other_changes_are_merged
        the_policy_hides_files_and_refuses_changes
        a_repeated_completion_lands_once
        two_servers_land_each_completion_exactly_once
        a_completion_that_cannot_be_merged_does_not_delay_others
        work_on_an_empty_project_lands
        a_rename_by_another_agent_does_not_move_a_change_to_a_protected_path
        a_git_repository_stays_in_its_workspace
        a_push_with_the_id_of_other_work_fails
        the_last_writer_is_the_agent_that_completed_last_regardless_of_file_times
        the_agent_with_the_highest_priority_wins_in_any_order_of_completions
        the_lease_of_a_project_is_released_if_it_cannot_be_renewed;
    "current_thread" hidden_names:
        a_file_renamed_to_a_hidden_directory_keeps_its_old_name
        a_directory_with_a_hidden_entry_is_not_replaced_by_a_file
        files_renamed_below_a_hidden_file_keep_their_old_names;
    "current_thread" history:
        a_renamed_file_keeps_its_id_and_versions
        a_rollback_is_a_new_version_with_old_content
        a_rollback_of_an_empty_project_changes_nothing
        an_import_with_another_expected_sequence_fails
        a_large_import_has_a_version_of_every_file
        snapshots_of_the_history_cannot_be_removed
        a_deleted_project_leaves_no_references
        project_names_are_unique_per_owner_and_validated;
    "current_thread" matrix:
        each_access_level_allows_its_changes_on_every_path
        the_policy_at_the_time_of_the_merge_decides
        no_change_reaches_a_hidden_directory
        a_rename_of_a_parent_moves_only_entries_that_may_be_moved;
    "current_thread" model:
        random_histories_are_those_of_a_plain_model;
    "current_thread" reverts:
        exactly_the_refused_paths_are_reverted_and_no_later_change_is_lost
        several_completions_are_reverted_to_the_entry_from_before_the_first
        a_path_that_a_later_policy_allows_is_not_reverted
        renames_and_changes_of_type_are_reverted_whole
        entries_in_places_that_were_changed_again_are_left_alone;
    "current_thread" reviews:
        a_review_shows_all_versions_and_their_causes
        each_choice_is_applied_to_the_head_with_the_reviewer_as_author
        a_strategy_merges_with_the_present_head
        of_two_concurrent_decisions_one_fails_with_the_name_of_the_other_reviewer
        taking_the_mode_of_the_agent_keeps_the_time_of_the_file
        a_decision_about_the_mode_or_the_extended_attributes_leaves_the_other
        a_directory_in_the_head_cannot_be_replaced_by_their_file
        a_change_of_the_settings_leaves_a_concurrent_rename
        the_first_file_of_an_emptied_project_leaves_the_mode_of_its_root
        concurrent_decisions_by_two_servers_are_all_recorded
        a_changed_path_needs_the_version_that_the_reviewer_saw
        decisions_fail_if_the_path_is_a_directory_or_a_parent_is_none
        the_head_keeps_a_removal_until_the_review_is_resolved
        a_critical_addition_to_an_empty_project_waits_for_a_review
        the_policy_names_the_reviewers
        overdue_reviews_are_escalated_and_then_expire_once
        reviews_that_always_fail_do_not_keep_later_ones_from_expiring
        the_daemon_expires_reviews
        a_decision_that_is_dropped_before_its_transaction_leaves_the_review_open
        snapshots_of_a_review_are_kept_as_long_as_the_project;
    "multi_thread" abandoned:
        views_of_earlier_heads_do_not_outlive_their_server
        a_view_has_the_same_snapshot_on_every_server_and_after_a_restart
        snapshots_of_a_stopped_server_are_not_removed
        a_large_import_onto_a_head_that_moved_leaves_no_snapshot
        snapshots_of_a_killed_server_are_removed_unless_it_recorded_them
        a_deleted_project_leaves_no_snapshots_if_another_server_removes_abandoned_ones_meanwhile;
    "multi_thread" crash:
        after_a_kill_at_each_failpoint_acknowledged_work_is_recorded_once
        after_a_kill_at_any_moment_acknowledged_work_is_recorded_once;
    "multi_thread" servers:
        two_processes_change_one_project_and_readers_miss_no_event
        a_project_deleted_before_its_new_head_has_a_reference_leaves_no_references
        a_completion_that_comes_during_a_merge_is_merged_by_the_same_attempt
        a_client_that_waits_is_told_of_a_merge_by_another_server
        a_merge_wakes_readers_of_events_after_its_events_are_visible
        concurrent_imports_by_several_servers_are_all_recorded;
}
