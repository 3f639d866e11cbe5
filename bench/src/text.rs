//! Text that resembles source code: to compressors, to chunking and to a reader.
//!
//! Each file has its own identifiers, made of common words and used repeatedly with a skew, in line shapes of
//! its language. Deflate compresses the result about as well as real source trees (3 to 4 times).

use std::sync::LazyLock;

use crate::rng::Rng;

/// Language of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    /// Rust, C, TypeScript and their like.
    Braces,
    /// Python and its like.
    Indented,
    /// Prose with headings and lists.
    Prose,
    /// Keys and values.
    Data,
}

/// Vocabulary of names and prose.
static WORDS: LazyLock<Vec<&str>> =
    LazyLock::new(|| include_str!("vocabulary.txt").split_whitespace().collect());

/// Function words between other words.
static GLUE: LazyLock<Vec<&str>> = LazyLock::new(|| {
    "the a of and is to in that it for when with not be are this which by an from or must \
     only has every before after no one then"
        .split_whitespace()
        .collect()
});

const TYPES: &[&str] =
    &["u64", "usize", "bool", "&str", "String", "Vec<u8>", "i32", "Option<u64>", "&[u8]", "Result<()>"];

// Placeholders of a shape: `$i` an identifier, `$T` a type name made from an identifier, `$t` a built-in
// type, `$n` a number, `$s` a short phrase, `$w` a word, `>` at the end opens a block, `<` at the beginning
// closes one.
const BRACES: &[&str] = &[
    "let $i = $i.$i($i);",
    "let mut $i = $T::new();",
    "if $i.$i() == $n {>",
    "if $i.is_empty() || $i > $n {>",
    "<}",
    "<}",
    "<}",
    "<} else {>",
    "for $i in $i.$i() {>",
    "while let Some($i) = $i.next() {>",
    "match $i.$i {>",
    "$T::$T($i) => $i.$i($i),",
    "return Err($T::$T { $i, $i: $i.len() });",
    "$i.$i($i, $n)?;",
    "self.$i = $i;",
    "self.$i.$i(&$i).await?;",
    "// $s",
    "// $s",
    "/// $s.",
    "pub fn $i(&self, $i: $t) -> $t {>",
    "fn $i($i: $t, $i: $t) {>",
    "pub struct $T {>",
    "pub $i: $t,",
    "$i: $t,",
    "assert_eq!($i.$i(), $n);",
    "const $i: $t = $n;",
    "use crate::$w::{$T, $T};",
    "use $w::$w::$T;",
    "#[derive(Clone, Debug)]",
    "\"$s\",",
    "println!(\"$s: {}\", $i);",
    "",
    "",
    "",
];

const INDENTED: &[&str] = &[
    "$i = $i.$i($i)",
    "$i = [$i for $i in $i if $i.$w]",
    "if $i is None:>",
    "if not $i or $i > $n:>",
    "<",
    "<",
    "<",
    "<else:>",
    "for $i in $i.$i():>",
    "def $i(self, $i, $i=None):>",
    "class $T($T):>",
    "\"\"\"$s.\"\"\"",
    "return $i",
    "return self.$i($i, $i=$i)",
    "self.$i = $i",
    "# $s",
    "raise ValueError(f\"$s: {$i}\")",
    "from $w.$w import $T, $i",
    "import $w",
    "assert $i == $n",
    "with $i.$i() as $i:>",
    "logger.info(\"$s\", $i)",
    "",
    "",
    "",
];

const PROSE: &[&str] = &[
    "$s, $s. $s.",
    "$s. $s, $s.",
    "$s; $s.",
    "- `$i`: $s",
    "* $s",
    "## $s",
    "| $w | $n | $s |",
    "    $i --$w $n",
    "",
    "",
];

const DATA: &[&str] = &[
    "\"$i\": \"$s\",",
    "\"$i\": $n,",
    "\"$i\": true,",
    "\"$i\": \"$w/$w/$i\",",
    "\"$i\": {>",
    "<},",
    "<},",
    "\"$w\": [$n, $n, $n],",
];

enum Token {
    Literal(&'static str),
    Identifier,
    TypeName,
    BuiltIn,
    Number,
    Phrase,
    Word,
}

struct Shape {
    closes: bool,
    opens: bool,
    tokens: Vec<Token>,
}

/// Line shapes of every language, parsed once.
pub(crate) struct Writer {
    braces: Vec<Shape>,
    indented: Vec<Shape>,
    prose: Vec<Shape>,
    data: Vec<Shape>,
}

/// Identifiers of one file.
struct Identifiers {
    names: Vec<String>,
    types: Vec<String>,
}

impl Writer {
    /// Parses the shapes.
    pub(crate) fn new() -> Self {
        let all = |shapes: &[&'static str]| shapes.iter().map(|shape| parse(shape)).collect();
        Self { braces: all(BRACES), indented: all(INDENTED), prose: all(PROSE), data: all(DATA) }
    }

    /// Returns `size` bytes of text in `language`, ending with a newline.
    pub(crate) fn text(&self, rng: &mut Rng, language: Language, size: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(size + 256);
        let identifiers = Identifiers::new(rng, 12 + size.min(64 << 10) / 220);
        let mut depth = 0;
        while out.len() < size {
            self.line(rng, language, &identifiers, &mut depth, &mut out);
        }
        out.truncate(size);
        if let Some(last) = out.last_mut() {
            *last = b'\n';
        }
        out
    }

    /// Appends a single line, as an edit would insert it.
    pub(crate) fn single_line(&self, rng: &mut Rng, language: Language, out: &mut Vec<u8>) {
        let identifiers = Identifiers::new(rng, 6);
        self.line(rng, language, &identifiers, &mut 1, out);
    }

    fn shapes(&self, language: Language) -> &[Shape] {
        match language {
            Language::Braces => &self.braces,
            Language::Indented => &self.indented,
            Language::Prose => &self.prose,
            Language::Data => &self.data,
        }
    }

    fn line(
        &self,
        rng: &mut Rng,
        language: Language,
        identifiers: &Identifiers,
        depth: &mut usize,
        out: &mut Vec<u8>,
    ) {
        const INDENT: &[u8] = &[b' '; 32];
        let shape = rng.pick(self.shapes(language));
        if shape.closes {
            *depth = depth.saturating_sub(1);
        }
        out.extend_from_slice(&INDENT[..(*depth).min(8) * 4]);
        for token in &shape.tokens {
            write_token(rng, token, identifiers, out);
        }
        out.push(b'\n');
        if shape.opens {
            *depth = (*depth + 1) % 7;
        }
    }
}

impl Identifiers {
    fn new(rng: &mut Rng, count: usize) -> Self {
        let names = (0..count).map(|_| identifier(rng)).collect();
        let types = (0..count / 3 + 2).map(|_| type_name(rng)).collect();
        Self { names, types }
    }
}

/// Returns a word of the vocabulary.
pub(crate) fn word(rng: &mut Rng) -> &'static str {
    WORDS[rng.below(WORDS.len())]
}

fn parse(shape: &'static str) -> Shape {
    let closes = shape.starts_with('<');
    let body = shape.strip_prefix('<').unwrap_or(shape);
    let opens = body.ends_with('>') && !body.ends_with("=>");
    let body = if opens { &body[..body.len() - 1] } else { body };
    let mut parts = body.split('$');
    let mut tokens: Vec<Token> = parts.next().map(Token::Literal).into_iter().collect();
    for part in parts {
        let (kind, rest) = part.split_at(1);
        tokens.push(match kind {
            "i" => Token::Identifier,
            "T" => Token::TypeName,
            "t" => Token::BuiltIn,
            "n" => Token::Number,
            "s" => Token::Phrase,
            _ => Token::Word,
        });
        tokens.push(Token::Literal(rest));
    }
    Shape { closes, opens, tokens }
}

fn write_token(rng: &mut Rng, token: &Token, identifiers: &Identifiers, out: &mut Vec<u8>) {
    match token {
        Token::Literal(text) => out.extend_from_slice(text.as_bytes()),
        Token::Identifier => out.extend_from_slice(skewed(rng, &identifiers.names).as_bytes()),
        Token::TypeName => out.extend_from_slice(skewed(rng, &identifiers.types).as_bytes()),
        Token::BuiltIn => out.extend_from_slice(rng.pick(TYPES).as_bytes()),
        Token::Number => write_number(rng, out),
        Token::Phrase => write_phrase(rng, out),
        Token::Word => out.extend_from_slice(word(rng).as_bytes()),
    }
}

/// Returns an item; early ones are more frequent, like the main names of a file.
fn skewed<'a>(rng: &mut Rng, items: &'a [String]) -> &'a str {
    let within = rng.between(1, items.len());
    &items[rng.below(within)]
}

fn write_number(rng: &mut Rng, out: &mut Vec<u8>) {
    let digits = rng.between(1, 4);
    for _ in 0..digits {
        out.push(b'0' + rng.below(10) as u8);
    }
}

fn write_phrase(rng: &mut Rng, out: &mut Vec<u8>) {
    for position in 0..rng.between(3, 9) {
        if position > 0 {
            out.push(b' ');
        }
        let glue = rng.one_in(2);
        let text = if glue { rng.pick(&GLUE) } else { rng.pick(&WORDS) };
        out.extend_from_slice(text.as_bytes());
    }
}

fn identifier(rng: &mut Rng) -> String {
    let mut name = word(rng).to_owned();
    for _ in 0..rng.below(3) {
        name.push('_');
        name.push_str(word(rng));
    }
    name
}

fn type_name(rng: &mut Rng) -> String {
    (0..rng.between(1, 2))
        .map(|_| {
            let part = word(rng);
            format!("{}{}", part[..1].to_uppercase(), &part[1..])
        })
        .collect()
}
