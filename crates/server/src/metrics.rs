//! Metrics for Prometheus, in its text format.
//!
//! Requests, errors and durations are counted here; other modules register collectors.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// Upper bounds of the buckets of a histogram in seconds.
const BUCKETS: [f64; 12] = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

type Collector = Box<dyn Fn(&mut String) + Send + Sync>;

/// Registry of metrics. Clones share it.
#[derive(Clone, Default)]
pub struct Metrics {
    requests: Arc<Mutex<Requests>>,
    collectors: Arc<Mutex<Vec<Collector>>>,
}

#[derive(Default)]
struct Requests {
    /// Numbers of requests by endpoint (method and route pattern) and status.
    total: BTreeMap<(String, u16), u64>,
    /// Durations by endpoint.
    durations: BTreeMap<String, Histogram>,
    /// Numbers of errors by the name of their code.
    errors: BTreeMap<&'static str, u64>,
}

/// Histogram of durations in seconds.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Histogram {
    /// Numbers of durations up to the bounds in [`BUCKETS`]: a short duration counts in all later buckets, too.
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

impl Metrics {
    /// Counts a request. `endpoint` must be the pattern of a route: each raw path would create a time series.
    pub fn record_request(&self, endpoint: &str, status: u16, duration: Duration) {
        let mut requests = self.requests.lock();
        *requests.total.entry((endpoint.to_owned(), status)).or_default() += 1;
        requests.durations.entry(endpoint.to_owned()).or_default().observe(duration.as_secs_f64());
    }

    /// Counts an error response by the name of its code.
    pub fn record_error(&self, code: &'static str) {
        let mut requests = self.requests.lock();
        *requests.errors.entry(code).or_default() += 1;
    }

    /// Adds a function that appends metrics. It is called for each scrape.
    pub fn add_collector(&self, collector: impl Fn(&mut String) + Send + Sync + 'static) {
        self.collectors.lock().push(Box::new(collector));
    }

    /// Renders all metrics in the text format.
    pub fn render(&self) -> String {
        let mut text = String::new();
        self.requests.lock().render(&mut text);
        for collector in self.collectors.lock().iter() {
            collector(&mut text);
        }
        text
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Metrics")
    }
}

impl Histogram {
    pub(crate) fn observe(&mut self, seconds: f64) {
        for (bucket, bound) in self.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(seconds <= bound);
        }
        self.count += 1;
        self.sum += seconds;
    }

    /// Renders the histogram with these labels.
    pub(crate) fn render(&self, text: &mut String, name: &str, labels: &str) {
        let comma = if labels.is_empty() { "" } else { "," };
        for (bound, count) in BUCKETS.iter().zip(self.buckets) {
            let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}");
        }
        let Self { count, sum, .. } = self;
        let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}");
        let _ = writeln!(text, "{name}_sum{{{labels}}} {sum}");
        let _ = writeln!(text, "{name}_count{{{labels}}} {count}");
    }
}

// Writing into a `String` does not fail.
impl Requests {
    fn render(&self, text: &mut String) {
        write_metric_header(text, "api_request_total", "counter", "API requests.");
        for ((endpoint, status), count) in &self.total {
            let endpoint = escape(endpoint);
            let _ =
                writeln!(text, "api_request_total{{endpoint=\"{endpoint}\",status=\"{status}\"}} {count}");
        }
        write_metric_header(
            text,
            "api_error_total",
            "counter",
            "API errors by code, including rate limits and quotas.",
        );
        for (code, count) in &self.errors {
            let _ = writeln!(text, "api_error_total{{code=\"{code}\"}} {count}");
        }
        let name = "api_request_duration_seconds";
        write_metric_header(text, name, "histogram", "Time until the response headers were ready.");
        for (endpoint, histogram) in &self.durations {
            histogram.render(text, name, &format!("endpoint=\"{}\"", escape(endpoint)));
        }
    }
}

/// Writes the `HELP` and `TYPE` lines of a metric.
pub fn write_metric_header(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_into_every_bucket_that_is_large_enough() {
        let metrics = Metrics::default();
        metrics.record_request("GET /x", 200, Duration::from_millis(30));
        metrics.record_error("RATE_LIMITED");
        metrics.add_collector(|text| text.push_str("other 1\n"));
        let text = metrics.render();
        for line in [
            "api_request_total{endpoint=\"GET /x\",status=\"200\"} 1",
            "api_request_duration_seconds_bucket{endpoint=\"GET /x\",le=\"0.025\"} 0",
            "api_request_duration_seconds_bucket{endpoint=\"GET /x\",le=\"0.05\"} 1",
            "api_request_duration_seconds_count{endpoint=\"GET /x\"} 1",
            "api_error_total{code=\"RATE_LIMITED\"} 1",
            "other 1",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} in {text}");
        }
    }
}
