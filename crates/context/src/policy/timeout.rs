//! Timeout of reviews (conflicts and changes that wait for a decision), as a rule of a policy has it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Time for the decision of a review: seconds, or a text such as `90s`, `5m`, `2h` or `1d`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ReviewTimeout {
    /// Number of seconds.
    Seconds(u64),
    /// Number with a unit.
    Text(String),
}

impl ReviewTimeout {
    /// Returns the time; `None` if it is no duration, zero, or longer than `u32::MAX` seconds.
    pub fn duration(&self) -> Option<Duration> {
        let seconds = match self {
            Self::Seconds(seconds) => Some(*seconds),
            Self::Text(text) => parse_seconds(text),
        };
        seconds.filter(|seconds| (1..=u64::from(u32::MAX)).contains(seconds)).map(Duration::from_secs)
    }
}

fn parse_seconds(text: &str) -> Option<u64> {
    let number = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let unit = match &text[number.len()..] {
        "" | "s" => 1,
        "m" | "min" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_seconds_or_texts_with_a_unit() {
        for (json, seconds) in [
            ("90", Some(90)),
            ("\"90\"", Some(90)),
            ("\"90s\"", Some(90)),
            ("\"5m\"", Some(300)),
            ("\"2h\"", Some(7_200)),
            ("\"1d\"", Some(86_400)),
            ("0", None),
            ("4294967296", None),
            ("\"\"", None),
            ("\"m\"", None),
            ("\"-1m\"", None),
            ("\"1w\"", None),
            ("\"99999999999999999999d\"", None),
            ("\"9999999999999999999d\"", None),
            ("\"5分\"", None),
        ] {
            let timeout: ReviewTimeout = serde_json::from_str(json).unwrap();
            assert_eq!(timeout.duration().map(|duration| duration.as_secs()), seconds, "{json}");
        }
    }
}
