//! Rate limits: a token bucket per key and class that refills over a minute.
//!
//! A request that fails with a client error takes no token of its class. It takes one from a separate bucket
//! ([`Class::ClientError`]), so that invalid requests are limited, too.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use axum::http::{HeaderName, HeaderValue, Method};
use axum::response::Response;
use parking_lot::Mutex;
use workspace_api::error_codes;

use crate::error::ApiError;
use crate::settings::Settings;

const SECONDS_PER_MINUTE: f64 = 60.0;

/// Maximum number of buckets. Full buckets are removed first: they contain no information.
const BUCKETS_MAX: usize = 10_000;

/// Class of requests with a common limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Creation of a sandbox.
    Create,
    /// Start of a command or a terminal.
    Run,
    /// Fork of a sandbox.
    Fork,
    /// Request for files or ports of a sandbox.
    Files,
    /// All other requests.
    Other,
    /// Request of any class that failed with a client error.
    ClientError,
}

impl Class {
    /// Returns the class of a request, by the pattern of its route.
    pub fn for_request(method: &Method, route: Option<&str>) -> Self {
        match route {
            Some("/api/v1/sandboxes") if method == Method::POST => Self::Create,
            Some("/api/v1/sandboxes/{id}/process/run" | "/api/v1/sandboxes/{id}/pty")
                if method == Method::POST =>
            {
                Self::Run
            }
            Some("/api/v1/sandboxes/{id}/fork") if method == Method::POST => Self::Fork,
            Some(route) if is_for_files(route) => Self::Files,
            _ => Self::Other,
        }
    }

    /// Returns the setting with the limit of the class. A key may override it.
    pub fn setting(self) -> &'static str {
        match self {
            Self::Create => "RATE_LIMIT_CREATE",
            Self::Run => "RATE_LIMIT_RUN",
            Self::Fork => "RATE_LIMIT_FORK",
            Self::Files => "RATE_LIMIT_FILES",
            Self::Other | Self::ClientError => "RATE_LIMIT_OTHER",
        }
    }
}

/// Returns true for the pattern of a route for files or ports of a sandbox.
fn is_for_files(route: &str) -> bool {
    let path = route.strip_prefix("/api/v1/sandboxes/{id}/").unwrap_or_default();
    matches!(path.split('/').next(), Some("files" | "entries" | "watch" | "ports"))
}

/// Requests per minute by class; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Creations of sandboxes.
    pub create: Option<u32>,
    /// Starts of commands and terminals.
    pub run: Option<u32>,
    /// Forks of sandboxes.
    pub fork: Option<u32>,
    /// Requests for files and ports of sandboxes.
    pub files: Option<u32>,
    /// All other requests.
    pub other: Option<u32>,
}

impl Rates {
    /// No limit for any class.
    pub const UNLIMITED: Self = Self { create: None, run: None, fork: None, files: None, other: None };

    /// Returns the requests per minute of a class; `None` for no limit.
    fn limit(self, class: Class) -> Option<u32> {
        match class {
            Class::Create => self.create,
            Class::Run => self.run,
            Class::Fork => self.fork,
            Class::Files => self.files,
            Class::Other | Class::ClientError => self.other,
        }
    }
}

/// Returns true if a response is a client error that takes a token of [`Class::ClientError`]. Commands that timed out or
/// could not be started were valid requests.
pub(crate) fn is_counted_client_error(response: &Response) -> bool {
    let code = response.extensions().get::<ApiError>().map(ApiError::code);
    let was_valid =
        code.is_some_and(|code| code == error_codes::PROCESS_TIMEOUT || code == error_codes::COMMAND_FAILED);
    response.status().is_client_error() && !was_valid
}

/// Rate limiter with the buckets of all keys.
#[derive(Debug)]
pub struct Limiter {
    enabled: bool,
    rates: Rates,
    buckets: Mutex<HashMap<(String, Class), Bucket>>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Number of requests that were allowed at `updated_at`.
    tokens: f64,
    updated_at: Instant,
    /// Requests per minute, and maximum number of tokens.
    limit: u32,
}

/// Decision about a request, and the state of its bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// Requests allowed per minute.
    pub limit: u32,
    /// Requests left now.
    pub remaining: u32,
    /// Time until the bucket is full again.
    pub reset: Duration,
    /// Time until a retry can succeed; `None` if the request is allowed.
    pub retry_after: Option<Duration>,
}

impl Limiter {
    /// Creates a limiter with the limits of the settings.
    pub fn new(settings: &Settings) -> Self {
        let rates = Rates {
            create: Some(settings.rate_limit_create),
            run: Some(settings.rate_limit_run),
            fork: Some(settings.rate_limit_fork),
            files: Some(settings.rate_limit_files),
            other: Some(settings.rate_limit_other),
        };
        Self { enabled: settings.rate_limit.0, rates, buckets: Mutex::default() }
    }

    /// Returns the limits of keys that do not override them.
    pub fn rates(&self) -> Rates {
        self.rates
    }

    /// Returns these limits of a key, or no limits if rate limits are disabled.
    pub(crate) fn rates_if_enabled(&self, rates: Rates) -> Rates {
        if self.enabled { rates } else { Rates::UNLIMITED }
    }

    /// Takes a token for a request of `client`, a key or an IP address. Returns `None` if the class has no limit.
    pub fn take(&self, client: &str, class: Class, rates: Rates) -> Option<Decision> {
        let limit = rates.limit(class).filter(|_| self.enabled)?;
        Some(self.with_bucket(client, class, limit, Instant::now(), Bucket::take))
    }

    /// Returns the token of a request that failed with a client error, and counts it in [`Class::ClientError`] instead.
    pub fn refund(&self, client: &str, class: Class, rates: Rates) -> Option<Decision> {
        self.take(client, Class::ClientError, rates);
        let limit = rates.limit(class).filter(|_| self.enabled)?;
        Some(self.with_bucket(client, class, limit, Instant::now(), Bucket::refund))
    }

    /// Returns the state of the bucket [`Class::ClientError`] of `client`, without taking a token.
    pub fn client_errors(&self, client: &str, rates: Rates) -> Option<Decision> {
        let limit = rates.limit(Class::ClientError).filter(|_| self.enabled)?;
        let inspect = |bucket: &mut Bucket| bucket.decision(bucket.tokens >= 1.0);
        Some(self.with_bucket(client, Class::ClientError, limit, Instant::now(), inspect))
    }

    fn with_bucket(
        &self,
        client: &str,
        class: Class,
        limit: u32,
        now: Instant,
        action: impl FnOnce(&mut Bucket) -> Decision,
    ) -> Decision {
        let mut buckets = self.buckets.lock();
        let key = (client.to_owned(), class);
        if buckets.len() >= BUCKETS_MAX && !buckets.contains_key(&key) {
            evict(&mut buckets, now);
        }
        let bucket =
            buckets.entry(key).or_insert(Bucket { tokens: f64::from(limit), updated_at: now, limit });
        bucket.refill(limit, now);
        action(bucket)
    }
}

/// Removes full buckets, or the least recently used one if none is full.
fn evict(buckets: &mut HashMap<(String, Class), Bucket>, now: Instant) {
    buckets.retain(|_, bucket| !bucket.is_full(now));
    if buckets.len() >= BUCKETS_MAX {
        let oldest = buckets.iter().min_by_key(|(_, bucket)| bucket.updated_at).map(|(key, _)| key.clone());
        oldest.map(|key| buckets.remove(&key));
    }
}

impl Bucket {
    fn tokens_at(&self, now: Instant) -> f64 {
        let limit = f64::from(self.limit);
        (self.tokens
            + now.saturating_duration_since(self.updated_at).as_secs_f64() * limit / SECONDS_PER_MINUTE)
            .min(limit)
    }

    fn is_full(&self, now: Instant) -> bool {
        self.tokens_at(now) >= f64::from(self.limit)
    }

    fn refill(&mut self, limit: u32, now: Instant) {
        self.limit = limit;
        self.tokens = self.tokens_at(now);
        self.updated_at = now;
    }

    fn take(&mut self) -> Decision {
        let allowed = self.tokens >= 1.0;
        if allowed {
            self.tokens -= 1.0;
        }
        self.decision(allowed)
    }

    fn refund(&mut self) -> Decision {
        self.tokens = (self.tokens + 1.0).min(f64::from(self.limit));
        self.decision(true)
    }

    fn decision(&self, allowed: bool) -> Decision {
        let token_interval = SECONDS_PER_MINUTE / f64::from(self.limit);
        let wait = |tokens: f64| Duration::from_secs_f64((tokens * token_interval).max(0.0));
        Decision {
            limit: self.limit,
            remaining: self.tokens as u32,
            reset: wait(f64::from(self.limit) - self.tokens),
            retry_after: (!allowed).then(|| wait(1.0 - self.tokens)),
        }
    }
}

impl Decision {
    /// Returns the rate limit headers.
    pub fn headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        let named = |name, value: u64| (HeaderName::from_static(name), HeaderValue::from(value));
        let mut headers = vec![
            named("ratelimit-limit", self.limit.into()),
            named("ratelimit-remaining", self.remaining.into()),
            named("ratelimit-reset", whole_seconds(self.reset)),
        ];
        headers.extend(self.retry_after.map(|wait| named("retry-after", whole_seconds(wait).max(1))));
        headers
    }
}

fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter() -> Limiter {
        Limiter {
            enabled: true,
            rates: Rates {
                create: Some(10),
                run: Some(100),
                fork: Some(600),
                files: Some(6000),
                other: Some(1000),
            },
            buckets: Mutex::default(),
        }
    }

    impl Limiter {
        fn take_at(&self, client: &str, class: Class, limit: u32, now: Instant) -> Decision {
            self.with_bucket(client, class, limit, now, Bucket::take)
        }
    }

    #[test]
    fn an_empty_bucket_rejects_requests_until_it_refills() {
        let (limiter, start) = (limiter(), Instant::now());
        let take = |after: u64| limiter.take_at("a", Class::Create, 10, start + Duration::from_secs(after));
        for left in (0..10).rev() {
            let decision = take(0);
            assert_eq!((decision.remaining, decision.retry_after), (left, None));
        }
        assert_eq!(take(0).retry_after, Some(Duration::from_secs(6)));
        assert_eq!(limiter.take_at("b", Class::Create, 10, start).retry_after, None);
        assert_eq!(take(6).retry_after, None);
        assert!(take(6).retry_after.is_some());
    }

    #[test]
    fn a_client_error_is_counted_in_a_separate_bucket() {
        let limiter = limiter();
        let rates = Rates { create: Some(2), other: Some(3), ..limiter.rates() };
        for _ in 0..3 {
            assert!(limiter.client_errors("a", rates).unwrap().retry_after.is_none());
            assert_eq!(limiter.take("a", Class::Create, rates).unwrap().retry_after, None);
            assert_eq!(limiter.refund("a", Class::Create, rates).unwrap().remaining, 2);
        }
        assert!(limiter.client_errors("a", rates).unwrap().retry_after.is_some());
        assert_eq!(limiter.take("a", Class::Other, rates).unwrap().remaining, 2);
        assert_eq!(limiter.take("a", Class::Create, Rates::UNLIMITED), None);
    }

    #[test]
    fn the_number_of_buckets_is_bounded() {
        let (limiter, start) = (limiter(), Instant::now());
        for number in 0..BUCKETS_MAX + 100 {
            limiter.take_at(&number.to_string(), Class::Other, 10, start);
        }
        assert_eq!(limiter.buckets.lock().len(), BUCKETS_MAX);
        limiter.take_at("later", Class::Other, 10, start + Duration::from_secs(60));
        assert_eq!(limiter.buckets.lock().len(), 1);
    }

    #[test]
    fn create_run_fork_and_file_requests_have_separate_classes() {
        let class = |method, route: &str| Class::for_request(&method, Some(route));
        assert_eq!(class(Method::POST, "/api/v1/sandboxes"), Class::Create);
        assert_eq!(class(Method::GET, "/api/v1/sandboxes"), Class::Other);
        assert_eq!(class(Method::POST, "/api/v1/sandboxes/{id}/process/run"), Class::Run);
        assert_eq!(class(Method::POST, "/api/v1/sandboxes/{id}/pty"), Class::Run);
        assert_eq!(class(Method::DELETE, "/api/v1/sandboxes/{id}/pty/{pty}"), Class::Other);
        assert_eq!(class(Method::POST, "/api/v1/sandboxes/{id}/fork"), Class::Fork);
        for path in ["files", "files/{*path}", "entries/", "watch/{*path}", "ports", "ports/{port}/connect"] {
            assert_eq!(
                class(Method::GET, &format!("/api/v1/sandboxes/{{id}}/{path}")),
                Class::Files,
                "{path}"
            );
        }
        assert_eq!(class(Method::GET, "/api/v1/snapshots/{id}/files/{*path}"), Class::Other);
    }
}
