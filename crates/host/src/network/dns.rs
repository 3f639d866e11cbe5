//! DNS queries and responses on the wire (RFC 1035). Neither is trusted: malformed ones are rejected, and
//! of a packet from the sandbox only its one question is passed on.

use std::net::Ipv4Addr;

/// Size of a header, in bytes.
const HEADER_LEN: usize = 12;
/// Maximum length of an encoded name, in bytes.
const NAME_MAX: usize = 255;
/// Maximum length of a label, in bytes.
const LABEL_MAX: u8 = 63;
/// Maximum size of a response over UDP that is advertised in queries (EDNS).
const UDP_PAYLOAD_MAX: u16 = 1_232;

/// Flags in the third byte of the header, except the last one, which is in the fourth.
const RESPONSE: u8 = 0x80;
const OPCODE: u8 = 0x78;
const RECURSION_DESIRED: u8 = 0x01;
const RECURSION_AVAILABLE: u8 = 0x80;

pub(super) const A: u16 = 1;
const AAAA: u16 = 28;
const OPT: u16 = 41;
const SVCB: u16 = 64;
const HTTPS: u16 = 65;
const ZONE_TRANSFERS: [u16; 2] = [251, 252];
const CLASS_IN: u16 = 1;

/// Response code of a DNS response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseCode {
    /// Success; the response may have no records.
    NoError = 0,
    /// The query is malformed.
    FormErr = 1,
    /// The name could not be resolved.
    ServFail = 2,
    /// The name does not exist.
    NxDomain = 3,
    /// The kind of query is not supported.
    NotImp = 4,
}

/// Question section of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    /// Id of the query, which its response repeats.
    id: [u8; 2],
    /// Name in lower case, without a trailing dot.
    pub(super) name: String,
    /// Record type.
    pub(super) record_type: u16,
    /// Name, type and class as they are in the query.
    bytes: Vec<u8>,
    /// True if the query has an OPT record, so that responses over UDP may be longer than 512 bytes.
    has_opt_record: bool,
}

impl Question {
    /// Parses the question of a query.
    pub(super) fn parse(packet: &[u8]) -> Result<Self, ResponseCode> {
        let header = packet.get(..HEADER_LEN).ok_or(ResponseCode::FormErr)?;
        if header[2] & RESPONSE != 0 {
            return Err(ResponseCode::FormErr);
        }
        if header[2] & OPCODE != 0 {
            return Err(ResponseCode::NotImp);
        }
        // Numbers of questions, answers, authority records and additional records.
        let count = |offset: usize| u16::from_be_bytes([header[offset], header[offset + 1]]);
        if (count(4), count(6), count(8)) != (1, 0, 0) || count(10) > 1 {
            return Err(ResponseCode::FormErr);
        }
        let (name, end) = read_name(packet, HEADER_LEN).ok_or(ResponseCode::FormErr)?;
        let tail = packet.get(end..end + 4).ok_or(ResponseCode::FormErr)?;
        let record_type = u16::from_be_bytes([tail[0], tail[1]]);
        if u16::from_be_bytes([tail[2], tail[3]]) != CLASS_IN || ZONE_TRANSFERS.contains(&record_type) {
            return Err(ResponseCode::NotImp);
        }
        let bytes = packet[HEADER_LEN..end + 4].to_vec();
        Ok(Self { id: [header[0], header[1]], name, record_type, bytes, has_opt_record: count(10) == 1 })
    }

    /// Returns whether the answer is always empty. Sandboxes have no IPv6, and service records would lead to
    /// names that are not on the allow list.
    pub(super) fn has_empty_answer(&self) -> bool {
        [AAAA, SVCB, HTTPS].contains(&self.record_type)
    }

    /// Builds the query for the upstream server, with another id.
    pub(super) fn upstream_query(&self, id: [u8; 2]) -> Vec<u8> {
        let mut packet = self.packet(id, [RECURSION_DESIRED, 0]);
        if self.has_opt_record {
            // One additional record: an OPT record for the root name, without options.
            packet[11] = 1;
            packet.push(0);
            packet.extend(OPT.to_be_bytes());
            packet.extend(UDP_PAYLOAD_MAX.to_be_bytes());
            packet.extend([0; 6]);
        }
        packet
    }

    /// Builds a response without records.
    pub(super) fn empty_response(&self, code: ResponseCode) -> Vec<u8> {
        self.packet(self.id, [RESPONSE | RECURSION_DESIRED, RECURSION_AVAILABLE | code as u8])
    }

    /// Turns the upstream response to [`Question::upstream_query`] into the response to the original query. Returns
    /// `None` if it does not match the query.
    pub(super) fn translate_response(&self, id: [u8; 2], mut response: Vec<u8>) -> Option<Vec<u8>> {
        let question = response.get(HEADER_LEN..HEADER_LEN + self.bytes.len())?;
        let is_match = response[..2] == id
            && response[2] & (RESPONSE | OPCODE) == RESPONSE
            && response[4..6] == [0, 1]
            && question.eq_ignore_ascii_case(&self.bytes);
        response[..2].copy_from_slice(&self.id);
        is_match.then_some(response)
    }

    /// Returns the addresses in a response that [`Question::translate_response`] accepted, or `None` if it is
    /// malformed.
    pub(super) fn addresses(&self, response: &[u8]) -> Option<Vec<Ipv4Addr>> {
        let count = u16::from_be_bytes([*response.get(6)?, *response.get(7)?]);
        let mut offset = HEADER_LEN + self.bytes.len();
        let mut addresses = Vec::new();
        for _ in 0..count {
            offset = skip_name(response, offset)?;
            let head = response.get(offset..offset + 10)?;
            let (record_type, class) = ([head[0], head[1]], [head[2], head[3]]);
            let length = usize::from(u16::from_be_bytes([head[8], head[9]]));
            let value = response.get(offset + 10..offset + 10 + length)?;
            if (u16::from_be_bytes(record_type), u16::from_be_bytes(class)) == (A, CLASS_IN) {
                addresses.push(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?));
            }
            offset += 10 + length;
        }
        Some(addresses)
    }

    /// Builds a packet with this question and no records.
    fn packet(&self, id: [u8; 2], flags: [u8; 2]) -> Vec<u8> {
        let mut packet = [id, flags, [0, 1]].concat();
        packet.resize(HEADER_LEN, 0);
        packet.extend(&self.bytes);
        packet
    }
}

/// Builds the response to a packet that could not be parsed. Returns `None` if it is too short, or a response
/// itself.
pub(super) fn refuse(packet: &[u8], code: ResponseCode) -> Option<Vec<u8>> {
    let header = packet.get(..HEADER_LEN)?;
    if header[2] & RESPONSE != 0 {
        return None;
    }
    let mut response =
        vec![header[0], header[1], RESPONSE | header[2] & (OPCODE | RECURSION_DESIRED), code as u8];
    response.resize(HEADER_LEN, 0);
    Some(response)
}

/// Reads a name without compression pointers. Returns it in lower case, and the offset of its end.
fn read_name(packet: &[u8], mut offset: usize) -> Option<(String, usize)> {
    let (begin, mut name) = (offset, String::new());
    loop {
        let length = *packet.get(offset)?;
        offset += 1;
        if length == 0 {
            return Some((name, offset));
        }
        let label = packet.get(offset..offset + usize::from(length))?;
        offset += usize::from(length);
        // A dot inside a label would make it look like two labels.
        let is_plain = label.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'.');
        if length > LABEL_MAX || offset - begin >= NAME_MAX || !is_plain {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
    }
}

/// Returns the offset after a name that may end in a compression pointer.
fn skip_name(packet: &[u8], mut offset: usize) -> Option<usize> {
    loop {
        match *packet.get(offset)? {
            0 => return Some(offset + 1),
            length if length <= LABEL_MAX => offset += 1 + usize::from(length),
            length if length >= 0xc0 => return Some(offset + 2),
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
        packet.extend(CLASS_IN.to_be_bytes());
        packet
    }

    /// Builds a response with a CNAME record and addresses.
    fn answer(question: &Question, id: [u8; 2], addresses: &[Ipv4Addr]) -> Vec<u8> {
        let mut packet = question.packet(id, [RESPONSE | RECURSION_DESIRED, RECURSION_AVAILABLE]);
        packet[7] = addresses.len() as u8 + 1;
        packet.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 4, 1, b'x', 0xc0, 12]);
        for address in addresses {
            packet.extend([1, b'x', 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4]);
            packet.extend(address.octets());
        }
        packet
    }

    #[test]
    fn a_query_is_forwarded_and_its_response_relayed() {
        let question = Question::parse(&packet("Www.Example.com", A)).unwrap();
        assert_eq!((question.name.as_str(), question.record_type), ("www.example.com", A));
        let asked = Question::parse(&question.upstream_query([1, 2])).unwrap();
        assert_eq!((asked.id, asked.bytes), ([1, 2], question.bytes.clone()));
        let addresses = [Ipv4Addr::new(8, 8, 8, 8), Ipv4Addr::new(10, 0, 0, 1)];
        let answer = answer(&question, [1, 2], &addresses);
        assert_eq!(question.translate_response([1, 3], answer.clone()), None);
        let passed = question.translate_response([1, 2], answer).unwrap();
        assert_eq!(passed[..2], [7, 9]);
        assert_eq!(question.addresses(&passed).unwrap(), addresses);
    }

    #[test]
    fn a_response_to_another_query_is_rejected() {
        let question = Question::parse(&packet("example.com", A)).unwrap();
        let other = Question::parse(&packet("example.org", A)).unwrap();
        assert_eq!(question.translate_response([1, 2], answer(&other, [1, 2], &[])), None);
        assert_eq!(question.translate_response([1, 2], question.upstream_query([1, 2])), None);
    }

    #[test]
    fn malformed_and_unsupported_queries_are_rejected() {
        let read = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut packet = packet("example.com", A);
            change(&mut packet);
            Question::parse(&packet).unwrap_err()
        };
        assert_eq!(read(&|packet| packet[2] |= RESPONSE), ResponseCode::FormErr);
        assert_eq!(read(&|packet| packet[2] |= 0x28), ResponseCode::NotImp);
        assert_eq!(read(&|packet| packet[5] = 2), ResponseCode::FormErr);
        assert_eq!(read(&|packet| packet[7] = 1), ResponseCode::FormErr);
        assert_eq!(read(&|packet| packet[12] = 0xc0), ResponseCode::FormErr);
        assert_eq!(read(&|packet| packet[13] = b'.'), ResponseCode::FormErr);
        assert_eq!(read(&|packet| packet.truncate(20)), ResponseCode::FormErr);
        assert_eq!(read(&|packet| *packet.last_mut().unwrap() = 3), ResponseCode::NotImp);
        assert_eq!(Question::parse(&packet("example.com", 252)), Err(ResponseCode::NotImp));
        assert_eq!(
            Question::parse(&packet(&["a".repeat(60).as_str(); 5].join("."), A)),
            Err(ResponseCode::FormErr)
        );
        assert_eq!(refuse(&[0; 11], ResponseCode::FormErr), None);
        assert_eq!(refuse(&[0, 0, RESPONSE, 0, 0, 0, 0, 0, 0, 0, 0, 0], ResponseCode::FormErr), None);
        assert_eq!(
            refuse(&packet("a", A), ResponseCode::FormErr).unwrap()[..4],
            [7, 9, RESPONSE | RECURSION_DESIRED, 1]
        );
    }

    #[test]
    fn no_packet_causes_a_panic() {
        let question = Question::parse(&packet("example.com", A)).unwrap();
        let whole = answer(&question, [1, 2], &[Ipv4Addr::new(8, 8, 8, 8)]);
        // Every prefix, and every byte changed in every way.
        for length in 0..whole.len() {
            let _ = Question::parse(&whole[..length]);
            let _ = question.translate_response([1, 2], whole[..length].to_vec());
            assert_eq!(question.addresses(&whole[..length]), None, "{length}");
        }
        for at in 0..whole.len() {
            for byte in 0..=u8::MAX {
                let mut hostile = whole.clone();
                hostile[at] = byte;
                let _ = question.translate_response([1, 2], hostile.clone());
                let _ = question.addresses(&hostile);
                hostile[2] &= !RESPONSE;
                let _ = Question::parse(&hostile);
                let _ = refuse(&hostile, ResponseCode::ServFail);
            }
        }
    }
}
