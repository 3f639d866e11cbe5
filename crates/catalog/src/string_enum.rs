//! Enums that are stored and serialised as strings.

/// Declares an enum with a string for each variant, and with `as_str`, `Display` and `FromStr`.
macro_rules! string_enum {
    (
        $(#[$about:meta])*
        pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $value:literal,)* }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// All variants.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the string of the variant.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $value,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::error::CatalogError;

            fn from_str(value: &str) -> $crate::error::Result<Self> {
                let found = Self::ALL.iter().copied().find(|it| it.as_str() == value);
                found.ok_or_else(|| $crate::error::CatalogError::UnknownValue {
                    what: stringify!($name),
                    value: value.to_owned(),
                })
            }
        }
    };
}

pub(crate) use string_enum;
