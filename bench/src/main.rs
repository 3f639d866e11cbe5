//! Benchmarks: seeded data, storage layouts, hashes, and measurements through the libraries in one process.
//!
//! `bench/run`, `bench/sandbox`, `bench/workspace` and `bench/merge` drive this program and the peers, and write
//! `docs/benchmarks/`.

mod args;
mod bigfile;
mod engine;
mod failure;
mod hashes;
mod history;
mod layouts;
mod merges;
mod plan;
mod requests;
mod rng;
mod stats;
mod text;
mod tree;
mod workspaces;

use std::process::ExitCode;

use args::Args;
use failure::Failure;
use history::History;
use plan::{Parameters, Plan};

const USAGE: &str = "\
usage: workspace-bench COMMAND …

  tree DIR [--files 60000] [--seed 1] [--median 4096]                write a tree of source files
  history DIR --version N [--files …] [--seed …] [--median …]        take a tree from version N - 1 to N
  file PATH [--size 10737418240] [--seed 1]                          write one large file
  engine DIR [--files 100000] [--rounds 5] [--json]                  the rows measured through the library
  layouts DIR [--rounds 5] [--commits 300] [--json]                  what a commit costs in different layouts
  hashes DIR [--json]                                                BLAKE3 against SHA-256
  merges BED --part text|json|tree|large                             what merging costs
         [--files 1000] [--rounds 10] [--tree TREE] [--changes 100] [--run 1] [--size 104857600]
  requests                                                           send HTTP requests over many connections
                                                                     (described by JSON on standard input)
  workspaces BED TREE --part create|change|copy|lazy|many|build      what workspaces of a tree cost
             [--files 100000] [--rounds 50] [--many 1000] [--jobs 2] [--git WORKTREE]
";

fn main() -> ExitCode {
    // Workspaces start this program again, as a helper or as the process of a lazy mount.
    if let Some(code) = workspace_host::helper_main().or_else(workspaces::lazy_mount_entry) {
        return code;
    }
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let result = Args::parse(words).map_err(Into::into).and_then(|args| run(&command, args));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}\n\n{USAGE}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &str, mut args: Args) -> Result<(), Failure> {
    match command {
        "tree" => {
            let dir = args.path("DIR")?;
            let parameters = parameters(&mut args)?;
            args.finish()?;
            Ok(tree::write(&Plan::new(parameters), &dir)?)
        }
        "history" => {
            let dir = args.path("DIR")?;
            let version = args.option("version", 1)?;
            let parameters = parameters(&mut args)?;
            args.finish()?;
            Ok(History::new(Plan::new(parameters)).apply(&dir, version)?)
        }
        "file" => {
            let path = args.path("PATH")?;
            let size = args.option("size", 10 << 30)?;
            let seed = args.option("seed", 1)?;
            args.finish()?;
            Ok(bigfile::write(&path, size, seed)?)
        }
        "engine" => {
            let dir = args.path("DIR")?;
            let (files, rounds) = (args.option("files", 100_000)?, args.option("rounds", 5)?);
            let json = args.json();
            args.finish()?;
            engine::run(&dir, files, rounds, json)
        }
        "layouts" => {
            let dir = args.path("DIR")?;
            let (rounds, commits) = (args.option("rounds", 5)?, args.option("commits", 300)?);
            let json = args.json();
            args.finish()?;
            layouts::run(&dir, rounds, commits, json)
        }
        "hashes" => {
            let dir = args.path("DIR")?;
            let json = args.json();
            args.finish()?;
            hashes::run(&dir, json)
        }
        "merges" => merges::run(args),
        "requests" => requests::run(args),
        "workspaces" => workspaces::run(args),
        other => Err(format!("unknown command `{other}`").into()),
    }
}

fn parameters(args: &mut Args) -> Result<Parameters, String> {
    Ok(Parameters {
        files: args.option("files", 60_000)?,
        seed: args.option("seed", 1)?,
        median: args.option("median", 4096)?,
    })
}
