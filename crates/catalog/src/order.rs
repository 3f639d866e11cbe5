//! Order of lists.

/// Order of records by creation. Later ids sort later, so it is the order of their ids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CreationOrder {
    /// Oldest first.
    #[default]
    Oldest,
    /// Newest first.
    Newest,
}

impl CreationOrder {
    /// Returns the operator that selects records after a cursor, and the direction of the order.
    pub(crate) fn sql(self) -> (&'static str, &'static str) {
        match self {
            Self::Oldest => (">", "ASC"),
            Self::Newest => ("<", "DESC"),
        }
    }
}
