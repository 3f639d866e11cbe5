//! Bounded cache with two generations: a hit costs one or two map lookups, and recently used entries are not evicted.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

use parking_lot::Mutex;

/// Cache of values with weights. If an insertion would make the young generation heavier than the budget, the young
/// generation becomes the old one, and the former old one is dropped. A hit in the old generation moves the entry to
/// the young one.
pub(crate) struct Cache<K, V, H> {
    /// Maximum weight of the young generation.
    budget: usize,
    generations: Mutex<Generations<K, V, H>>,
}

struct Generations<K, V, H> {
    young: HashMap<K, (V, usize), H>,
    old: HashMap<K, (V, usize), H>,
    /// Weight of the young generation.
    weight: usize,
}

impl<K: Hash + Eq + Copy, V: Clone, H: BuildHasher + Default> Cache<K, V, H> {
    /// Creates a cache that holds at most about twice `budget`, in the unit in which callers weigh values.
    pub(crate) fn new(budget: usize) -> Self {
        let generations = Generations { young: HashMap::default(), old: HashMap::default(), weight: 0 };
        Self { budget, generations: Mutex::new(generations) }
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let mut generations = self.generations.lock();
        if let Some((value, _)) = generations.young.get(key) {
            return Some(value.clone());
        }
        let (value, weight) = generations.old.remove(key)?;
        generations.insert(*key, value.clone(), weight, self.budget);
        Some(value)
    }

    pub(crate) fn insert(&self, key: K, value: V, weight: usize) {
        let mut generations = self.generations.lock();
        generations.insert(key, value, weight, self.budget);
    }

    /// Returns the number of entries.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let generations = self.generations.lock();
        generations.young.len() + generations.old.len()
    }
}

impl<K: Hash + Eq, V, H: BuildHasher + Default> Generations<K, V, H> {
    fn insert(&mut self, key: K, value: V, weight: usize, budget: usize) {
        if self.weight + weight > budget {
            self.old = std::mem::take(&mut self.young);
            self.weight = 0;
        }
        if self.young.insert(key, (value, weight)).is_none() {
            self.weight += weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_in_use_survive_eviction() {
        let cache: Cache<_, _, std::hash::RandomState> = Cache::new(10);
        for key in 0..100 {
            cache.insert(key, key, 1);
            assert_eq!(cache.get(&0), Some(0), "used every time, never evicted");
        }
        let kept = (0..100).filter(|key| cache.get(key).is_some()).count();
        assert!(kept <= 21, "{kept} kept");
    }
}
