//! Parses and formats times.

use std::sync::LazyLock;
use std::{env, fs};

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp as JiffTimestamp, Zoned};
use workspace_state::Timestamp;

/// Examples of accepted times, for messages; [`parse`] lists all forms.
pub(crate) const FORMATS: &str =
    "a date `2026-07-01`, a time `2026-07-01T12:00`, or an age such as `90m`, `36h`, `7d` or `2w`";

/// File with the machine's time zone.
const LOCALTIME_FILE: &str = "/etc/localtime";

/// Time zone of the user (`TZ`), else of the machine, else UTC.
///
/// `TZ` may be the name of a zone. [`TimeZone::system`] looks names up and lists the whole zoneinfo directory for
/// that, also for the symlink `/etc/localtime`. Without `TZ` it is therefore not called; the rules in `/etc/localtime`
/// need no name.
static ZONE: LazyLock<TimeZone> = LazyLock::new(|| {
    if env::var_os("TZ").is_some() {
        return TimeZone::system();
    }
    let local = fs::read(LOCALTIME_FILE).ok().and_then(|rules| TimeZone::tzif("local", &rules).ok());
    local.unwrap_or(TimeZone::UTC)
});

/// Formats a time in the user's time zone, to the second.
pub(crate) fn format(time: Timestamp) -> String {
    instant(time).to_zoned(ZONE.clone()).strftime("%Y-%m-%d %H:%M:%S %:z").to_string()
}

/// Formats a time as RFC 3339 in UTC with nanoseconds: lossless, and sorts as text.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    format!("{:.9}", instant(time))
}

/// Converts a time. Cannot fail: 64 bits of nanoseconds are years 1677 to 2262, and jiff supports years -9999 to 9999.
fn instant(time: Timestamp) -> JiffTimestamp {
    JiffTimestamp::from_nanosecond(i128::from(time.0)).unwrap_or_default()
}

/// Parses a time that a user typed: a date, a date and time with or without a UTC offset, or an age in seconds (`s`),
/// minutes (`m`, `min`), hours (`h`), days (`d`) or weeks (`w`). Ages count back from `now`; without an offset, the
/// time zone is that of `now`.
pub(crate) fn parse(text: &str, now: &Zoned) -> Option<Timestamp> {
    let instant = parse_age(text, now).or_else(|| parse_instant(text, now))?;
    i64::try_from(instant.as_nanosecond()).ok().map(Timestamp)
}

fn parse_age(text: &str, now: &Zoned) -> Option<JiffTimestamp> {
    let number = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let amount: i64 = number.parse().ok().filter(|amount| *amount >= 0)?;
    let seconds = match &text[number.len()..] {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return None,
    };
    let back = jiff::SignedDuration::from_secs(amount.checked_mul(seconds)?);
    now.timestamp().checked_sub(back).ok()
}

fn parse_instant(text: &str, now: &Zoned) -> Option<JiffTimestamp> {
    if let Ok(instant) = text.parse::<JiffTimestamp>() {
        return Some(instant);
    }
    let civil = match text.parse::<DateTime>() {
        Ok(time) => time,
        Err(_) => text.parse::<Date>().ok()?.to_datetime(jiff::civil::Time::midnight()),
    };
    Some(civil.to_zoned(now.time_zone().clone()).ok()?.timestamp())
}

/// Returns the current time in the time zone of the user.
pub(crate) fn now() -> Zoned {
    JiffTimestamp::now().to_zoned(ZONE.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<String> {
        let now: Zoned = "2026-07-10T12:00:00[UTC]".parse().unwrap();
        parse(text, &now).map(rfc3339)
    }

    #[test]
    fn dates_times_and_ages_are_parsed() {
        for (text, time) in [
            ("2026-07-01", "2026-07-01T00:00:00.000000000Z"),
            ("2026-07-01T12:30", "2026-07-01T12:30:00.000000000Z"),
            ("2026-07-01 12:30:01", "2026-07-01T12:30:01.000000000Z"),
            ("2026-07-01T12:30:00+02:00", "2026-07-01T10:30:00.000000000Z"),
            ("7d", "2026-07-03T12:00:00.000000000Z"),
            ("2w", "2026-06-26T12:00:00.000000000Z"),
            ("90m", "2026-07-10T10:30:00.000000000Z"),
        ] {
            assert_eq!(parsed(text).as_deref(), Some(time), "{text}");
        }
        for text in ["", "yesterday", "7", "-7d", "7y", "2026-13-01", "99999999999999999d"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn a_time_before_the_epoch_is_formatted() {
        assert_eq!(rfc3339(Timestamp(-1)), "1969-12-31T23:59:59.999999999Z");
    }

    #[test]
    fn the_first_and_last_times_are_formatted() {
        assert_eq!(rfc3339(Timestamp(i64::MIN)), "1677-09-21T00:12:43.145224192Z");
        assert_eq!(rfc3339(Timestamp(i64::MAX)), "2262-04-11T23:47:16.854775807Z");
    }
}
