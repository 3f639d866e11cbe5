//! Enums that are words in the database and in the interface.

/// Declares an enum of which each value has one word, with `as_str`, `Display` and `FromStr`.
macro_rules! words {
    (
        $(#[$about:meta])*
        pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word for it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::error::CatalogError;

            fn from_str(word: &str) -> $crate::error::Result<Self> {
                let found = Self::ALL.iter().copied().find(|it| it.as_str() == word);
                found.ok_or_else(|| $crate::error::CatalogError::UnknownWord {
                    what: stringify!($name),
                    word: word.to_owned(),
                })
            }
        }
    };
}

pub(crate) use words;
