//! Egress policy: a table of ranges, in which the most specific entry wins.
//!
//! Addresses of the host are the exception: they are denied, however specific an entry is that would allow
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::allow::AllowRule;
use super::egress::{Egress, Uplink};

/// Maximum number of addresses that are allowed because an allowed name resolves to them.
const RESOLVED_MAX: usize = 4_096;

/// Ranges that are always denied: this network, loopback, multicast, and reserved addresses with broadcast.
const RESERVED: [Ipv4Net; 4] = [
    Ipv4Net::new_assert(Ipv4Addr::new(0, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4),
    Ipv4Net::new_assert(Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// Rule for packets to a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RangeRule {
    Allow,
    Deny,
}

/// Egress policy of one sandbox.
#[derive(Debug)]
pub(super) struct EgressPolicy {
    /// Rule for each range; the most specific range decides.
    table: BTreeMap<Ipv4Net, RangeRule>,
    /// Ranges of the host and reserved ones, which are denied regardless of the table.
    always_denied: Vec<Ipv4Net>,
    /// Number of addresses that were allowed because a name resolves to them.
    resolved: usize,
    /// Resolved addresses whose route is not known to be set. They are in the table, so that [`EgressPolicy::deny`]
    /// also covers a route that was set only in the router and not in the sandbox.
    unrouted: BTreeSet<Ipv4Addr>,
}

/// Reason why an address is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The policy denies it.
    Denied,
    /// [`RESOLVED_MAX`] addresses are allowed already.
    TooMany,
}

impl EgressPolicy {
    /// Builds the policy for `egress` on a host with these addresses.
    pub(super) fn new(egress: &Egress, host_ranges: impl IntoIterator<Item = Ipv4Net>) -> Self {
        let always_denied: Vec<Ipv4Net> = RESERVED.into_iter().chain(host_ranges).collect();
        let mut table = BTreeMap::new();
        let all = [Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0)];
        let allowed: Vec<Ipv4Net> = match &egress.allow {
            None => all.to_vec(),
            Some(list) => list.iter().filter_map(addresses).collect(),
        };
        let is_always_denied = |cidr: &Ipv4Net| always_denied.iter().any(|range| range.contains(cidr));
        table.extend(
            allowed.into_iter().filter(|cidr| !is_always_denied(cidr)).map(|cidr| (cidr, RangeRule::Allow)),
        );
        let neighbours = match &egress.uplink {
            Uplink::UserMode => None,
            Uplink::Link { network, .. } => Some(network),
        };
        let denied = egress.deny.iter().chain(neighbours).chain(&always_denied);
        table.extend(denied.map(|cidr| (*cidr, RangeRule::Deny)));
        Self { table, always_denied, resolved: 0, unrouted: BTreeSet::new() }
    }

    /// Returns all entries.
    pub(super) fn table(&self) -> impl Iterator<Item = (Ipv4Net, RangeRule)> {
        self.table.iter().map(|(cidr, rule)| (*cidr, *rule))
    }

    /// Denies further ranges of the host. Returns the entries that changed to `Deny`. They stay denied when
    /// the host loses the address.
    pub(super) fn deny(&mut self, host_ranges: impl IntoIterator<Item = Ipv4Net>) -> Vec<Ipv4Net> {
        let new: Vec<Ipv4Net> =
            host_ranges.into_iter().filter(|cidr| !self.always_denied.contains(cidr)).collect();
        self.always_denied.extend(&new);
        let inside = self.table.iter().filter(|(cidr, rule)| {
            **rule == RangeRule::Allow && new.iter().any(|range| range.contains(*cidr))
        });
        let inside: Vec<Ipv4Net> = inside.map(|(cidr, _)| *cidr).collect();
        let denied: Vec<Ipv4Net> = inside.into_iter().chain(new).collect();
        self.table.extend(denied.iter().map(|cidr| (*cidr, RangeRule::Deny)));
        denied
    }

    /// Allows an address that an allowed name resolves to. Returns whether a route has to be set; the caller
    /// reports that with [`EgressPolicy::set_routed`].
    pub(super) fn allow(&mut self, address: Ipv4Addr) -> Result<bool, Refused> {
        match self.rule(address) {
            Some(RangeRule::Allow) => Ok(self.unrouted.contains(&address)),
            Some(RangeRule::Deny) => Err(Refused::Denied),
            None if self.resolved >= RESOLVED_MAX => Err(Refused::TooMany),
            None => {
                self.resolved += 1;
                self.table.insert(Ipv4Net::from(address), RangeRule::Allow);
                self.unrouted.insert(address);
                Ok(true)
            }
        }
    }

    /// Records that the route to an allowed address is set.
    pub(super) fn set_routed(&mut self, address: Ipv4Addr) {
        self.unrouted.remove(&address);
    }

    fn rule(&self, address: Ipv4Addr) -> Option<RangeRule> {
        if self.always_denied.iter().any(|range| range.contains(&address)) {
            return Some(RangeRule::Deny);
        }
        let matching = self.table.iter().filter(|(cidr, _)| cidr.contains(&address));
        matching.max_by_key(|(cidr, _)| cidr.prefix_len()).map(|(_, rule)| *rule)
    }
}

fn addresses(rule: &AllowRule) -> Option<Ipv4Net> {
    match rule {
        AllowRule::Addresses(cidr) => Some(*cidr),
        AllowRule::Host(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::parse_cidr;

    fn cidr(text: &str) -> Ipv4Net {
        parse_cidr(text).unwrap()
    }

    /// Returns a policy. `allow` is `None` if everything is allowed that is not denied.
    fn policy(allow: Option<&[&str]>, deny: &[&str], host_ranges: &[&str]) -> EgressPolicy {
        let allow = allow.map(|list| list.iter().map(|text| text.parse().unwrap()).collect());
        let deny = deny.iter().map(|text| cidr(text)).collect();
        let egress = Egress { allow, deny, except: Vec::new(), dns: None, uplink: Uplink::UserMode };
        EgressPolicy::new(&egress, host_ranges.iter().map(|text| cidr(text)))
    }

    #[track_caller]
    fn check(policy: &EgressPolicy, address: &str, rule: Option<RangeRule>) {
        assert_eq!(policy.rule(address.parse().unwrap()), rule, "{address}");
    }

    #[test]
    fn without_an_allow_list_all_but_denied_and_host_ranges_are_allowed() {
        let policy = policy(None, &["169.254.0.0/16"], &["10.0.0.5"]);
        check(&policy, "8.8.8.8", Some(RangeRule::Allow));
        check(&policy, "10.0.0.6", Some(RangeRule::Allow));
        for denied in
            ["10.0.0.5", "169.254.169.254", "127.0.0.1", "0.0.0.0", "224.0.0.251", "255.255.255.255"]
        {
            check(&policy, denied, Some(RangeRule::Deny));
        }
    }

    #[test]
    fn the_most_specific_entry_wins() {
        let policy = policy(
            Some(&["10.0.0.0/8", "169.254.169.254/32", "192.168.0.0/16"]),
            &["169.254.0.0/16", "10.9.0.0/16", "192.168.0.0/16"],
            &[],
        );
        check(&policy, "10.1.1.1", Some(RangeRule::Allow));
        check(&policy, "10.9.1.1", Some(RangeRule::Deny));
        check(&policy, "169.254.169.254", Some(RangeRule::Allow));
        check(&policy, "169.254.169.253", Some(RangeRule::Deny));
        // If both lists have the same range, it is denied.
        check(&policy, "192.168.1.1", Some(RangeRule::Deny));
        // No range of the table contains it.
        check(&policy, "8.8.8.8", None);
    }

    #[test]
    fn no_entry_allows_the_host() {
        let list = ["10.0.0.5", "10.0.0.0/24", "127.0.0.1", "172.16.3.0/24", "224.0.0.251"];
        let policy = policy(Some(&list), &[], &["10.0.0.5", "172.16.0.0/16"]);
        for denied in ["10.0.0.5", "127.0.0.1", "172.16.3.1", "224.0.0.251"] {
            check(&policy, denied, Some(RangeRule::Deny));
        }
        check(&policy, "10.0.0.6", Some(RangeRule::Allow));
        assert!(
            !policy.table().any(|(range, rule)| rule == RangeRule::Allow && range == cidr("172.16.3.0/24"))
        );
    }

    #[test]
    fn a_name_allows_neither_host_nor_denied_addresses() {
        let mut policy = policy(Some(&["example.com", "10.1.0.0/16"]), &["169.254.0.0/16"], &["10.0.0.5"]);
        let mut allow = |address: &str| policy.allow(address.parse().unwrap());
        assert_eq!(allow("8.8.8.8"), Ok(true));
        assert_eq!(allow("10.1.2.3"), Ok(false));
        for denied in ["10.0.0.5", "127.0.0.1", "169.254.169.254", "0.0.0.0"] {
            assert_eq!(allow(denied), Err(Refused::Denied), "{denied}");
        }
    }

    #[test]
    fn an_allowed_address_needs_a_route_until_it_is_set() {
        let mut policy = policy(Some(&["example.com"]), &[], &[]);
        let address = "8.8.8.8".parse().unwrap();
        for _ in 0..=RESOLVED_MAX {
            assert_eq!(policy.allow(address), Ok(true));
        }
        policy.set_routed(address);
        assert_eq!(policy.allow(address), Ok(false));
        assert_eq!(policy.allow("8.8.4.4".parse().unwrap()), Ok(true), "a repeated address counts once");
    }

    #[test]
    fn names_allow_a_limited_number_of_addresses() {
        let mut policy = policy(Some(&["example.com"]), &[], &[]);
        for number in 0..RESOLVED_MAX as u32 {
            assert_eq!(policy.allow(Ipv4Addr::from_bits(0x0800_0000 + number)), Ok(true));
        }
        assert_eq!(policy.allow(Ipv4Addr::new(9, 0, 0, 1)), Err(Refused::TooMany));
    }

    #[test]
    fn an_address_that_the_host_gets_is_denied_for_good() {
        let mut policy = policy(Some(&["example.com", "10.1.2.0/24"]), &[], &["10.0.0.5"]);
        let later = "8.8.8.8".parse().unwrap();
        policy.allow(later).unwrap();
        assert_eq!(policy.deny([cidr("10.0.0.5")]), []);
        assert_eq!(policy.deny([cidr("8.8.8.8")]), [cidr("8.8.8.8"), cidr("8.8.8.8")]);
        check(&policy, "8.8.8.8", Some(RangeRule::Deny));
        assert_eq!(policy.allow(later), Err(Refused::Denied));
        // Entries within it are denied, too.
        assert_eq!(policy.deny([cidr("10.1.0.0/16")]), [cidr("10.1.2.0/24"), cidr("10.1.0.0/16")]);
        check(&policy, "10.1.2.3", Some(RangeRule::Deny));
        assert_eq!(policy.deny([]), []);
        check(&policy, "8.8.8.8", Some(RangeRule::Deny));
    }
}
