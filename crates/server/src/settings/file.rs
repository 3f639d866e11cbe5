//! Parser of the settings file: TOML with one key per setting and no tables.

use std::collections::BTreeMap;

use super::error::SettingError;
use super::source::RawValue;
use super::table::TABLE;

/// Parses a settings file. Returns the values by name, and the errors.
pub(super) fn parse(text: &str) -> (BTreeMap<String, RawValue>, Vec<SettingError>) {
    let table: toml::Table = match toml::from_str(text) {
        Ok(table) => table,
        Err(error) => return (BTreeMap::new(), vec![syntax_error(text, &error)]),
    };
    let (mut values, mut errors) = (BTreeMap::new(), Vec::new());
    for (key, value) in table {
        if !TABLE.iter().any(|declared| declared.name == key) {
            errors.push(SettingError::Unknown { hint: hint(&key), key });
        } else if let Some(raw) = raw_value(&value) {
            values.insert(key, raw);
        } else {
            let value = match value {
                toml::Value::Array(_) => "a list with something else in it",
                toml::Value::Datetime(_) => "a date or time",
                _ => "a table",
            };
            let value = value.to_owned();
            let allowed = "text, a number, true, false, or a list of these";
            errors.push(SettingError::Value { name: key, value, allowed });
        }
    }
    (values, errors)
}

/// Creates the error for a file that is not TOML. It names only the line number, because the text of the line may
/// contain a secret.
fn syntax_error(text: &str, error: &toml::de::Error) -> SettingError {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    SettingError::Syntax { line, reason: error.message().to_owned() }
}

fn raw_value(value: &toml::Value) -> Option<RawValue> {
    match value {
        toml::Value::Array(items) => items.iter().map(text).collect::<Option<_>>().map(RawValue::List),
        other => text(other).map(RawValue::Text),
    }
}

fn text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(on) => Some(if *on { "on" } else { "off" }.to_owned()),
        toml::Value::Datetime(_) | toml::Value::Array(_) | toml::Value::Table(_) => None,
    }
}

fn hint(key: &str) -> String {
    let key = key.to_ascii_lowercase();
    let nearest = TABLE.iter().map(|declared| (distance(&key, declared.name), declared.name)).min();
    match nearest {
        Some((distance, name)) if distance <= 1 + name.len() / 4 => format!("; did you mean `{name}`?"),
        _ => String::new(),
    }
}

/// Returns the edit distance (Levenshtein) of two words.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, against) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(letter != against);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::{distance, parse};

    #[test]
    fn messages_say_what_is_wrong_and_where() {
        let message =
            |text: &str| parse(text).1.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let allowed = "allowed: text, a number, true, false, or a list of these";
        for (value, what) in [
            ("[[1]]", "a list with something else in it"),
            ("[{ a = 1 }]", "a list with something else in it"),
            ("{ a = 1 }", "a table"),
            ("2020-01-01", "a date or time"),
        ] {
            assert_eq!(message(&format!("log_format = {value}")), format!("log_format is {what}; {allowed}"));
        }
        let syntax = message("# a comment\nlog_format = secret\n");
        assert!(syntax.starts_with("the settings file is not TOML at line 2: "), "{syntax}");
        assert!(!syntax.contains("secret"), "{syntax}");
    }

    #[test]
    fn the_distance_counts_edits() {
        assert_eq!(distance("api_port", "api_port"), 0);
        assert_eq!(distance("api_prt", "api_port"), 1);
        assert_eq!(distance("", "abc"), 3);
    }
}
