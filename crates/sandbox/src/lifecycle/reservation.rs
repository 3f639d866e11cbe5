//! Places that are kept for sandboxes which are being made and are in no catalog yet.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a place is kept for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// Whose it will be.
    pub(crate) owner: String,
    /// What it is made from.
    pub(crate) template: String,
    /// What it will be called.
    pub(crate) name: Option<String>,
    /// What the client sends again with the same request.
    pub(crate) key: Option<String>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Reservations(Mutex<Vec<Reservation>>);

impl Reservations {
    fn lock(&self) -> MutexGuard<'_, Vec<Reservation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody is making one from this template.
    pub(crate) fn uses(&self, template: &str) -> bool {
        self.lock().iter().any(|reservation| reservation.template == template)
    }

    /// How many are kept in all, and for this owner.
    pub(crate) fn counts(&self, owner: &str) -> (usize, usize) {
        let reservations = self.lock();
        (reservations.len(), reservations.iter().filter(|reservation| reservation.owner == owner).count())
    }

    /// Whether this owner has one of that name coming.
    pub(crate) fn is_named(&self, owner: &str, name: &str) -> bool {
        self.lock()
            .iter()
            .any(|reservation| reservation.owner == owner && reservation.name.as_deref() == Some(name))
    }

    /// Keeps one more. None while the same request has one.
    pub(crate) fn reserve(&self, reservation: Reservation) -> Option<ReservationGuard<'_>> {
        let mut reservations = self.lock();
        if reservation.key.is_some()
            && reservations.iter().any(|one| one.owner == reservation.owner && one.key == reservation.key)
        {
            return None;
        }
        reservations.push(reservation.clone());
        Some(ReservationGuard { reservations: self, reservation })
    }
}

/// One place. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct ReservationGuard<'a> {
    reservations: &'a Reservations,
    reservation: Reservation,
}

impl Drop for ReservationGuard<'_> {
    fn drop(&mut self) {
        let mut reservations = self.reservations.lock();
        if let Some(at) = reservations.iter().position(|one| *one == self.reservation) {
            reservations.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reservation(owner: &str, template: &str, key: Option<&str>) -> Reservation {
        let (owner, template, key) = (owner.to_owned(), template.to_owned(), key.map(str::to_owned));
        Reservation { owner, template, name: Some("work".to_owned()), key }
    }

    #[test]
    fn a_place_counts_until_it_is_given_up() {
        let reservations = Reservations::default();
        let first = reservations.reserve(reservation("ann", "base", None)).unwrap();
        let second = reservations.reserve(reservation("bob", "node", None)).unwrap();
        assert_eq!(reservations.counts("ann"), (2, 1));
        assert!(reservations.uses("node"));
        assert!(reservations.is_named("bob", "work") && !reservations.is_named("bob", "other"));
        drop(second);
        assert_eq!(reservations.counts("ann"), (1, 1));
        assert!(!reservations.uses("node") && !reservations.is_named("bob", "work"));
        drop(first);
        assert_eq!(reservations.counts("ann"), (0, 0));
    }

    #[test]
    fn a_request_has_one_place_however_often_it_comes() {
        let reservations = Reservations::default();
        let first = reservations.reserve(reservation("ann", "base", Some("k"))).unwrap();
        assert!(reservations.reserve(reservation("ann", "base", Some("k"))).is_none());
        assert!(reservations.reserve(reservation("bob", "base", Some("k"))).is_some());
        assert!(reservations.reserve(reservation("ann", "base", None)).is_some());
        drop(first);
        assert!(reservations.reserve(reservation("ann", "base", Some("k"))).is_some());
    }
}
