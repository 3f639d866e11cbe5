//! `workspace whoami`

use workspace_api::access::{Identity, IdentityLimits, OwnerUsage, TokenInfo};

use super::table;
use crate::args::Whoami;
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::with_client;
use crate::text::format_bytes;

pub(crate) fn run(context: &mut Context, args: &Whoami) -> Result<Outcome> {
    let caller: Identity = with_client(&args.server, async |client| client.get("/api/v1/me").await)?;
    if context.output.is_json() {
        context.output.record(&caller)?;
    } else {
        table::print_fields(&mut context.output, &fields(&caller))?;
    }
    Ok(Outcome::Done)
}

fn fields(caller: &Identity) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("key", caller.key_id.clone()),
        ("name", caller.name.clone()),
        ("owner", caller.owner.clone()),
        ("role", caller.role.as_str().to_owned()),
    ];
    if let Some(token) = &caller.token {
        fields.extend(token_fields(token));
    }
    if let Some(usage) = &caller.usage {
        fields.extend(usage_fields(usage, &caller.limits));
    }
    fields.push(("rates", rates(&caller.limits)));
    fields
}

fn token_fields(token: &TokenInfo) -> [(&'static str, String); 3] {
    let rights: Vec<&str> = token.rights.iter().map(|right| right.as_str()).collect();
    [
        ("sandbox", token.sandbox_id.clone()),
        ("rights", rights.join(", ")),
        ("expires", table::time(&token.expires_at)),
    ]
}

fn usage_fields(usage: &OwnerUsage, limits: &IdentityLimits) -> [(&'static str, String); 3] {
    let both = |(count, max): (u64, Option<u64>), (bytes, max_bytes): (Option<u64>, Option<u64>)| {
        let count = of(count, max, |count| count.to_string());
        match bytes {
            Some(bytes) => format!("{count}, {}", of(bytes, max_bytes, format_bytes)),
            None => count,
        }
    };
    [
        ("sandboxes", of(usage.sandboxes, limits.max_sandboxes, |count| count.to_string())),
        (
            "snapshots",
            both((usage.snapshots, limits.max_snapshots), (usage.snapshot_bytes, limits.max_snapshot_bytes)),
        ),
        (
            "episodes",
            both(
                (usage.episodes, limits.max_episodes),
                (Some(usage.episode_bytes), limits.max_episode_bytes),
            ),
        ),
    ]
}

/// Formats a number with its limit: `3 of 10`, or `3` without one.
fn of(number: u64, max: Option<u64>, format: impl Fn(u64) -> String) -> String {
    match max {
        Some(max) => format!("{} of {}", format(number), format(max)),
        None => format(number),
    }
}

fn rates(limits: &IdentityLimits) -> String {
    let rates = [
        ("create", limits.create_per_minute),
        ("run", limits.run_per_minute),
        ("fork", limits.fork_per_minute),
        ("files", limits.files_per_minute),
        ("other", limits.other_per_minute),
    ];
    let limited: Vec<String> =
        rates.iter().filter_map(|(name, rate)| rate.map(|rate| format!("{name} {rate}"))).collect();
    if limited.is_empty() { "unlimited".to_owned() } else { format!("{} per minute", limited.join(", ")) }
}
