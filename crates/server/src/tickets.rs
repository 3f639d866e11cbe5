//! Tickets: secrets that are valid for one connection to a terminal, kept in memory.
//!
//! Browsers cannot send headers when they open a WebSocket, and a key or token in a URL would be in logs and in the
//! history. A ticket in a URL is worthless once it was used, and soon if it was not.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use parking_lot::Mutex;

use crate::key_hash;

/// Time in which a ticket must be used.
pub(crate) const TICKET_LIFETIME: Duration = Duration::from_secs(30);
/// Maximum number of unused tickets of one owner.
pub(crate) const TICKETS_PER_OWNER_MAX: usize = 100;
/// Maximum number of unused tickets of all owners.
const TICKETS_MAX: usize = 4_000;
/// First characters of every ticket.
const PREFIX: &str = "wtt_";

/// Access that a ticket gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// Id of the key that requested it, itself or by a token.
    pub(crate) key_id: String,
    /// Owner of the key. The ticket counts as one of this owner's.
    pub(crate) owner: String,
    /// Id of the sandbox.
    pub(crate) sandbox: String,
    /// Owner of the sandbox.
    pub(crate) sandbox_owner: String,
    /// Id of the terminal.
    pub(crate) pty: String,
    /// True if the connection may only read output.
    pub(crate) read_only: bool,
    /// Time at which the connection ends, in milliseconds since 1970: the expiry of the token that requested the
    /// ticket. `None` with a key.
    pub(crate) connection_ends_at: Option<i64>,
}

/// Error of issuing a ticket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TicketError {
    #[error("there are too many unused tickets")]
    TooMany,
    #[error("cannot get random bytes from the system: {0}")]
    Random(getrandom::Error),
}

/// Unused tickets, by the hash of their text.
#[derive(Debug, Default)]
pub(crate) struct Tickets(Mutex<HashMap<String, Issued>>);

#[derive(Debug)]
struct Issued {
    ticket: Ticket,
    expires: Instant,
}

impl Tickets {
    /// Returns the text of a new ticket, which is valid for [`TICKET_LIFETIME`].
    pub(crate) fn issue(&self, ticket: Ticket) -> Result<String, TicketError> {
        self.issue_at(ticket, Instant::now())
    }

    /// Returns the access that a ticket gives, and removes the ticket. `None` if there is no such ticket for that
    /// terminal.
    pub(crate) fn redeem(&self, text: &str, sandbox: &str, pty: &str) -> Option<Ticket> {
        self.redeem_at(text, sandbox, pty, Instant::now())
    }

    fn issue_at(&self, ticket: Ticket, now: Instant) -> Result<String, TicketError> {
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(TicketError::Random)?;
        let text = format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(random));
        let mut issued = self.0.lock();
        issued.retain(|_, one| now < one.expires);
        let of_owner = issued.values().filter(|one| one.ticket.owner == ticket.owner).count();
        if of_owner >= TICKETS_PER_OWNER_MAX || issued.len() >= TICKETS_MAX {
            return Err(TicketError::TooMany);
        }
        issued.insert(key_hash::hash(&text), Issued { ticket, expires: now + TICKET_LIFETIME });
        Ok(text)
    }

    fn redeem_at(&self, text: &str, sandbox: &str, pty: &str, now: Instant) -> Option<Ticket> {
        let issued = self.0.lock().remove(&key_hash::hash(text))?;
        let is_valid = now < issued.expires && issued.ticket.sandbox == sandbox && issued.ticket.pty == pty;
        is_valid.then_some(issued.ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(owner: &str) -> Ticket {
        Ticket {
            key_id: "key-1".to_owned(),
            owner: owner.to_owned(),
            sandbox: "sbx-1".to_owned(),
            sandbox_owner: owner.to_owned(),
            pty: "pty-1".to_owned(),
            read_only: true,
            connection_ends_at: None,
        }
    }

    #[test]
    fn a_ticket_is_valid_once() {
        let tickets = Tickets::default();
        let (one, other) = (tickets.issue(ticket("a")).unwrap(), tickets.issue(ticket("a")).unwrap());
        assert_ne!(one, other);
        assert!(one.starts_with("wtt_") && one.len() == 4 + 43, "{one}");
        assert_eq!(tickets.redeem(&one, "sbx-1", "pty-1"), Some(ticket("a")));
        assert_eq!(tickets.redeem(&one, "sbx-1", "pty-1"), None);
        assert_eq!(tickets.redeem("", "sbx-1", "pty-1"), None);
        assert_eq!(tickets.redeem(&other, "sbx-1", "pty-1"), Some(ticket("a")));
    }

    #[test]
    fn a_ticket_expires() {
        let (tickets, start) = (Tickets::default(), Instant::now());
        let issue = || tickets.issue_at(ticket("a"), start).unwrap();
        let (early, late) = (issue(), issue());
        let before = start + TICKET_LIFETIME - Duration::from_millis(1);
        assert!(tickets.redeem_at(&early, "sbx-1", "pty-1", before).is_some());
        assert_eq!(tickets.redeem_at(&late, "sbx-1", "pty-1", start + TICKET_LIFETIME), None);
    }

    #[test]
    fn a_ticket_for_another_terminal_is_refused_and_used_up() {
        let tickets = Tickets::default();
        for (sandbox, pty) in [("sbx-2", "pty-1"), ("sbx-1", "pty-2")] {
            let text = tickets.issue(ticket("a")).unwrap();
            assert_eq!(tickets.redeem(&text, sandbox, pty), None);
            assert_eq!(tickets.redeem(&text, "sbx-1", "pty-1"), None);
        }
    }

    #[test]
    fn the_number_of_unused_tickets_is_bounded_per_owner() {
        let (tickets, start) = (Tickets::default(), Instant::now());
        let mut issued = Vec::new();
        for _ in 0..TICKETS_PER_OWNER_MAX {
            issued.push(tickets.issue_at(ticket("a"), start).unwrap());
        }
        assert!(matches!(tickets.issue_at(ticket("a"), start), Err(TicketError::TooMany)));
        assert!(tickets.issue_at(ticket("b"), start).is_ok());
        tickets.redeem_at(&issued[0], "sbx-1", "pty-1", start).unwrap();
        assert!(tickets.issue_at(ticket("a"), start).is_ok());
        assert!(tickets.issue_at(ticket("a"), start).is_err());
        assert!(tickets.issue_at(ticket("a"), start + TICKET_LIFETIME).is_ok());
        assert_eq!(tickets.0.lock().len(), 1, "expired tickets are forgotten");
    }

    #[test]
    fn the_number_of_unused_tickets_is_bounded_in_total() {
        let (tickets, start) = (Tickets::default(), Instant::now());
        for number in 0..TICKETS_MAX {
            tickets.issue_at(ticket(&(number / TICKETS_PER_OWNER_MAX).to_string()), start).unwrap();
        }
        assert!(tickets.issue_at(ticket("another"), start).is_err());
    }
}
