//! Ids of events for the keys of agents.
//!
//! The numbers of events count the events of all owners. From the difference of two numbers, an agent could tell how many
//! events of hidden files lie between them. So the keys of agents get ids that are a keyed permutation of the numbers:
//! they say nothing about numbers, and not even which of two events is the later one. An id is the same in every response
//! and on every server of the catalog, so it can be a position in a list or stream.

use crate::signing_key::{SigningKey, SigningSecret};

/// Smallest id, so that all ids have the same number of digits: the size of a response must not depend on numbers.
const ID_MIN: u64 = 1_000_000_000_000_000;
/// Number of ids. Ids are below 2^53, so that JavaScript can represent them.
const IDS: u64 = 1_000_000_000_000_000;
/// Number of bits of each half of the Feistel network, whose domain is slightly larger than [`IDS`].
const HALF_BITS: u32 = 25;
const HALF_MASK: u64 = (1 << HALF_BITS) - 1;
/// Number of rounds of the network. Four are enough for a pseudorandom permutation.
const ROUNDS: u8 = 6;

/// Secret of the ids of all readers.
#[derive(Debug)]
pub(crate) struct EventIdSecret(SigningKey);

impl EventIdSecret {
    pub(crate) fn new(secret: &SigningSecret) -> Self {
        Self(SigningKey::derive(secret, "elevo-workspace 2026-11 ids of events for agents"))
    }

    /// Returns the ids of one reader. Those of different readers cannot be compared.
    pub(crate) fn of_reader(&self, reader: &[&str]) -> EventIds {
        let mut hasher = blake3::Hasher::new();
        for part in reader {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        EventIds { key: self.0.sign(hasher.finalize().as_bytes()) }
    }
}

/// Permutation of the numbers of events.
#[derive(Clone)]
pub(crate) struct EventIds {
    key: [u8; blake3::KEY_LEN],
}

impl EventIds {
    /// Returns the id of the event with a number. 0, the position before the first event, stays 0.
    pub(crate) fn id(&self, number: i64) -> u64 {
        match u64::try_from(number) {
            Ok(number @ 1..IDS) => ID_MIN + self.walk(number, Self::forward),
            // A catalog has no numbers beyond that; at a million events a second they would last for thirty years.
            _ => 0,
        }
    }

    /// Returns the number of the event with an id; `None` if it cannot be an id.
    pub(crate) fn number(&self, id: u64) -> Option<i64> {
        if id == 0 {
            return Some(0);
        }
        let sealed = id.checked_sub(ID_MIN).filter(|sealed| *sealed < IDS)?;
        i64::try_from(self.walk(sealed, Self::backward)).ok()
    }

    /// Applies a permutation of the larger domain until the result is in the smaller one. This is a permutation, too.
    fn walk(&self, value: u64, permute: impl Fn(&Self, u64) -> u64) -> u64 {
        let mut value = permute(self, value);
        while value >= IDS {
            value = permute(self, value);
        }
        value
    }

    fn forward(&self, value: u64) -> u64 {
        let (mut left, mut right) = (value >> HALF_BITS, value & HALF_MASK);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.mix(round, right));
        }
        left << HALF_BITS | right
    }

    fn backward(&self, value: u64) -> u64 {
        let (mut left, mut right) = (value >> HALF_BITS, value & HALF_MASK);
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ self.mix(round, left), left);
        }
        left << HALF_BITS | right
    }

    fn mix(&self, round: u8, half: u64) -> u64 {
        let mut input = [round; 9];
        input[1..].copy_from_slice(&half.to_le_bytes());
        let hash = blake3::keyed_hash(&self.key, &input);
        let mut first = [0; 8];
        first.copy_from_slice(&hash.as_bytes()[..8]);
        u64::from_le_bytes(first) & HALF_MASK
    }
}

impl std::fmt::Debug for EventIds {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_a_permutation_with_sixteen_digits() {
        let secret = EventIdSecret::new(&SigningSecret::for_test(1));
        let ids = secret.of_reader(&["prj-1", "guest"]);
        let mut seen = HashSet::new();
        for number in (1..5_000).chain([1 << 40, 999_999_999_999_999]) {
            let id = ids.id(number);
            assert_eq!((id.to_string().len(), ids.number(id)), (16, Some(number)), "{number}");
            assert!(seen.insert(id), "{number}");
        }
        assert_eq!((ids.id(0), ids.number(0)), (0, Some(0)));
        for wrong in [1, 17, ID_MIN - 1, ID_MIN + IDS, u64::MAX] {
            assert_eq!(ids.number(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ids_of_other_readers_and_of_other_catalogs_are_others() {
        let secret = EventIdSecret::new(&SigningSecret::for_test(1));
        let other = EventIdSecret::new(&SigningSecret::for_test(2));
        let id = secret.of_reader(&["prj-1", "guest"]).id(7);
        assert_eq!(secret.of_reader(&["prj-1", "guest"]).id(7), id);
        for ids in [
            secret.of_reader(&["prj-1", "guests"]),
            secret.of_reader(&["prj-1guest"]),
            secret.of_reader(&["prj-1g", "uest"]),
            other.of_reader(&["prj-1", "guest"]),
        ] {
            assert_ne!(ids.id(7), id);
        }
    }

    #[test]
    fn later_events_do_not_have_higher_ids() {
        let ids = EventIdSecret::new(&SigningSecret::for_test(1)).of_reader(&["a"]);
        let higher = (1..1_000).filter(|number| ids.id(number + 1) > ids.id(*number)).count();
        assert!((400..600).contains(&higher), "{higher}");
    }
}
