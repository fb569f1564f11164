//! Conformance suite that every backend must pass, one file per trait.
//!
//! ```ignore
//! struct Backend;
//! impl store::conformance::Backend for Backend { .. }
//! store::conformance_suite!(Backend);
//! ```
//! generates one `#[test]` per case. A case gets a fresh, empty backend and its clock.
//!
//! # Pitfalls
//!
//! A case is a plain `async fn` over [`Fixture`] and must not depend on a runtime, since each backend brings its own. Cases
//! follow the documentation of the traits, never the behaviour of one backend.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "these are tests, in a library only so that several crates can stamp them"
)]
pub mod accounts;
pub mod addresses;
pub mod blocklists;
pub mod directory;
pub mod last_seen;
pub mod logins;
pub mod offline;
pub mod private;
pub mod roster;
pub mod settings;
pub mod tokens;
pub mod vcards;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::{BoxFuture, ManualClock};
use jid::Jid;

use crate::{AddressId, Login, RosterItem, StoreError, Stores, Subscription};

/// Environment of a case.
pub struct Fixture {
    /// A fresh, empty backend.
    pub stores: Stores,
    /// The clock of that backend.
    pub clock: Arc<ManualClock>,
}

/// A case that can run on any backend.
pub type Case = Box<dyn FnOnce(Fixture) -> BoxFuture<'static, ()> + Send>;

/// A backend under test.
pub trait Backend {
    /// Creates a fresh backend, runs the case to completion and cleans up.
    fn run(case: Case);
}

/// Runs a future that is always ready, like those of the memory backend.
pub fn block_on_ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future waited"),
    }
}

/// Runs futures concurrently; the results are in their order.
pub async fn join_all<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(move |cx| {
        let mut waiting = false;
        for (future, result) in &mut futures {
            if result.is_none() {
                match Pin::as_mut(future).poll(cx) {
                    Poll::Ready(value) => *result = Some(value),
                    Poll::Pending => waiting = true,
                }
            }
        }
        if waiting {
            return Poll::Pending;
        }
        Poll::Ready(futures.iter_mut().filter_map(|(_, result)| result.take()).collect())
    })
    .await
}

/// Parses a valid address.
pub fn jid(text: &str) -> Jid {
    Jid::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// Creates an account of this name at `example.org`.
pub async fn account(stores: &Stores, name: &str) -> AddressId {
    stores.accounts.create(&jid(&format!("{name}@example.org")), name.as_bytes()).await.unwrap()
}

/// The login data of this account after authentication.
pub async fn login(stores: &Stores, account: &Jid) -> Login {
    read_login(stores, account).await.unwrap().unwrap()
}

/// The same, for logins that may fail. The account must exist.
pub async fn read_login(stores: &Stores, account: &Jid) -> Result<Option<Login>, StoreError> {
    let secrets = stores.logins.secrets(account.as_ref()).await.unwrap().unwrap();
    stores.logins.login(secrets.id, secrets.revision).await
}

/// An entry with a state, as an update closure would create it.
pub fn entry(contact: &Jid, subscription: Subscription) -> RosterItem {
    RosterItem { subscription, ..RosterItem::new(contact.clone()) }
}

/// Texts that databases tend to confuse or lose.
pub const UNUSUAL: &[&str] = &[
    "",
    " ",
    "a",
    "A",
    "a ",
    " a",
    "ａ",
    "ä",
    "a\u{308}",
    "ß",
    "ss",
    "İ",
    "i",
    "I",
    "ı",
    "ſ",
    "s",
    "Σ",
    "ς",
    "σ",
    "'",
    "\"",
    "\\",
    "%",
    "_",
    "\u{0}",
    "a\u{0}b",
    "\n",
    "\r\n",
    "\t",
    "\u{7f}",
    "\u{80}",
    "\u{7ff}",
    "\u{800}",
    "\u{d7ff}",
    "\u{e000}",
    "\u{fffd}",
    "\u{ffff}",
    "\u{10000}",
    "\u{1f600}",
    "\u{20000}",
    "\u{30000}",
    "\u{e0001}",
    "\u{f0000}",
    "\u{10ffff}",
    "\u{200d}",
    "\u{feff}a",
    "; DROP TABLE roster",
    "?1",
    "$1",
];

/// Generates the whole suite for a [`Backend`].
#[macro_export]
macro_rules! conformance_suite {
    ($backend:ty) => {
        $crate::conformance_suite!(@ $backend, accounts: create_shows_the_account, create_twice_is_refused,
            create_cuts_the_resource, bulk_answers_in_order_and_can_be_repeated, bulk_larger_than_a_chunk,
            remove_leaves_nothing, remove_twice_is_nothing, removed_account_comes_back_empty_with_higher_version,
            credentials_and_disabled_change, lists_page_at_every_boundary, lists_do_not_shift_when_rows_go,
            unusual_names_are_different_accounts, wildcards_are_plain_text, many_create_the_same_account,
            disabled_accounts_are_listed);
        $crate::conformance_suite!(@ $backend, addresses: numbers_stay, resources_do_not_count,
            unknown_addresses_are_not_found, resolves_what_is_known, many_ask_for_the_same_number,
            many_numbers_come_in_the_order_of_the_input,
            numbers_of_removed_accounts_stay, resolves_more_than_one_statement_takes);
        $crate::conformance_suite!(@ $backend, logins: unknown_account_is_nothing, brings_everything,
            sees_every_write, large_rosters_come_whole, rosters_beyond_reason_are_not_read,
            only_the_credentials_that_were_proved_log_in, a_proof_stands_between_secrets_and_login,
            a_proof_that_panics_fails_alone, many_at_once_get_their_own, what_proves_a_client_is_apart_from_what_a_session_needs,
            the_same_account_many_times_at_once, unusual_bytes_of_credentials);
        $crate::conformance_suite!(@ $backend, offline: comes_back_in_order, numbers_are_never_used_again,
            limit_answers_full, limit_counts_each_account_alone, bytes_are_limited_as_well, expired_bytes_make_room, one_sender_has_a_share, expired_messages_make_room,
            fetch_leaves_expired_out, expire_sweeps_up_to_its_limit, pages_at_every_boundary,
            remove_through_can_be_repeated, without_account_nothing_is_kept, many_writers_lose_nothing,
            bytes_come_back_as_they_went, later_incarnation_numbers_are_higher, nothing_to_append);
        $crate::conformance_suite!(@ $backend, roster: put_then_get, unknown_owner_is_not_found,
            one_contact_is_read_without_the_others, the_size_follows_every_change,
            keep_changes_nothing, delete_then_again, closure_sees_what_is_there, versions_rise_strictly,
            shadows_leave_the_version, request_is_kept_only_while_pending, entry_without_state_goes,
            labels_need_an_entry, unusual_names_and_groups, many_writers_on_one_roster,
            many_writers_on_one_entry, a_panic_changes_nothing, bulk_puts_and_replaces,
            bulk_skips_what_is_unknown, bulk_larger_than_a_chunk, every_state_comes_back,
            unkept_contact_gets_no_number, rosters_do_not_mix, resources_of_contacts_do_not_count);
        $crate::conformance_suite!(@ $backend, settings: put_get_replace, first_value_wins,
            many_first_writers_agree, keys_are_compared_by_bytes, limits_are_enforced);
        $crate::conformance_suite!(@ $backend, blocklists: keeps_the_order_of_adding,
            resources_of_blocked_addresses_count, a_full_list_takes_no_more, bytes_are_limited,
            nothing_for_a_missing_account, unusual_addresses_come_back, many_writers_lose_nothing);
        $crate::conformance_suite!(@ $backend, directory: prefixes_of_each_field, domains_do_not_mix,
            wildcards_are_plain_text, case_folds_and_accents_count, unusual_texts_are_found,
            pages_at_every_boundary, pages_do_not_shift_when_users_go, wrong_cursors_are_not_found,
            removed_accounts_are_not_found, counts_and_pages_are_capped);
        $crate::conformance_suite!(@ $backend, last_seen: the_last_one_counts, missing_accounts_are_nothing,
            unusual_texts_come_back, a_storm_of_logouts);
        $crate::conformance_suite!(@ $backend, private: put_get_replace_remove, missing_account_keeps_nothing,
            limits_are_enforced, long_keys_are_refused, unusual_keys_are_different,
            many_writers_stay_within_the_limits);
        $crate::conformance_suite!(@ $backend, tokens: closure_sees_what_is_there,
            missing_account_asks_nobody, tokens_are_stored_only_for_the_proved_credentials, one_of_many_uses_a_token_up, a_panic_changes_nothing,
            bytes_come_back_and_are_limited, a_changed_password_ends_tokens,
            upgraded_credentials_keep_tokens);
        $crate::conformance_suite!(@ $backend, vcards: put_get_replace_remove, missing_account_keeps_nothing,
            a_card_without_texts_is_not_found, large_cards_are_refused, long_texts_are_cut, the_photos_hash_comes_with_the_login);
    };
    (@ $backend:ty, $need:ident: $($case:ident),+ $(,)?) => {
        mod $need {
            $(
                #[test]
                fn $case() {
                    <$backend as $crate::conformance::Backend>::run(Box::new(|fixture| {
                        Box::pin($crate::conformance::$need::$case(fixture))
                    }));
                }
            )+
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the suite on the memory backend.
    pub(super) struct MemoryBackend;

    impl Backend for MemoryBackend {
        fn run(case: Case) {
            let clock = Arc::new(ManualClock::default());
            let stores = crate::memory::stores(clock.clone());
            block_on_ready(case(Fixture { stores, clock }));
        }
    }

    #[test]
    fn every_case_is_in_the_suite() {
        let suite = include_str!("mod.rs");
        for (need, text) in [
            ("accounts", include_str!("accounts.rs")),
            ("addresses", include_str!("addresses.rs")),
            ("logins", include_str!("logins.rs")),
            ("offline", include_str!("offline.rs")),
            ("roster", include_str!("roster.rs")),
            ("settings", include_str!("settings.rs")),
            ("blocklists", include_str!("blocklists.rs")),
            ("directory", include_str!("directory.rs")),
            ("last_seen", include_str!("last_seen.rs")),
            ("private", include_str!("private.rs")),
            ("tokens", include_str!("tokens.rs")),
            ("vcards", include_str!("vcards.rs")),
        ] {
            for case in text.lines().filter_map(|line| line.strip_prefix("pub async fn ")) {
                let name = case.split('(').next().unwrap();
                assert!(suite.contains(name), "{need}: {name} is not stamped");
            }
        }
    }

    conformance_suite!(crate::conformance::tests::MemoryBackend);
}
