//! For fuzz targets: bytes as messages.

use prost::Message as _;

use crate::v1::AgentMessage;

/// Messages of a guest, each behind its length, up to the first that cannot be read.
pub fn messages(mut bytes: &[u8]) -> Vec<AgentMessage> {
    std::iter::from_fn(|| AgentMessage::decode_length_delimited(&mut bytes).ok())
        .take_while(|message| message.payload.is_some())
        .collect()
}

/// Messages as [`messages`] reads them.
pub fn bytes(messages: &[AgentMessage]) -> Vec<u8> {
    messages.iter().flat_map(AgentMessage::encode_length_delimited_to_vec).collect()
}
