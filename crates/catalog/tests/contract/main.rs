//! Contract tests of the catalog. Every case in `cases` runs on SQLite and on PostgreSQL.

mod cases;
mod sqlite_only;
mod test_database;

use test_database::TestDatabase;

/// Declares a test per case and database. Every test has a database of its own; those on PostgreSQL share a server.
macro_rules! contract {
    ($($module:ident: $($case:ident)*;)*) => {
        mod sqlite {
            $($(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    crate::cases::$module::$case(crate::TestDatabase::sqlite()).await;
                }
            )*)*
        }

        mod postgresql {
            $($(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    if workspace_test_support::PostgresDatabase::is_available() {
                        crate::cases::$module::$case(crate::TestDatabase::postgres()).await;
                    }
                }
            )*)*
        }
    };
}

contract! {
    agent_workspaces:
        agent_has_one_workspace_per_project
        agent_workspace_is_inserted_once_by_concurrent_servers
        agent_workspaces_of_an_owner_are_limited
        agent_workspace_changes_state_only_from_the_expected_one
        agent_workspaces_are_listed_by_agent_and_found_by_id
        project_with_agent_workspaces_is_not_deleted;
    sandboxes:
        inserted_sandbox_is_read_back
        duplicate_id_is_rejected
        sandboxes_of_other_owners_are_not_found
        pages_list_every_sandbox_once_newest_first
        cursor_neither_repeats_nor_skips
        filters_restrict_lists
        name_prefix_is_literal
        find_named_returns_the_newest_sandbox
        unique_name_is_given_once_under_concurrency
        label_filters_are_conjunctive
        expired_sandboxes_are_listed
        delete_removes_commands_and_labels
        sandboxes_are_counted_by_state
        servers_are_looked_up_in_bulk_by_owner
        queries_are_limited_to_the_server;
    changes:
        only_allowed_transitions_succeed
        change_keeps_unset_fields
        concurrent_changes_of_one_version_conflict
        changing_a_missing_sandbox_fails
        change_and_event_are_atomic
        change_is_rolled_back_if_its_event_fails;
    events:
        events_are_read_in_order_from_any_sequence
        reader_sees_every_event_of_concurrent_writers
        deleting_events_keeps_the_sequence
        many_old_events_are_deleted_in_batches
        events_per_sandbox_are_limited
        events_per_owner_are_limited
        owner_reads_only_its_own_events
        filters_restrict_events
        reader_behind_deleted_events_is_told
        insertions_wake_subscribers
        insertions_of_other_processes_wake_subscribers
        no_event_of_a_transaction_is_skipped_or_moved
        a_long_transaction_holds_up_no_other_and_its_events_come_later
        limits_hold_for_events_of_transactions
        numbers_of_an_earlier_version_go_on
        events_of_an_earlier_version_are_for_admins;
    keys:
        key_is_found_by_hash_until_revoked
        concurrent_revocations_leave_an_admin_key
        key_is_found_by_id_until_revoked
        key_keeps_its_binding
        keys_are_listed_by_owner
        hashes_are_unique_and_validated;
    secrets:
        first_secret_is_kept
        concurrent_servers_share_one_secret;
    template_steps:
        first_result_of_a_step_is_kept
        old_results_of_steps_are_pruned;
    pauses:
        paused_sandboxes_are_listed_and_counted_as_such
        only_a_sandbox_paused_on_disk_can_be_resumed
        a_pause_in_memory_ends_with_its_processes;
    commands:
        command_ends_once
        command_needs_an_existing_sandbox
        command_is_finished_only_by_its_sandbox
        repeated_request_starts_one_command
        concurrent_requests_start_one_command
        arguments_are_stored_unless_they_are_long
        commands_are_listed_by_tag
        commands_are_listed_newest_first
        long_commands_are_truncated
        concurrent_writes_get_their_own_results
        only_ended_commands_are_deleted;
    idempotency:
        repeated_request_returns_the_first_sandbox
        concurrent_requests_create_one_sandbox
        key_reuse_for_another_request_is_rejected
        released_claim_can_be_repeated
        old_claims_are_deleted;
    snapshots:
        snapshot_belongs_to_its_owner
        snapshots_of_agents_can_be_read_by_the_owner_behind_them
        new_owner_of_a_snapshot_gets_one_event
        snapshots_are_listed_newest_first_in_pages
        ids_are_paginated_by_id_and_offset
        removing_the_last_owner_is_reported
        concurrent_removals_report_one_last_owner
        snapshot_bytes_count_until_measured
        snapshots_that_only_a_project_keeps_count_for_its_owner
        snapshots_are_found_by_the_sandbox_that_made_them;
    episodes:
        episode_usage_is_counted_per_owner
        episode_limit_holds_under_concurrency
        episodes_are_removed_by_server
        migration_counts_existing_episodes
        adding_an_episode_does_not_recount
        usage_is_exact_under_concurrency;
    lineage:
        sandboxes_are_filtered_by_project_and_agent
        notes_get_the_next_snapshot_and_live_as_long
        notes_count_until_they_are_deleted
        notes_are_listed_in_pages_of_limited_size
        exit_and_trace_are_recorded_together
        an_exit_is_not_recorded_without_its_trace_when_many_commands_end
        old_traces_are_found_until_they_are_kept
        searches_are_listed_with_their_steps;
    projects:
        project_is_found_by_id_and_by_name
        projects_of_an_owner_are_limited
        projects_are_listed_in_pages
        update_keeps_unset_fields
        project_with_queued_completions_is_not_deleted
        interrupted_deletion_is_finished
        policy_is_set_by_compare_and_set
        operations_are_filtered_and_paged;
    advances:
        advance_records_every_step
        advance_from_another_head_changes_nothing
        advance_under_another_policy_changes_nothing
        completion_lands_once
        contradictory_advances_are_rejected
        concurrent_advances_land_every_completion_once
        one_advance_lands_many_completions;
    file_versions:
        renamed_file_keeps_its_id
        any_path_round_trips
        staged_versions_count_when_the_head_moves
        new_attempt_replaces_staged_versions;
    completions:
        completion_is_inserted_once
        concurrent_insertions_make_one_completion
        concurrent_insertions_get_their_own_results
        newest_merged_snapshot_of_each_round_is_found
        queued_completions_are_listed_oldest_first
        completions_of_a_workspace_keep_their_order_when_the_clock_goes_back
        completions_are_filtered_and_paged
        completion_fails_after_its_last_attempt;
    reviews:
        review_is_decided_once
        overdue_reviews_are_escalated_or_expire
        a_completion_lands_with_its_last_review
        reviews_are_filtered_and_paged;
    leases:
        lease_has_one_holder_until_it_ends
        concurrent_servers_acquire_a_lease_once;
    text:
        hostile_text_round_trips
        megabyte_texts_round_trip
        nul_is_rejected_naming_the_field;
    schema:
        data_survives_reopening
        concurrent_opens_migrate_once
        newer_schema_is_rejected
        damaged_rows_are_errors
        concurrent_writers_succeed;
}
