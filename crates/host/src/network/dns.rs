//! Questions about names and their answers, as they are on the wire (RFC 1035). Neither is trusted: whatever does not
//! fit is refused, and nothing that a program inside wrote goes further than its one question.

use std::net::Ipv4Addr;

const HEADER: usize = 12;
const NAME_MAX: usize = 255;
const LABEL_MAX: u8 = 63;
/// How large an answer may be that is asked for in one packet.
const PACKET_MAX: u16 = 1_232;

const RESPONSE: u8 = 0x80;
const OPERATION: u8 = 0x78;
const WANTED: u8 = 0x01;
const AVAILABLE: u8 = 0x80;

pub(super) const A: u16 = 1;
const AAAA: u16 = 28;
const OPTIONS: u16 = 41;
const SERVICE: u16 = 64;
const HTTPS: u16 = 65;
const TRANSFERS: [u16; 2] = [251, 252];
const INTERNET: u16 = 1;

/// How a question went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// There is nothing of the kind.
    Nothing = 0,
    /// It is no question.
    Malformed = 1,
    /// It could not be found out.
    Failed = 2,
    /// There is no such name.
    NoName = 3,
    /// Nobody does that here.
    NotDone = 4,
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    id: [u8; 2],
    /// What is asked for, in small letters, without a dot at its end.
    pub(super) name: String,
    /// Which kind of record.
    pub(super) kind: u16,
    /// Name, kind and class, as they were asked.
    bytes: Vec<u8>,
    /// Whether whoever asks takes packets longer than 512 bytes.
    long: bool,
}

impl Question {
    /// The question of a packet.
    pub(super) fn read(packet: &[u8]) -> Result<Self, Outcome> {
        let header = packet.get(..HEADER).ok_or(Outcome::Malformed)?;
        if header[2] & RESPONSE != 0 {
            return Err(Outcome::Malformed);
        }
        if header[2] & OPERATION != 0 {
            return Err(Outcome::NotDone);
        }
        let counts = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        if (counts(4), counts(6), counts(8)) != (1, 0, 0) || counts(10) > 1 {
            return Err(Outcome::Malformed);
        }
        let (name, end) = plain_name(packet, HEADER).ok_or(Outcome::Malformed)?;
        let tail = packet.get(end..end + 4).ok_or(Outcome::Malformed)?;
        let kind = u16::from_be_bytes([tail[0], tail[1]]);
        if u16::from_be_bytes([tail[2], tail[3]]) != INTERNET || TRANSFERS.contains(&kind) {
            return Err(Outcome::NotDone);
        }
        let bytes = packet[HEADER..end + 4].to_vec();
        Ok(Self { id: [header[0], header[1]], name, kind, bytes, long: counts(10) == 1 })
    }

    /// Whether the answer is that there is nothing: sandboxes have no IPv6, and where else a service is would lead
    /// them past the names that were asked for.
    pub(super) fn has_no_answer(&self) -> bool {
        [AAAA, SERVICE, HTTPS].contains(&self.kind)
    }

    /// The same question as this server asks it, under another number.
    pub(super) fn ask(&self, id: [u8; 2]) -> Vec<u8> {
        let mut packet = self.packet(id, [WANTED, 0]);
        if self.long {
            packet[11] = 1;
            packet.push(0);
            packet.extend(OPTIONS.to_be_bytes());
            packet.extend(PACKET_MAX.to_be_bytes());
            packet.extend([0; 6]);
        }
        packet
    }

    /// An answer without a record.
    pub(super) fn answer(&self, outcome: Outcome) -> Vec<u8> {
        self.packet(self.id, [RESPONSE | WANTED, AVAILABLE | outcome as u8])
    }

    /// Somebody's answer to [`Question::ask`], for whoever asked this; none if it is no answer to that.
    pub(super) fn pass_on(&self, id: [u8; 2], mut answer: Vec<u8>) -> Option<Vec<u8>> {
        let question = answer.get(HEADER..HEADER + self.bytes.len())?;
        let fits = answer[..2] == id
            && answer[2] & (RESPONSE | OPERATION) == RESPONSE
            && answer[4..6] == [0, 1]
            && question.eq_ignore_ascii_case(&self.bytes);
        answer[..2].copy_from_slice(&self.id);
        fits.then_some(answer)
    }

    /// The addresses in an answer that [`Question::pass_on`] took; none if it cannot be read.
    pub(super) fn addresses(&self, answer: &[u8]) -> Option<Vec<Ipv4Addr>> {
        let count = u16::from_be_bytes([*answer.get(6)?, *answer.get(7)?]);
        let mut at = HEADER + self.bytes.len();
        let mut addresses = Vec::new();
        for _ in 0..count {
            at = skip_name(answer, at)?;
            let head = answer.get(at..at + 10)?;
            let (kind, class) = ([head[0], head[1]], [head[2], head[3]]);
            let length = usize::from(u16::from_be_bytes([head[8], head[9]]));
            let value = answer.get(at + 10..at + 10 + length)?;
            if (u16::from_be_bytes(kind), u16::from_be_bytes(class)) == (A, INTERNET) {
                addresses.push(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?));
            }
            at += 10 + length;
        }
        Some(addresses)
    }

    fn packet(&self, id: [u8; 2], flags: [u8; 2]) -> Vec<u8> {
        let mut packet = [id, flags, [0, 1]].concat();
        packet.resize(HEADER, 0);
        packet.extend(&self.bytes);
        packet
    }
}

/// An answer to something that is no question; none if it does not even begin like one.
pub(super) fn refuse(packet: &[u8], outcome: Outcome) -> Option<Vec<u8>> {
    let header = packet.get(..HEADER)?;
    if header[2] & RESPONSE != 0 {
        return None;
    }
    let mut answer = vec![header[0], header[1], RESPONSE | header[2] & (OPERATION | WANTED), outcome as u8];
    answer.resize(HEADER, 0);
    Some(answer)
}

/// A name without references to others, in small letters, and where it ends.
fn plain_name(packet: &[u8], mut at: usize) -> Option<(String, usize)> {
    let (begin, mut name) = (at, String::new());
    loop {
        let length = *packet.get(at)?;
        at += 1;
        if length == 0 {
            return Some((name, at));
        }
        let label = packet.get(at..at + usize::from(length))?;
        at += usize::from(length);
        // A dot in a part would make it look like two.
        let plain = label.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'.');
        if length > LABEL_MAX || at - begin >= NAME_MAX || !plain {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
    }
}

/// Where a name ends that may end with a reference.
fn skip_name(packet: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *packet.get(at)? {
            0 => return Some(at + 1),
            length if length <= LABEL_MAX => at += 1 + usize::from(length),
            length if length >= 0xc0 => return Some(at + 2),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(name: &str, kind: u16) -> Vec<u8> {
        let mut packet = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            packet.push(label.len() as u8);
            packet.extend(label.bytes());
        }
        packet.push(0);
        packet.extend(kind.to_be_bytes());
        packet.extend(INTERNET.to_be_bytes());
        packet
    }

    /// An answer with an alias and addresses.
    fn answer(question: &Question, id: [u8; 2], addresses: &[Ipv4Addr]) -> Vec<u8> {
        let mut packet = question.packet(id, [RESPONSE | WANTED, AVAILABLE]);
        packet[7] = addresses.len() as u8 + 1;
        packet.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 4, 1, b'x', 0xc0, 12]);
        for address in addresses {
            packet.extend([1, b'x', 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4]);
            packet.extend(address.octets());
        }
        packet
    }

    #[test]
    fn a_question_is_asked_again_and_its_answer_passed_on() {
        let question = Question::read(&packet("Www.Example.com", A)).unwrap();
        assert_eq!((question.name.as_str(), question.kind), ("www.example.com", A));
        let asked = Question::read(&question.ask([1, 2])).unwrap();
        assert_eq!((asked.id, asked.bytes), ([1, 2], question.bytes.clone()));
        let addresses = [Ipv4Addr::new(8, 8, 8, 8), Ipv4Addr::new(10, 0, 0, 1)];
        let answer = answer(&question, [1, 2], &addresses);
        assert_eq!(question.pass_on([1, 3], answer.clone()), None);
        let passed = question.pass_on([1, 2], answer).unwrap();
        assert_eq!(passed[..2], [7, 9]);
        assert_eq!(question.addresses(&passed).unwrap(), addresses);
    }

    #[test]
    fn an_answer_to_another_question_is_none() {
        let question = Question::read(&packet("example.com", A)).unwrap();
        let other = Question::read(&packet("example.org", A)).unwrap();
        assert_eq!(question.pass_on([1, 2], answer(&other, [1, 2], &[])), None);
        assert_eq!(question.pass_on([1, 2], question.ask([1, 2])), None);
    }

    #[test]
    fn what_is_no_single_question_is_refused() {
        let read = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut packet = packet("example.com", A);
            change(&mut packet);
            Question::read(&packet).unwrap_err()
        };
        assert_eq!(read(&|packet| packet[2] |= RESPONSE), Outcome::Malformed);
        assert_eq!(read(&|packet| packet[2] |= 0x28), Outcome::NotDone);
        assert_eq!(read(&|packet| packet[5] = 2), Outcome::Malformed);
        assert_eq!(read(&|packet| packet[7] = 1), Outcome::Malformed);
        assert_eq!(read(&|packet| packet[12] = 0xc0), Outcome::Malformed);
        assert_eq!(read(&|packet| packet[13] = b'.'), Outcome::Malformed);
        assert_eq!(read(&|packet| packet.truncate(20)), Outcome::Malformed);
        assert_eq!(read(&|packet| *packet.last_mut().unwrap() = 3), Outcome::NotDone);
        assert_eq!(Question::read(&packet("example.com", 252)), Err(Outcome::NotDone));
        assert_eq!(
            Question::read(&packet(&["a".repeat(60).as_str(); 5].join("."), A)),
            Err(Outcome::Malformed)
        );
        assert_eq!(refuse(&[0; 11], Outcome::Malformed), None);
        assert_eq!(refuse(&[0, 0, RESPONSE, 0, 0, 0, 0, 0, 0, 0, 0, 0], Outcome::Malformed), None);
        assert_eq!(refuse(&packet("a", A), Outcome::Malformed).unwrap()[..4], [7, 9, RESPONSE | WANTED, 1]);
    }

    #[test]
    fn no_packet_brings_it_down() {
        let question = Question::read(&packet("example.com", A)).unwrap();
        let whole = answer(&question, [1, 2], &[Ipv4Addr::new(8, 8, 8, 8)]);
        // Every prefix, and every byte changed in every way.
        for length in 0..whole.len() {
            let _ = Question::read(&whole[..length]);
            let _ = question.pass_on([1, 2], whole[..length].to_vec());
            assert_eq!(question.addresses(&whole[..length]), None, "{length}");
        }
        for at in 0..whole.len() {
            for byte in 0..=u8::MAX {
                let mut hostile = whole.clone();
                hostile[at] = byte;
                let _ = question.pass_on([1, 2], hostile.clone());
                let _ = question.addresses(&hostile);
                hostile[2] &= !RESPONSE;
                let _ = Question::read(&hostile);
                let _ = refuse(&hostile, Outcome::Failed);
            }
        }
    }
}
