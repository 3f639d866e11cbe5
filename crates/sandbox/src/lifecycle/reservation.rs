//! Reservations for sandboxes that are being created and are not in the catalog yet. They count for quotas.

use crate::leaf_mutex::{LeafGuard, LeafMutex};

/// A sandbox that is being created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// Owner of the sandbox.
    pub(crate) owner: String,
    pub(crate) template: String,
    /// Name that it will have.
    pub(crate) name: Option<String>,
    /// Idempotency key of the request.
    pub(crate) key: Option<String>,
}

/// All reservations of this server.
#[derive(Debug, Default)]
pub(crate) struct Reservations(LeafMutex<Vec<Reservation>>);

impl Reservations {
    fn lock(&self) -> LeafGuard<'_, Vec<Reservation>> {
        self.0.lock()
    }

    /// Returns true if a sandbox is being created from this template.
    pub(crate) fn uses(&self, template: &str) -> bool {
        self.lock().iter().any(|reservation| reservation.template == template)
    }

    /// Counts all reservations, and those of this owner.
    pub(crate) fn counts(&self, owner: &str) -> (usize, usize) {
        let reservations = self.lock();
        (reservations.len(), reservations.iter().filter(|reservation| reservation.owner == owner).count())
    }

    /// Returns true if this owner has a reservation with that name.
    pub(crate) fn is_named(&self, owner: &str, name: &str) -> bool {
        self.lock()
            .iter()
            .any(|reservation| reservation.owner == owner && reservation.name.as_deref() == Some(name))
    }

    /// Adds a reservation. `None` while the same request has one.
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

/// Reservation that is released on drop.
#[derive(Debug)]
pub(crate) struct ReservationGuard<'a> {
    reservations: &'a Reservations,
    reservation: Reservation,
}

impl Drop for ReservationGuard<'_> {
    fn drop(&mut self) {
        let mut reservations = self.reservations.lock();
        if let Some(index) = reservations.iter().position(|one| *one == self.reservation) {
            reservations.swap_remove(index);
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
    fn reservation_counts_until_it_is_dropped() {
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
    fn repeated_request_has_one_reservation() {
        let reservations = Reservations::default();
        let first = reservations.reserve(reservation("ann", "base", Some("k"))).unwrap();
        assert!(reservations.reserve(reservation("ann", "base", Some("k"))).is_none());
        assert!(reservations.reserve(reservation("bob", "base", Some("k"))).is_some());
        assert!(reservations.reserve(reservation("ann", "base", None)).is_some());
        drop(first);
        assert!(reservations.reserve(reservation("ann", "base", Some("k"))).is_some());
    }
}
