//! Sets of rights.

use workspace_api::access::Right;

/// Set of rights of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rights(u8);

impl Rights {
    /// Returns the bits of the set, as they are in tokens.
    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    /// Returns the set with these bits; `None` if one of them is no right.
    pub(crate) fn from_bits(bits: u8) -> Option<Self> {
        let known: Self = Right::ALL.into_iter().collect();
        (bits & !known.0 == 0).then_some(Self(bits))
    }

    /// Returns true if the set contains a right.
    pub fn contains(self, right: Right) -> bool {
        self.0 & bit(right) != 0
    }

    /// Returns the rights in the order of their declaration.
    pub fn to_vec(self) -> Vec<Right> {
        Right::ALL.into_iter().filter(|right| self.contains(*right)).collect()
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        Self(rights.into_iter().fold(0, |bits, right| bits | bit(right)))
    }
}

/// Returns the bit of a right. Tokens contain it, so it never changes.
fn bit(right: Right) -> u8 {
    match right {
        Right::FilesRead => 1,
        Right::FilesWrite => 1 << 1,
        Right::Process => 1 << 2,
        Right::Terminal => 1 << 3,
        Right::Ports => 1 << 4,
        Right::Lifecycle => 1 << 5,
        Right::Snapshot => 1 << 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_right_has_a_bit_of_its_own() {
        for right in Right::ALL {
            let one: Rights = [right].into_iter().collect();
            assert_eq!((one.bits().count_ones(), one.to_vec()), (1, vec![right]));
            assert_eq!(Rights::from_bits(one.bits()), Some(one));
        }
        let all: Rights = Right::ALL.into_iter().collect();
        assert_eq!((all.bits(), all.to_vec()), (0x7f, Right::ALL.to_vec()));
        assert_eq!(Rights::from_bits(0x80), None);
    }
}
