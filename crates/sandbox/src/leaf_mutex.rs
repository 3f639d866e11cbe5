//! A mutex that is held only to read or change a value: the last lock that a thread takes.

use std::ops::{Deref, DerefMut};

use parking_lot::{Mutex, MutexGuard};

/// A mutex that no thread holds while taking another one, so that no two threads can wait for each other.
///
/// Debug builds panic where that rule is broken. A panic while it was held does not poison it: its values are
/// counters, or are replaced in one step.
#[derive(Debug, Default)]
pub(crate) struct LeafMutex<T>(Mutex<T>);

/// Guard of a [`LeafMutex`]. It is not `Send`, so that it cannot be held across an await.
#[derive(Debug)]
pub(crate) struct LeafGuard<'a, T> {
    guard: MutexGuard<'a, T>,
    _held: held::Held,
}

impl<T> LeafMutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> LeafGuard<'_, T> {
        let held = held::Held::new();
        LeafGuard { guard: self.0.lock(), _held: held }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T> Deref for LeafGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for LeafGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(debug_assertions)]
mod held {
    use std::cell::Cell;
    use std::panic::Location;

    thread_local! {
        static HELD: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
    }

    /// Remembers where this thread took a leaf mutex.
    #[derive(Debug)]
    pub(super) struct Held;

    impl Held {
        #[track_caller]
        pub(super) fn new() -> Self {
            if let Some(location) = HELD.get() {
                panic!("a leaf mutex is taken while another is held, which was taken at {location}");
            }
            HELD.set(Some(Location::caller()));
            Self
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            HELD.set(None);
        }
    }
}

#[cfg(not(debug_assertions))]
mod held {
    #[derive(Debug)]
    pub(super) struct Held;

    impl Held {
        pub(super) const fn new() -> Self {
            Self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_mutex_can_be_taken_again_after_its_guard_is_dropped() {
        let (first, second) = (LeafMutex::new(1), LeafMutex::new(2));
        *first.lock() += 1;
        let sum = *first.lock();
        *second.lock() += sum;
        assert_eq!(*second.lock(), 4);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a leaf mutex is taken while another is held")]
    fn a_leaf_mutex_taken_while_another_is_held_is_a_defect() {
        let (first, second) = (LeafMutex::new(1), LeafMutex::new(2));
        let _first = first.lock();
        let _second = second.lock();
    }
}
