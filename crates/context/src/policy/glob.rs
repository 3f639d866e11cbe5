//! Globs for one name: a component of a path, or the name of an agent.
//!
//! | syntax | matches |
//! |---|---|
//! | `*` | any number of characters, also none and a leading dot |
//! | `?` | one character |
//! | `[abc]`, `[a-z]` | one of these characters |
//! | `[!abc]`, `[^abc]` | one other character |
//! | `{a,b}` | one of the alternatives, which may contain the wildcards above |
//! | `\x` | the character `x` itself |
//!
//! Names are bytes. A byte that is not part of valid UTF-8 counts as one character, which no class lists.

/// Maximum number of alternatives of a glob after its braces are expanded.
const ALTERNATIVES_MAX: usize = 64;
/// Maximum number of `*` in an alternative.
const STARS_MAX: usize = 8;

/// Reason why a glob is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum GlobError {
    #[error("`[` has no matching `]`: add it, or write `\\[` for the character itself")]
    UnclosedClass,
    #[error("the class `[]` is empty: list its characters, or write `\\[` for the character itself")]
    EmptyClass,
    #[error("the range `{from}-{to}` is empty: write the lower character first")]
    EmptyRange { from: char, to: char },
    #[error("`{{` has no matching `}}` before the next `/`: close it, or use a rule for each alternative")]
    UnclosedBrace,
    #[error("`}}` has no matching `{{`: remove it, or write `\\}}` for the character itself")]
    UnopenedBrace,
    #[error("braces cannot be nested: list all alternatives in one pair")]
    NestedBraces,
    #[error("`\\` must be followed by a character: write `\\\\` for the character itself")]
    TrailingBackslash,
    #[error("more than {ALTERNATIVES_MAX} alternatives: use several rules")]
    TooManyAlternatives,
    #[error("more than {STARS_MAX} `*` in one name: use fewer")]
    TooManyStars,
    #[error("`**` must be a whole component, as in `a/**/b`: write `*` to match within one name")]
    RecursiveInName,
    #[error("a character is NUL, which no name contains: remove it")]
    Nul,
}

/// Part of a glob without alternatives: text, `*`, `?` or a class.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Literal(Vec<u8>),
    AnyRun,
    AnyCharacter,
    Class { negated: bool, ranges: Vec<(char, char)> },
}

/// Glob without alternatives, in the form that is matched fastest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Alternative {
    /// Exactly this name.
    Literal(Box<[u8]>),
    /// `*`
    Any,
    /// `*.ext`: names with these bytes after the last dot.
    Extension(Box<[u8]>),
    /// Any other glob.
    Tokens(Tokens),
}

/// Sequence of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tokens(Box<[Token]>);

/// A parsed glob: it matches if one of its alternatives does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glob(Box<[Alternative]>);

impl Glob {
    /// Parses a glob.
    pub(crate) fn parse(text: &str) -> Result<Self, GlobError> {
        let mut parser = Parser { rest: text };
        let sequences = parser.sequences()?;
        let alternatives: Result<Vec<_>, _> = sequences.into_iter().map(Alternative::new).collect();
        Ok(Self(alternatives?.into()))
    }

    pub(crate) fn alternatives(&self) -> &[Alternative] {
        &self.0
    }

    /// Returns the only name that matches; `None` if the glob has wildcards or several alternatives.
    pub(crate) fn literal(&self) -> Option<&[u8]> {
        match &*self.0 {
            [Alternative::Literal(name)] => Some(name),
            _ => None,
        }
    }

    /// Returns true for `*`.
    pub(crate) fn is_any(&self) -> bool {
        matches!(&*self.0, [Alternative::Any])
    }

    pub(crate) fn is_match(&self, name: &[u8]) -> bool {
        self.0.iter().any(|alternative| alternative.is_match(name))
    }
}

impl Alternative {
    fn new(tokens: Vec<Token>) -> Result<Self, GlobError> {
        if tokens.windows(2).any(|pair| pair == [Token::AnyRun, Token::AnyRun]) {
            return Err(GlobError::RecursiveInName);
        }
        if tokens.iter().filter(|token| **token == Token::AnyRun).count() > STARS_MAX {
            return Err(GlobError::TooManyStars);
        }
        Ok(match tokens.as_slice() {
            [] => Self::Literal(Box::default()),
            [Token::Literal(name)] => Self::Literal(name.clone().into()),
            [Token::AnyRun] => Self::Any,
            [Token::AnyRun, Token::Literal(suffix)] if is_extension(suffix) => {
                Self::Extension(suffix[1..].into())
            }
            _ => Self::Tokens(Tokens(tokens.into())),
        })
    }

    fn is_match(&self, name: &[u8]) -> bool {
        match self {
            Self::Literal(literal) => **literal == *name,
            Self::Any => true,
            Self::Extension(extension) => extension_of(name) == Some(extension),
            Self::Tokens(tokens) => tokens.is_match(name),
        }
    }
}

/// Returns true for a dot with no other dot after it.
fn is_extension(suffix: &[u8]) -> bool {
    suffix.first() == Some(&b'.') && !suffix[1..].contains(&b'.')
}

/// Returns the extension of a name: the bytes after its last dot. `None` if the name has no dot.
pub(crate) fn extension_of(name: &[u8]) -> Option<&[u8]> {
    name.iter().rposition(|byte| *byte == b'.').map(|dot| &name[dot + 1..])
}

impl Tokens {
    /// Returns the byte that every matching name starts with; `None` if matching names start with different bytes.
    pub(crate) fn first_byte(&self) -> Option<u8> {
        match self.0.first() {
            Some(Token::Literal(prefix)) => prefix.first().copied(),
            _ => None,
        }
    }

    /// Returns true if a name matches. Backtracks only to the last `*`, which then takes one more character: an earlier
    /// `*` need not take more. So the cost is at most the length of the name times that of the glob.
    pub(crate) fn is_match(&self, name: &[u8]) -> bool {
        if !self.has_literal_ends(name) {
            return false;
        }
        let tokens = &*self.0;
        let (mut token, mut rest) = (0, name);
        let mut retry: Option<(usize, &[u8])> = None;
        loop {
            match tokens.get(token) {
                Some(Token::AnyRun) => {
                    token += 1;
                    retry = Some((token, rest));
                    continue;
                }
                Some(other) => {
                    if let Some(after) = other.strip(rest) {
                        (token, rest) = (token + 1, after);
                        continue;
                    }
                }
                None if rest.is_empty() => return true,
                None => {}
            }
            match retry {
                Some((after_star, from)) if !from.is_empty() => {
                    let from = &from[first_character(from).1..];
                    retry = Some((after_star, from));
                    (token, rest) = (after_star, from);
                }
                _ => return false,
            }
        }
    }

    /// Returns true if a name has the literal start and end of the glob. This cheap test rejects most names.
    fn has_literal_ends(&self, name: &[u8]) -> bool {
        let starts = match self.0.first() {
            Some(Token::Literal(prefix)) => name.starts_with(prefix),
            _ => true,
        };
        starts
            && match self.0.last() {
                Some(Token::Literal(suffix)) => name.ends_with(suffix),
                _ => true,
            }
    }
}

impl Token {
    /// Removes a match of the token from the start of `name`; `None` if the token does not match there.
    fn strip<'n>(&self, name: &'n [u8]) -> Option<&'n [u8]> {
        match self {
            Self::Literal(literal) => name.strip_prefix(literal.as_slice()),
            Self::AnyRun => Some(name),
            Self::AnyCharacter if name.is_empty() => None,
            Self::AnyCharacter => Some(&name[first_character(name).1..]),
            Self::Class { .. } if name.is_empty() => None,
            Self::Class { negated, ranges } => {
                let (character, len) = first_character(name);
                let is_listed =
                    character.is_some_and(|it| ranges.iter().any(|(from, to)| (*from..=*to).contains(&it)));
                (is_listed != *negated).then(|| &name[len..])
            }
        }
    }
}

/// Returns the first character of a name, which must not be empty, and the length of the character in bytes. Returns
/// `None` and 1 for a byte that is not valid UTF-8.
fn first_character(name: &[u8]) -> (Option<char>, usize) {
    let start = &name[..name.len().min(4)];
    let valid = match std::str::from_utf8(start) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&start[..error.valid_up_to()]).unwrap_or_default(),
    };
    match valid.chars().next() {
        Some(character) => (Some(character), character.len_utf8()),
        None => (None, 1),
    }
}

struct Parser<'t> {
    /// Text that is not parsed yet.
    rest: &'t str,
}

impl Parser<'_> {
    fn next(&mut self) -> Option<char> {
        let character = self.rest.chars().next()?;
        self.rest = &self.rest[character.len_utf8()..];
        Some(character)
    }

    /// Parses the glob into sequences of tokens, one for each combination of alternatives.
    fn sequences(&mut self) -> Result<Vec<Vec<Token>>, GlobError> {
        let mut sequences = vec![Vec::new()];
        while let Some(character) = self.next() {
            if character == '{' {
                let options = self.options()?;
                if sequences.len().saturating_mul(options.len()) > ALTERNATIVES_MAX {
                    return Err(GlobError::TooManyAlternatives);
                }
                sequences = combine(&sequences, &options);
            } else {
                let token = self.token(character)?;
                sequences.iter_mut().for_each(|sequence| push(sequence, token.clone()));
            }
        }
        Ok(sequences)
    }

    /// Parses alternatives up to the closing brace.
    fn options(&mut self) -> Result<Vec<Vec<Token>>, GlobError> {
        let mut options = vec![Vec::new()];
        loop {
            match self.next().ok_or(GlobError::UnclosedBrace)? {
                '}' => return Ok(options),
                '{' => return Err(GlobError::NestedBraces),
                ',' => options.push(Vec::new()),
                character => {
                    let token = self.token(character)?;
                    if let Some(option) = options.last_mut() {
                        push(option, token);
                    }
                }
            }
            if options.len() > ALTERNATIVES_MAX {
                return Err(GlobError::TooManyAlternatives);
            }
        }
    }

    fn token(&mut self, character: char) -> Result<Token, GlobError> {
        Ok(match character {
            '*' => Token::AnyRun,
            '?' => Token::AnyCharacter,
            '[' => self.class()?,
            '}' => return Err(GlobError::UnopenedBrace),
            '\0' => return Err(GlobError::Nul),
            '\\' => literal(self.next().ok_or(GlobError::TrailingBackslash)?),
            character => literal(character),
        })
    }

    /// Parses a class after its opening bracket.
    fn class(&mut self) -> Result<Token, GlobError> {
        let negated = self.rest.starts_with(['!', '^']);
        if negated {
            self.next();
        }
        let mut ranges = Vec::new();
        loop {
            let from = match self.next().ok_or(GlobError::UnclosedClass)? {
                ']' if ranges.is_empty() => return Err(GlobError::EmptyClass),
                ']' => return Ok(Token::Class { negated, ranges }),
                '\\' => self.next().ok_or(GlobError::UnclosedClass)?,
                character => character,
            };
            let is_range = self.rest.starts_with('-') && !self.rest.starts_with("-]");
            let to = if is_range { self.range_end()? } else { from };
            if from > to {
                return Err(GlobError::EmptyRange { from, to });
            }
            ranges.push((from, to));
        }
    }

    /// Parses the `-` of a range and the character after it.
    fn range_end(&mut self) -> Result<char, GlobError> {
        self.next();
        match self.next().ok_or(GlobError::UnclosedClass)? {
            '\\' => self.next().ok_or(GlobError::UnclosedClass),
            character => Ok(character),
        }
    }
}

fn literal(character: char) -> Token {
    Token::Literal(character.to_string().into_bytes())
}

/// Appends a token. Joins adjacent literals.
fn push(sequence: &mut Vec<Token>, token: Token) {
    match (sequence.last_mut(), token) {
        (Some(Token::Literal(last)), Token::Literal(more)) => last.extend(more),
        (_, token) => sequence.push(token),
    }
}

/// Returns each sequence followed by each option.
fn combine(sequences: &[Vec<Token>], options: &[Vec<Token>]) -> Vec<Vec<Token>> {
    let mut combined = Vec::with_capacity(sequences.len() * options.len());
    for sequence in sequences {
        for option in options {
            let mut sequence = sequence.clone();
            option.iter().for_each(|token| push(&mut sequence, token.clone()));
            combined.push(sequence);
        }
    }
    combined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(glob: &str, name: impl AsRef<[u8]>) -> bool {
        Glob::parse(glob).unwrap().is_match(name.as_ref())
    }

    #[test]
    fn wildcards_match_within_a_name() {
        for (glob, yes, no) in [
            ("a", vec!["a"], vec!["b", "", "aa"]),
            ("*", vec!["", "a", ".hidden"], vec![]),
            ("*.md", vec!["a.md", ".md", "a.b.md"], vec!["md", "a.mdx", "a.md.txt"]),
            ("*.tar.gz", vec!["a.tar.gz", ".tar.gz"], vec!["a.gz", "a.tar.gz.sig"]),
            ("a*b*c", vec!["abc", "aXbYc", "abbcc"], vec!["ab", "acb", "Xabc"]),
            ("?", vec!["a", "é", "猫"], vec!["", "ab"]),
            ("[a-c]x", vec!["ax", "cx"], vec!["dx", "x"]),
            ("[!a-c]x", vec!["dx", "éx"], vec!["ax", "x"]),
            ("[^a]", vec!["b"], vec!["a"]),
            ("[a-]", vec!["a", "-"], vec!["b"]),
            ("[\\]]", vec!["]"], vec!["\\"]),
            ("\\*", vec!["*"], vec!["a"]),
            ("{a,b*}c", vec!["ac", "bc", "bxc"], vec!["c", "abc"]),
            ("x{,.y}", vec!["x", "x.y"], vec!["y"]),
            ("{a,b}{c,d}", vec!["ac", "bd"], vec!["ab"]),
            ("*[é-ü]", vec!["xé", "ö"], vec!["xa"]),
            ("a,b", vec!["a,b"], vec!["a"]),
        ] {
            for name in yes {
                assert!(matches(glob, name), "{glob} should match {name}");
            }
            for name in no {
                assert!(!matches(glob, name), "{glob} should not match {name}");
            }
        }
    }

    #[test]
    fn an_invalid_byte_is_one_character_outside_every_class() {
        assert!(matches("?", b"\xff") && matches("a?b", b"a\xffb") && matches("*\\?", b"\xff\xfe?"));
        assert!(matches("[!a]", b"\xff") && !matches("[a-z]", b"\xff"));
        assert!(!matches("?", b"\xff\xff") && !matches("?", "é".as_bytes().repeat(2)));
    }

    #[test]
    fn invalid_globs_are_rejected() {
        for (glob, error) in [
            ("[a", GlobError::UnclosedClass),
            ("[]", GlobError::EmptyClass),
            ("[z-a]", GlobError::EmptyRange { from: 'z', to: 'a' }),
            ("{a", GlobError::UnclosedBrace),
            ("a}", GlobError::UnopenedBrace),
            ("{a,{b}}", GlobError::NestedBraces),
            ("a\\", GlobError::TrailingBackslash),
            ("a**", GlobError::RecursiveInName),
            ("x{*,y}*", GlobError::RecursiveInName),
            ("a\0", GlobError::Nul),
            ("*a*a*a*a*a*a*a*a*a", GlobError::TooManyStars),
            ("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", GlobError::TooManyAlternatives),
        ] {
            assert_eq!(Glob::parse(glob), Err(error), "{glob}");
        }
        let many = format!("{{{}}}", ",".repeat(1_000));
        assert_eq!(Glob::parse(&many), Err(GlobError::TooManyAlternatives));
    }

    #[test]
    fn stars_do_not_make_a_match_exponential() {
        let glob = Glob::parse("*a*a*a*a*a*a*a*b").unwrap();
        assert!(!glob.is_match(&[b'a'; 255]));
        assert!(glob.is_match(&[&[b'a'; 254][..], b"b"].concat()));
    }

    #[test]
    fn common_forms_are_recognised() {
        let form = |text: &str| Glob::parse(text).unwrap().alternatives()[0].clone();
        assert_eq!(form("*.rs"), Alternative::Extension(b"rs"[..].into()));
        assert_eq!(form("a\\*"), Alternative::Literal(b"a*"[..].into()));
        assert!(matches!(form("*.tar.gz"), Alternative::Tokens(_)));
        assert!(Glob::parse("*").unwrap().is_any());
    }
}
