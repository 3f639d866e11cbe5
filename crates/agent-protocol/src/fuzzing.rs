//! Conversion between bytes and messages, for fuzz targets.

use prost::Message as _;

use crate::v1::AgentMessage;

/// Decodes length-delimited messages of a guest agent, up to the first invalid one.
pub fn decode_messages(mut bytes: &[u8]) -> Vec<AgentMessage> {
    std::iter::from_fn(|| AgentMessage::decode_length_delimited(&mut bytes).ok())
        .take_while(|message| message.payload.is_some())
        .collect()
}

/// Encodes messages for [`decode_messages`].
pub fn encode_messages(messages: &[AgentMessage]) -> Vec<u8> {
    messages.iter().flat_map(AgentMessage::encode_length_delimited_to_vec).collect()
}
