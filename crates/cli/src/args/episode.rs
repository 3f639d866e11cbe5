//! Commands on episodes, the steps of a search.

use clap::{Args, Subcommand};

pub(super) const EXAMPLES: &str = "\
Examples:
  root=$(workspace episode add main --action start --reward 0)
  workspace episode add 0199b --parent \"$root\" --action \"rename the module\" --reward 0.7
  workspace episode update 0199d --reward 0.9
  workspace episode best
  workspace episode export > episodes.jsonl";

#[derive(Debug, Subcommand)]
pub(crate) enum EpisodeCommand {
    Add(EpisodeAdd),
    Update(EpisodeUpdate),
    /// Show the leaf with the highest reward
    #[command(after_help = "\
Examples:
  workspace episode best
  workspace --json episode best 0199c | jq -r .snapshot")]
    Best(EpisodeRoot),
    Path(EpisodePath),
    /// List episodes as a tree, parents before children
    #[command(after_help = "Examples:\n  workspace episode tree\n  workspace episode tree 0199c")]
    Tree(EpisodeRoot),
    /// Print episodes as JSON lines, parents before children
    #[command(after_help = "Examples:\n  workspace episode export > episodes.jsonl")]
    Export(EpisodeRoot),
    Rm(EpisodeRm),
}

/// Add an episode and print its id
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace episode add main --action start --reward 0
  workspace episode add 0199b --parent 0199c --action \"inline it\" --reward 0.7 --insight
  workspace episode add 0199b --action \"inline it\" --reward 0.7 --data '{\"tokens\": 900}'")]
pub(crate) struct EpisodeAdd {
    /// Snapshot that the step led to
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: String,
    /// Previous episode; none for the start of a search
    #[arg(long, value_name = "EPISODE")]
    pub(crate) parent: Option<String>,
    /// Action taken
    #[arg(long, value_name = "TEXT")]
    pub(crate) action: String,
    /// Reward of the step
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = reward)]
    pub(crate) reward: f64,
    /// Number of visits
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) visits: u64,
    /// Custom data, as JSON
    #[arg(long, value_name = "JSON", value_parser = json)]
    pub(crate) data: Option<serde_json::Value>,
    /// Store the insight diff against the snapshot of the parent
    #[arg(long, requires = "parent")]
    pub(crate) insight: bool,
}

/// Update an episode
///
/// Only the given fields are changed. If two processes update an episode at the same time, the last one wins.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace episode update 0199c --reward 0.9
  workspace episode update 0199c --visits 12 --data '{\"tokens\": 950}'
  workspace --json episode update 0199c --reward 0.9 | jq .reward")]
#[command(group(clap::ArgGroup::new("changes").required(true).multiple(true)))]
pub(crate) struct EpisodeUpdate {
    /// Episode
    #[arg(value_name = "EPISODE")]
    pub(crate) episode: String,
    /// Action taken
    #[arg(long, value_name = "TEXT", group = "changes")]
    pub(crate) action: Option<String>,
    /// Reward of the step
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = reward, group = "changes")]
    pub(crate) reward: Option<f64>,
    /// Number of visits
    #[arg(long, value_name = "N", group = "changes")]
    pub(crate) visits: Option<u64>,
    /// Custom data, as JSON, which replaces the present data; `null` removes it
    #[arg(long, value_name = "JSON", value_parser = json, group = "changes")]
    pub(crate) data: Option<serde_json::Value>,
}

fn reward(text: &str) -> Result<f64, String> {
    let reward: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if reward.is_finite() { Ok(reward) } else { Err("not a finite number".to_owned()) }
}

fn json(text: &str) -> Result<serde_json::Value, String> {
    serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))
}

/// Root of a subtree of episodes.
#[derive(Debug, Args)]
pub(crate) struct EpisodeRoot {
    /// Only this episode and its descendants
    #[arg(value_name = "EPISODE")]
    pub(crate) root: Option<String>,
}

/// Show the steps that led to an episode, the first step first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  workspace episode path 0199c
  workspace --json episode path 0199c | jq -r .action")]
pub(crate) struct EpisodePath {
    /// Episode
    #[arg(value_name = "EPISODE")]
    pub(crate) episode: String,
}

/// Remove episodes and their descendants
///
/// Snapshots stay; `workspace rm` removes them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  workspace episode rm 0199c")]
pub(crate) struct EpisodeRm {
    /// Episodes
    #[arg(value_name = "EPISODE", required = true)]
    pub(crate) episodes: Vec<String>,
}
