//! What the fence lets through: a table of ranges, in which the more specific wins.
//!
//! The machine's own addresses are the exception: whatever lies in them stays shut, however specific the entry is that
//! would allow it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::allow::Allow;
use super::cidr::Cidr;
use super::egress::{Egress, Way};

/// How many addresses names may open.
const OPENED_MAX: usize = 4_096;

/// What no sandbox reaches on any machine: itself, this network, all at once, and nobody.
const NOBODY: [Cidr; 4] = [
    Cidr::new(Ipv4Addr::new(0, 0, 0, 0), 8),
    Cidr::new(Ipv4Addr::new(127, 0, 0, 0), 8),
    Cidr::new(Ipv4Addr::new(224, 0, 0, 0), 4),
    Cidr::new(Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// What becomes of packets to a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    Open,
    Shut,
}

/// The table.
#[derive(Debug)]
pub(super) struct Fence {
    table: BTreeMap<Cidr, Gate>,
    /// What is shut whatever else is said.
    own: Vec<Cidr>,
    /// How many addresses were opened by names.
    opened: usize,
}

/// Why an address is not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    Denied,
    TooMany,
}

impl Fence {
    /// As `egress` says, on a machine with these addresses and links.
    pub(super) fn new(egress: &Egress, own: impl IntoIterator<Item = Cidr>) -> Self {
        let own: Vec<Cidr> = NOBODY.into_iter().chain(own).collect();
        let mut table = BTreeMap::new();
        let all = [Cidr::new(Ipv4Addr::UNSPECIFIED, 0)];
        let allowed: Vec<Cidr> = match &egress.allow {
            None => all.to_vec(),
            Some(list) => list.iter().filter_map(addresses).collect(),
        };
        let of_machine = |cidr: &Cidr| own.iter().any(|own| own.covers(*cidr));
        table.extend(allowed.into_iter().filter(|cidr| !of_machine(cidr)).map(|cidr| (cidr, Gate::Open)));
        let neighbours = match &egress.way {
            Way::Program => None,
            Way::Link { network, .. } => Some(network),
        };
        let denied = egress.deny.iter().chain(neighbours).chain(&own);
        table.extend(denied.map(|cidr| (*cidr, Gate::Shut)));
        Self { table, own, opened: 0 }
    }

    /// All of it.
    pub(super) fn table(&self) -> impl Iterator<Item = (Cidr, Gate)> {
        self.table.iter().map(|(cidr, gate)| (*cidr, *gate))
    }

    /// Takes notice of the machine's addresses; what is to be shut now. What was the machine's once stays shut.
    pub(super) fn shut(&mut self, own: impl IntoIterator<Item = Cidr>) -> Vec<Cidr> {
        let new: Vec<Cidr> = own.into_iter().filter(|cidr| !self.own.contains(cidr)).collect();
        self.own.extend(&new);
        let inside = self
            .table
            .iter()
            .filter(|(cidr, gate)| **gate == Gate::Open && new.iter().any(|own| own.covers(**cidr)));
        let inside: Vec<Cidr> = inside.map(|(cidr, _)| *cidr).collect();
        let shut: Vec<Cidr> = inside.into_iter().chain(new).collect();
        self.table.extend(shut.iter().map(|cidr| (*cidr, Gate::Shut)));
        shut
    }

    /// Opens one address because a name means it; whether anything has to be done for that.
    pub(super) fn open(&mut self, address: Ipv4Addr) -> Result<bool, Refused> {
        match self.gate(address) {
            Some(Gate::Open) => Ok(false),
            Some(Gate::Shut) => Err(Refused::Denied),
            None if self.opened >= OPENED_MAX => Err(Refused::TooMany),
            None => {
                self.opened += 1;
                self.table.insert(Cidr::one(address), Gate::Open);
                Ok(true)
            }
        }
    }

    fn gate(&self, address: Ipv4Addr) -> Option<Gate> {
        if self.own.iter().any(|own| own.contains(address)) {
            return Some(Gate::Shut);
        }
        let matching = self.table.iter().filter(|(cidr, _)| cidr.contains(address));
        matching.max_by_key(|(cidr, _)| cidr.bits()).map(|(_, gate)| *gate)
    }
}

fn addresses(allow: &Allow) -> Option<Cidr> {
    match allow {
        Allow::Addresses(cidr) => Some(*cidr),
        Allow::Names(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    fn fence(allow: Option<&[&str]>, deny: &[&str], own: &[&str]) -> Fence {
        let allow = allow.map(|list| list.iter().map(|text| text.parse().unwrap()).collect());
        let deny = deny.iter().map(|text| cidr(text)).collect();
        let egress = Egress { allow, deny, except: Vec::new(), dns: None, way: Way::Program };
        Fence::new(&egress, own.iter().map(|text| cidr(text)))
    }

    #[track_caller]
    fn check(fence: &Fence, address: &str, gate: Option<Gate>) {
        assert_eq!(fence.gate(address.parse().unwrap()), gate, "{address}");
    }

    #[test]
    fn without_a_list_all_is_open_but_what_is_denied_and_the_machine() {
        let fence = fence(None, &["169.254.0.0/16"], &["10.0.0.5"]);
        check(&fence, "8.8.8.8", Some(Gate::Open));
        check(&fence, "10.0.0.6", Some(Gate::Open));
        for shut in ["10.0.0.5", "169.254.169.254", "127.0.0.1", "0.0.0.0", "224.0.0.251", "255.255.255.255"]
        {
            check(&fence, shut, Some(Gate::Shut));
        }
    }

    #[test]
    fn the_more_specific_wins() {
        let fence = fence(
            Some(&["10.0.0.0/8", "169.254.169.254/32", "192.168.0.0/16"]),
            &["169.254.0.0/16", "10.9.0.0/16", "192.168.0.0/16"],
            &[],
        );
        check(&fence, "10.1.1.1", Some(Gate::Open));
        check(&fence, "10.9.1.1", Some(Gate::Shut));
        check(&fence, "169.254.169.254", Some(Gate::Open));
        check(&fence, "169.254.169.253", Some(Gate::Shut));
        // Of two that say the same, the denial.
        check(&fence, "192.168.1.1", Some(Gate::Shut));
        check(&fence, "8.8.8.8", None);
    }

    #[test]
    fn nothing_allows_the_machine_itself() {
        let list = ["10.0.0.5", "10.0.0.0/24", "127.0.0.1", "172.16.3.0/24", "224.0.0.251"];
        let fence = fence(Some(&list), &[], &["10.0.0.5", "172.16.0.0/16"]);
        for shut in ["10.0.0.5", "127.0.0.1", "172.16.3.1", "224.0.0.251"] {
            check(&fence, shut, Some(Gate::Shut));
        }
        check(&fence, "10.0.0.6", Some(Gate::Open));
        assert!(!fence.table().any(|(range, gate)| gate == Gate::Open && range == cidr("172.16.3.0/24")));
    }

    #[test]
    fn a_name_opens_neither_the_machine_nor_what_is_denied() {
        let mut fence = fence(Some(&["example.com", "10.1.0.0/16"]), &["169.254.0.0/16"], &["10.0.0.5"]);
        let mut open = |address: &str| fence.open(address.parse().unwrap());
        assert_eq!(open("8.8.8.8"), Ok(true));
        assert_eq!(open("8.8.8.8"), Ok(false));
        assert_eq!(open("10.1.2.3"), Ok(false));
        for denied in ["10.0.0.5", "127.0.0.1", "169.254.169.254", "0.0.0.0"] {
            assert_eq!(open(denied), Err(Refused::Denied), "{denied}");
        }
    }

    #[test]
    fn names_open_a_limited_number() {
        let mut fence = fence(Some(&["example.com"]), &[], &[]);
        for number in 0..OPENED_MAX as u32 {
            assert_eq!(fence.open(Ipv4Addr::from_bits(0x0800_0000 + number)), Ok(true));
        }
        assert_eq!(fence.open(Ipv4Addr::new(9, 0, 0, 1)), Err(Refused::TooMany));
    }

    #[test]
    fn an_address_that_the_machine_gets_is_shut_for_good() {
        let mut fence = fence(Some(&["example.com", "10.1.2.0/24"]), &[], &["10.0.0.5"]);
        let later = "8.8.8.8".parse().unwrap();
        fence.open(later).unwrap();
        assert_eq!(fence.shut([cidr("10.0.0.5")]), []);
        assert_eq!(fence.shut([cidr("8.8.8.8")]), [cidr("8.8.8.8"), cidr("8.8.8.8")]);
        check(&fence, "8.8.8.8", Some(Gate::Shut));
        assert_eq!(fence.open(later), Err(Refused::Denied));
        // All that is allowed in it is shut with it.
        assert_eq!(fence.shut([cidr("10.1.0.0/16")]), [cidr("10.1.2.0/24"), cidr("10.1.0.0/16")]);
        check(&fence, "10.1.2.3", Some(Gate::Shut));
        assert_eq!(fence.shut([]), []);
        check(&fence, "8.8.8.8", Some(Gate::Shut));
    }
}
