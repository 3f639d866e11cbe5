//! A small search that repairs the failing tests of a sample by trying edits, without a server: sandboxes,
//! snapshots and episodes are used as libraries.
//!
//! Each state of the search is a snapshot. A step creates a sandbox from one, applies an edit, runs the
//! tests, commits, reads the insight diff of the change, and stores an episode. States that were reached
//! before, by another order of the same edits, have the same tree and are recognised.

mod lab;
mod search;

use std::error::Error;
use std::process::ExitCode;

use lab::Lab;
use search::Search;

fn main() -> ExitCode {
    // Sandboxes are launched by executing this program again.
    if let Some(code) = workspace_host::helper_main() {
        return code;
    }
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the search. Returns whether all tests pass at the end.
#[tokio::main]
async fn run() -> Result<bool, Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let seed = words.next().map_or(Ok(1), |word| word.parse())?;
    let steps = words.next().map_or(Ok(100), |word| word.parse())?;
    let lab = Lab::open().await?;
    let mut search = Search::new(&lab, seed).await?;
    println!("steps:");
    for _ in 0..steps {
        search.step().await?;
        if search.best().reward >= 1.0 {
            break;
        }
    }
    println!("\ntree:");
    search.print_tree();
    println!("\ntranspositions: {}", search.transpositions);
    let best = search.best();
    println!("best path: {} ({:.2})", lab.path(&best.episode)?.join(" -> "), best.reward);
    let repaired = best.reward >= 1.0;
    lab.close().await?;
    Ok(repaired)
}
