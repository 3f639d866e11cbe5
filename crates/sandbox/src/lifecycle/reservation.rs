//! Places that are kept for sandboxes which are being made and are in no catalog yet.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a place is kept for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
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
pub(crate) struct Places(Mutex<Vec<Place>>);

impl Places {
    fn lock(&self) -> MutexGuard<'_, Vec<Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody is making one from this template.
    pub(crate) fn uses(&self, template: &str) -> bool {
        self.lock().iter().any(|place| place.template == template)
    }

    /// How many are kept in all, and for this owner.
    pub(crate) fn counts(&self, owner: &str) -> (usize, usize) {
        let places = self.lock();
        (places.len(), places.iter().filter(|place| place.owner == owner).count())
    }

    /// Whether this owner has one of that name coming.
    pub(crate) fn is_named(&self, owner: &str, name: &str) -> bool {
        self.lock().iter().any(|place| place.owner == owner && place.name.as_deref() == Some(name))
    }

    /// Keeps one more. None while the same request has one.
    pub(crate) fn reserve(&self, place: Place) -> Option<Reserved<'_>> {
        let mut places = self.lock();
        if place.key.is_some() && places.iter().any(|one| one.owner == place.owner && one.key == place.key) {
            return None;
        }
        places.push(place.clone());
        Some(Reserved { places: self, place })
    }
}

/// One place. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Reserved<'a> {
    places: &'a Places,
    place: Place,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut places = self.places.lock();
        if let Some(at) = places.iter().position(|one| *one == self.place) {
            places.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(owner: &str, template: &str, key: Option<&str>) -> Place {
        let (owner, template, key) = (owner.to_owned(), template.to_owned(), key.map(str::to_owned));
        Place { owner, template, name: Some("work".to_owned()), key }
    }

    #[test]
    fn a_place_counts_until_it_is_given_up() {
        let places = Places::default();
        let first = places.reserve(place("ann", "base", None)).unwrap();
        let second = places.reserve(place("bob", "node", None)).unwrap();
        assert_eq!(places.counts("ann"), (2, 1));
        assert!(places.uses("node"));
        assert!(places.is_named("bob", "work") && !places.is_named("bob", "other"));
        drop(second);
        assert_eq!(places.counts("ann"), (1, 1));
        assert!(!places.uses("node") && !places.is_named("bob", "work"));
        drop(first);
        assert_eq!(places.counts("ann"), (0, 0));
    }

    #[test]
    fn a_request_has_one_place_however_often_it_comes() {
        let places = Places::default();
        let first = places.reserve(place("ann", "base", Some("k"))).unwrap();
        assert!(places.reserve(place("ann", "base", Some("k"))).is_none());
        assert!(places.reserve(place("bob", "base", Some("k"))).is_some());
        assert!(places.reserve(place("ann", "base", None)).is_some());
        drop(first);
        assert!(places.reserve(place("ann", "base", Some("k"))).is_some());
    }
}
