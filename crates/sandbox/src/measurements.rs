//! Resource usage of sandboxes over the last hour, in a file of each sandbox.

mod ring;
pub(crate) mod sampler;

use crate::blocking::blocking;
use crate::clock::now;
use crate::error::{Context as _, Result};
use crate::scope::Scope;
use crate::service::Service;

pub use ring::{MEASUREMENTS_KEPT, Measurement};

/// Measurement, compared with the one before it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasurementSample {
    /// Values of the measurement.
    pub measurement: Measurement,
    /// CPU usage since the measurement before, in percent of one processor; `None` if there is none before, or if
    /// CPU time was not measured.
    pub cpu_percent: Option<f64>,
}

impl Service {
    /// Returns the measurements of a sandbox from `from` to `to`, in milliseconds since 1970, oldest first. They are at
    /// most [`MEASUREMENTS_KEPT`], and remain after the processes of the sandbox have ended.
    pub async fn measurements(
        &self,
        scope: &Scope,
        id: &str,
        from: Option<i64>,
        to: Option<i64>,
    ) -> Result<Vec<MeasurementSample>> {
        let sandbox = self.find_on_this_server(scope, id).await?;
        let (path, interval) = (self.dir(&sandbox.id).measurements(), self.0.sampler.interval());
        let found = blocking(move || ring::read(&path, interval, now())).await?;
        let found = found.context(|| "read the measurements of a sandbox".to_owned())?;
        let is_wanted = |time: i64| from.is_none_or(|from| time >= from) && to.is_none_or(|to| time <= to);
        Ok(compare(&found).filter(|measured| is_wanted(measured.measurement.time)).collect())
    }

    /// Returns the number of measurements of sandboxes that failed or took too long.
    pub fn failed_measurements(&self) -> u64 {
        self.0.sampler.failures()
    }

    /// Begins to measure all running sandboxes of this server. Does not wait for any of them.
    pub(crate) fn begin_measurements(&self) {
        for handle in self.handles() {
            self.0.sampler.begin(&self.0.runtime, &handle);
        }
    }
}

/// Compares each measurement with the one before it.
fn compare(measurements: &[Measurement]) -> impl Iterator<Item = MeasurementSample> {
    let before = std::iter::once(None).chain(measurements.iter().map(Some));
    before.zip(measurements).map(|(before, measurement)| {
        let cpu_percent = before.and_then(|before| cpu_percent(before, measurement));
        MeasurementSample { measurement: *measurement, cpu_percent }
    })
}

fn cpu_percent(before: &Measurement, after: &Measurement) -> Option<f64> {
    // Times of ended processes may be missing if the guest agent reported them; then there is no difference.
    let used = after.cpu?.checked_sub(before.cpu?)?;
    let elapsed = u32::try_from(after.time - before.time).ok().filter(|elapsed| *elapsed > 0)?;
    Some(used.as_secs_f64() * 1_000.0 * 100.0 / f64::from(elapsed))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn cpu_usage_is_the_average_since_the_measurement_before() {
        // Times and CPU times in milliseconds.
        let at = |time, cpu: Option<u64>| Measurement {
            time,
            cpu: cpu.map(Duration::from_millis),
            ..Measurement::default()
        };
        let all = [
            at(0, Some(0)),
            at(5_000, Some(2_500)),
            at(10_000, Some(12_500)),
            at(15_000, None),
            at(20_000, Some(1)),
            at(25_000, Some(0)),
            at(25_000, Some(1)),
        ];
        let percents: Vec<_> = compare(&all).map(|measured| measured.cpu_percent).collect();
        assert_eq!(percents, [None, Some(50.0), Some(200.0), None, None, None, None]);
        assert_eq!(compare(&[]).count(), 0);
    }
}
