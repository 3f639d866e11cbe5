use std::collections::HashSet;

use crate::place::Place;

pub(crate) async fn episodes_are_counted_for_their_owner_until_they_are_removed(place: Place) {
    let catalog = place.open().await;
    let episodes = catalog.episodes();
    let all: Vec<String> = (0..1_200).map(|number| format!("{number:04}")).collect();
    for id in &all[..3] {
        episodes.add("alice", id).await.unwrap();
    }
    episodes.add("bob", &all[3]).await.unwrap();
    // A second time changes nothing.
    episodes.add("alice", &all[0]).await.unwrap();
    let counts = async || {
        let mut counts = Vec::new();
        for owner in ["alice", "bob", "carol"] {
            counts.push(episodes.count(owner).await.unwrap());
        }
        counts
    };
    assert_eq!(counts().await, [3, 1, 0]);
    assert_eq!(episodes.owned("alice", &all).await.unwrap(), all[..3].iter().cloned().collect());
    assert_eq!(episodes.owned("alice", &[]).await.unwrap(), HashSet::new());
    episodes.remove(&all[1..]).await.unwrap();
    assert_eq!(counts().await, [1, 0, 0]);
    episodes.remove(&[]).await.unwrap();
    assert_eq!(counts().await, [1, 0, 0]);
}
