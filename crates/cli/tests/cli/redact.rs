//! Replaces the parts of a text that differ from run to run: ids, hashes, times.

/// Replaces each id by a number, the same id by the same number.
#[derive(Default)]
pub(crate) struct Redactor {
    seen: Vec<String>,
}

impl Redactor {
    pub(crate) fn redact(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            let boundary = !out.ends_with(|character: char| character.is_ascii_alphanumeric());
            let found = if boundary { self.find(rest) } else { None };
            let (len, shown) = found.unwrap_or_else(|| {
                let first = rest.chars().next().unwrap();
                (first.len_utf8(), first.to_string())
            });
            out.push_str(&shown);
            rest = &rest[len..];
        }
        out
    }

    fn find(&mut self, text: &str) -> Option<(usize, String)> {
        const PATTERNS: [(&str, &str); 5] = [
            ("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", "id"),
            ("9999-99-99 99:99:99 +99:99", ""),
            ("9999-99-99T99:99:99.999999999Z", ""),
            ("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "hash"),
            ("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "commit"),
        ];
        let (pattern, name) = PATTERNS.iter().find(|(pattern, _)| fits(pattern, text))?;
        let shown = match *name {
            "" => "[time]".to_owned(),
            name => format!("[{name} {}]", self.number(&text[..pattern.len()])),
        };
        Some((pattern.len(), shown))
    }

    fn number(&mut self, id: &str) -> usize {
        match self.seen.iter().position(|seen| seen == id) {
            Some(at) => at + 1,
            None => {
                self.seen.push(id.to_owned());
                self.seen.len()
            }
        }
    }
}

/// `x` stands for a hexadecimal digit and `9` for a decimal one.
fn fits(pattern: &str, text: &str) -> bool {
    let mut characters = text.chars();
    let all = pattern.chars().all(|wanted| {
        characters.next().is_some_and(|character| match wanted {
            'x' => character.is_ascii_hexdigit(),
            '9' => character.is_ascii_digit(),
            other => character == other,
        })
    });
    all && !characters.next().is_some_and(|character| character.is_ascii_hexdigit())
}

#[test]
fn ids_become_numbers_and_times_go() {
    let id = "01a1dd19-2f47-7580-a257-4842c3d9f155";
    let text = format!("{id} 2026-11-15 02:46:17 +00:00 {id} {}", "ab".repeat(32));
    assert_eq!(Redactor::default().redact(&text), "[id 1] [time] [id 1] [hash 2]");
    assert_eq!(Redactor::default().redact("plain é text 12"), "plain é text 12");
}
