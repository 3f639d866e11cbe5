//! Steps of a search in Rust, to compare with those in Python: clone a tree, change a file, commit buffered.
//!
//!     steps STORE REFERENCE CHANGES
//!
//! CHANGES is a JSON array of pairs of a path and its new content. Each step starts from the tree of REFERENCE. Prints
//! the microseconds of each step and of each clone as JSON. `bench/harness/sdk_state_client.py` does the same.

use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::time::Instant;

use workspace_state::{Durability, NewSnapshot, Resolution, Store};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, reference, changes] = arguments.as_slice() else {
        return Err("usage: steps STORE REFERENCE CHANGES".into());
    };
    let changes: Vec<(String, String)> = serde_json::from_reader(BufReader::new(File::open(changes)?))?;
    let store = Store::open(store)?;
    let Resolution::One(base) = store.resolve(reference)? else {
        return Err(format!("{reference} is not a snapshot").into());
    };
    let origin = store.restore(&base)?;
    let (mut steps, mut clones) = (Vec::new(), Vec::new());
    for (path, content) in &changes {
        let begun = Instant::now();
        let mut tree = origin.clone();
        let cloned = begun.elapsed();
        tree.write(path, content.as_bytes())?;
        tree.commit(NewSnapshot { durability: Durability::Buffered, ..NewSnapshot::with_message("step") })?;
        steps.push(begun.elapsed().as_secs_f64() * 1e6);
        clones.push(cloned.as_secs_f64() * 1e6);
    }
    println!("{}", serde_json::json!({ "steps": steps, "clones": clones }));
    Ok(())
}
