//! Resource usage of a sandbox.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::blocking::blocking;
use crate::clock::now;
use crate::command::kept_output::kept_bytes;
use crate::error::Result;
use crate::guest::handle::SandboxHandle;
use crate::guest::resource_usage::complete_from_agent;
use crate::runtime::{Limits, ResourceUsage};
use crate::scope::Scope;
use crate::service::{Service, config_of};

/// Time over which processor usage is measured.
const SAMPLE_TIME: Duration = Duration::from_millis(100);

/// Resource usage and limits of a sandbox.
#[derive(Debug, Clone)]
pub struct Stats {
    /// Percent of one processor.
    pub cpu_percent: f64,
    /// Usage, as far as the runtime or the guest agent reports it.
    pub usage: ResourceUsage,
    /// Resource limits.
    pub limits: Limits,
    /// Bytes of its workspace at the last scan, plus the output that is kept of its commands.
    pub disk: u64,
    /// Time of the last scan of its workspace, in milliseconds since 1970.
    pub disk_time: i64,
    /// Bytes of `disk` that are output of commands.
    pub output: u64,
    /// Disk limit in bytes.
    pub disk_limit: Option<u64>,
    /// Time of the measurement, in milliseconds since 1970.
    pub time: i64,
}

impl Service {
    /// Measures the resource usage of a sandbox.
    pub async fn stats(&self, scope: &Scope, id: &str) -> Result<Stats> {
        let sandbox = self.find_on_this_server(scope, id).await?;
        let config = config_of(&sandbox)?;
        let (usage, cpu_percent) = match self.handle(id) {
            Some(handle) => self.sample(&handle).await?,
            None => (ResourceUsage::default(), 0.0),
        };
        let dir = self.dir(id);
        // A sandbox that is being created or removed has no output.
        let output = blocking(move || kept_bytes(&dir).unwrap_or(0)).await?;
        let (workspace, disk_time) = self.last_usage(&sandbox.id, &sandbox.owner).await;
        let disk = workspace + output;
        let (limits, disk_limit) = (config.limits, config.disk);
        Ok(Stats { cpu_percent, usage, limits, disk, output, disk_limit, disk_time, time: now() })
    }

    /// Measures the usage, and the CPU usage in percent of one core.
    async fn sample(&self, handle: &SandboxHandle) -> Result<(ResourceUsage, f64)> {
        let (before, began) = (self.usage(handle).await?, Instant::now());
        sleep(SAMPLE_TIME).await;
        let (after, took) = (self.usage(handle).await?, began.elapsed());
        let used = after.cpu.unwrap_or_default().saturating_sub(before.cpu.unwrap_or_default());
        Ok((after, used.as_secs_f64() * 100.0 / took.as_secs_f64()))
    }

    /// Measures the usage with the runtime, and with the guest agent where the runtime does not know.
    async fn usage(&self, handle: &SandboxHandle) -> Result<ResourceUsage> {
        Ok(complete_from_agent(self.0.runtime.usage(&handle.id, &handle.dir).await?, handle).await)
    }
}
