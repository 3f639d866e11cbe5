//! What the catalog promises, on both databases: every case of `cases` runs on each.

mod cases;
mod place;
mod postgres;
mod sqlite_only;

use place::Place;
use postgres::Postgres;

/// SQLite gets a test per case. PostgreSQL gets one for all of them, because a server takes seconds to make and
/// a runner may give every test a process of its own; each case still has its own database.
macro_rules! contract {
    ($($module:ident: $($case:ident)*;)*) => {
        mod sqlite {
            $($(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    crate::cases::$module::$case(crate::Place::sqlite()).await;
                }
            )*)*
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn postgresql_keeps_the_contract_too() {
            let Some(server) = Postgres::start() else { return };
            let mut broken = Vec::new();
            $($(
                let place = Place::postgres(&server).await;
                if tokio::spawn(cases::$module::$case(place)).await.is_err() {
                    broken.push(stringify!($case));
                }
            )*)*
            assert_eq!(broken, [""; 0], "cases that fail on PostgreSQL");
        }
    };
}

contract! {
    sandboxes:
        what_is_inserted_is_read_back
        an_id_is_given_once
        another_owners_sandbox_is_as_good_as_none
        pages_hold_every_sandbox_once_newest_first
        a_list_goes_on_behind_what_was_seen
        filters_narrow_lists
        a_name_prefix_is_taken_literally
        a_name_finds_the_newest_sandbox_of_its_owner
        of_those_who_want_a_unique_name_at_once_one_gets_it
        labels_narrow_lists_and_all_must_fit
        the_expired_are_found
        a_deleted_sandbox_is_gone_with_its_commands
        they_are_counted_by_state
        several_are_found_at_once_each_for_its_owner
        every_server_has_its_own;
    changes:
        allowed_transitions_are_made_and_the_others_refused
        a_change_keeps_what_it_does_not_name
        of_two_changers_of_one_version_one_wins
        a_change_of_nothing_that_exists_is_not_found
        a_change_and_its_event_are_written_together
        a_change_is_undone_when_its_event_cannot_be_written;
    events:
        events_are_read_in_order_from_anywhere
        a_reader_that_follows_many_writers_misses_nothing
        old_events_are_forgotten_and_numbers_go_on
        old_events_are_forgotten_however_many_they_are
        the_oldest_events_of_a_sandbox_make_room
        the_oldest_events_of_all_make_room;
    keys:
        a_key_is_found_by_its_hash_until_it_is_revoked
        keys_are_listed_by_owner
        a_hash_is_kept_once_and_must_look_like_one;
    commands:
        a_command_runs_and_ends_once
        a_command_needs_its_sandbox
        a_command_is_ended_by_its_own_sandbox_alone
        a_request_begins_one_command_however_often_it_comes
        of_many_requests_at_once_one_begins_a_command
        the_newest_commands_are_listed_first
        long_commands_are_kept_and_listed_in_part
        many_write_at_once_and_each_gets_its_answer
        old_commands_are_forgotten_and_running_ones_never;
    idempotency:
        the_first_request_wins_and_the_next_get_its_sandbox
        of_many_requests_at_once_one_is_the_first
        another_request_under_the_same_key_is_refused
        a_request_that_came_to_nothing_may_come_again
        old_requests_are_forgotten;
    snapshots:
        a_snapshot_belongs_to_who_noted_it
        snapshots_are_listed_newest_first_in_pages
        ids_of_an_owner_are_read_behind_an_id_and_without_the_first
        the_last_owner_of_a_snapshot_is_told_so
        of_owners_that_let_go_at_once_one_is_the_last
        snapshots_of_an_owner_account_for_bytes_until_a_collection_measures_them;
    episodes:
        episodes_are_counted_for_their_owner_until_they_are_removed
        an_owner_never_has_more_episodes_than_the_limit
        a_server_removes_the_rows_of_its_own_episodes
        episodes_from_before_they_were_counted_are_counted
        adding_an_episode_counts_no_others
        episodes_are_added_and_removed_at_once_and_counted_right;
    text:
        hostile_text_is_kept_as_it_is
        a_megabyte_of_text_is_kept
        nul_is_refused_with_the_name_of_the_field;
    schema:
        what_was_written_is_there_after_reopening
        a_schema_is_made_once_by_however_many_open_it
        a_newer_schema_is_refused
        damaged_rows_are_errors_and_not_guesses
        twenty_tasks_write_at_once;
}
