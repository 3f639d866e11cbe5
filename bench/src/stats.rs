//! Order statistics of measured times.

use serde::Serialize;

/// Statistics of latencies, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Latency {
    /// Number of samples.
    pub(crate) count: usize,
    /// Smallest sample.
    pub(crate) min: f64,
    /// 10th percentile, which is robust against noise of a shared machine.
    pub(crate) p10: f64,
    /// Median.
    pub(crate) p50: f64,
    /// 90th percentile.
    pub(crate) p90: f64,
    /// 99th percentile.
    pub(crate) p99: f64,
    /// Arithmetic mean.
    pub(crate) mean: f64,
}

impl Latency {
    /// Computes statistics of `samples` in microseconds, which must not be empty. Sorts them.
    pub(crate) fn of(samples: &mut [f64]) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |share: f64| samples[((samples.len() - 1) as f64 * share).round() as usize];
        Self {
            count: samples.len(),
            min: samples[0],
            p10: at(0.10),
            p50: at(0.50),
            p90: at(0.90),
            p99: at(0.99),
            mean: samples.iter().sum::<f64>() / samples.len() as f64,
        }
    }
}

/// Median and range of a few numbers.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) samples: usize,
}

impl Spread {
    /// Computes median and range of `samples`, which must not be empty. Sorts them.
    pub(crate) fn of(samples: &mut [f64]) -> Self {
        let median = median(samples);
        Self { median, min: samples[0], max: samples[samples.len() - 1], samples: samples.len() }
    }
}

/// Returns the median of a few numbers.
pub(crate) fn median(samples: &mut [f64]) -> f64 {
    Latency::of(samples).p50
}
