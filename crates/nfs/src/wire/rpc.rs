//! RPC version 2 (RFC 5531): headers of calls and replies.

use super::xdr::{Decoder, Encode, XdrError};

// Message types.
const CALL: u32 = 0;
const REPLY: u32 = 1;

const RPC_VERSION: u32 = 2;

// Reply states.
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;

// Reasons of a denied call.
const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;

// Authentication flavors.
const AUTH_NONE: u32 = 0;
const AUTH_UNIX: u32 = 1;

/// Maximum length of a credential or verifier, in bytes.
const AUTH_MAX: usize = 400;
/// Maximum length of the machine name in an AUTH_UNIX credential, in bytes.
const MACHINE_NAME_MAX: usize = 255;
/// Maximum number of supplementary groups in an AUTH_UNIX credential.
const GROUPS_MAX: u32 = 16;

/// Length in bytes of the header of a successful reply, with the record mark.
pub(crate) const REPLY_HEADER_LEN: usize = 7 * 4;

/// Header of a call. The arguments follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) xid: u32,
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
}

/// Failure to decode the header of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The record is not a call, or is too short. The connection cannot be used any more.
    Malformed,
    /// The call has another version of RPC.
    RpcVersion { xid: u32 },
    /// The credential is not accepted.
    Auth { xid: u32, error: AuthError },
}

/// Reason to refuse a credential (`auth_stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthError {
    BadCredential = 1,
    TooWeak = 5,
}

/// Status of an accepted call (`accept_stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepted {
    Success,
    ProgramUnavailable,
    /// Lowest and highest version that the server has.
    ProgramMismatch(u32, u32),
    ProcedureUnavailable,
    GarbageArguments,
}

impl From<XdrError> for CallError {
    fn from(_: XdrError) -> Self {
        Self::Malformed
    }
}

impl Call {
    /// Decodes the header of a call.
    pub(crate) fn decode(input: &mut Decoder<'_>) -> Result<Self, CallError> {
        let xid = input.u32()?;
        if input.u32()? != CALL {
            return Err(CallError::Malformed);
        }
        if input.u32()? != RPC_VERSION {
            return Err(CallError::RpcVersion { xid });
        }
        let (program, version, procedure) = (input.u32()?, input.u32()?, input.u32()?);
        let credential = (input.u32()?, input.opaque(AUTH_MAX)?);
        let _verifier = (input.u32()?, input.opaque(AUTH_MAX)?);
        check_credential(credential).map_err(|error| CallError::Auth { xid, error })?;
        Ok(Self { xid, program, version, procedure })
    }
}

/// Checks the form of a credential: flavor and content. The user in it is ignored, because all clients of an export act
/// as the same user.
fn check_credential((flavor, body): (u32, &[u8])) -> Result<(), AuthError> {
    match flavor {
        AUTH_NONE => Ok(()),
        AUTH_UNIX => check_unix(Decoder::new(body)).map_err(|_| AuthError::BadCredential),
        _ => Err(AuthError::TooWeak),
    }
}

/// Checks the form of an AUTH_UNIX credential.
fn check_unix(mut body: Decoder<'_>) -> Result<(), XdrError> {
    let _stamp = body.u32()?;
    let _machine = body.opaque(MACHINE_NAME_MAX)?;
    let (_uid, _gid, groups) = (body.u32()?, body.u32()?, body.u32()?);
    if groups > GROUPS_MAX {
        return Err(XdrError);
    }
    (0..groups).try_for_each(|_| body.u32().map(|_| ()))
}

/// Replaces the content of a buffer with the header of the reply to an accepted call. The results follow.
pub(crate) fn begin_reply(out: &mut Vec<u8>, xid: u32, accepted: Accepted) {
    out.clear();
    // The first word is room for the record mark. The last two are an empty verifier.
    for value in [0, xid, REPLY, ACCEPTED, AUTH_NONE, 0] {
        out.put_u32(value);
    }
    match accepted {
        Accepted::Success => out.put_u32(0),
        Accepted::ProgramUnavailable => out.put_u32(1),
        Accepted::ProgramMismatch(low, high) => {
            for value in [2, low, high] {
                out.put_u32(value);
            }
        }
        Accepted::ProcedureUnavailable => out.put_u32(3),
        Accepted::GarbageArguments => out.put_u32(4),
    }
}

/// Replaces the content of a buffer with the reply to a call of another version of RPC. It has the lowest and the
/// highest version that the server accepts.
pub(crate) fn put_version_mismatch(out: &mut Vec<u8>, xid: u32) {
    out.clear();
    for value in [0, xid, REPLY, DENIED, RPC_MISMATCH, RPC_VERSION, RPC_VERSION] {
        out.put_u32(value);
    }
}

/// Replaces the content of a buffer with the reply to a call whose credential is not accepted.
pub(crate) fn put_auth_error(out: &mut Vec<u8>, xid: u32, error: AuthError) {
    out.clear();
    for value in [0, xid, REPLY, DENIED, AUTH_ERROR, error as u32] {
        out.put_u32(value);
    }
}

/// Sets the record mark of a complete reply, which can be sent then.
pub(crate) fn finish_reply(out: &mut [u8]) {
    let length = u32::try_from(out.len() - 4).expect("replies are shorter than 2 GiB");
    out[..4].copy_from_slice(&(length | 1 << 31).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the header of a call with xid 9 and a credential.
    fn call(flavor: u32, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for value in [9, CALL, 2, 100_003, 3, 1, flavor] {
            out.put_u32(value);
        }
        out.put_opaque(body);
        out.put_u32(AUTH_NONE);
        out.put_opaque(b"");
        out
    }

    /// Returns an AUTH_UNIX credential with this number of groups.
    fn unix(groups: u32) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(1);
        out.put_opaque(b"host");
        for value in [1000, 1000, groups] {
            out.put_u32(value);
        }
        (0..groups).for_each(|group| out.put_u32(group));
        out
    }

    fn decode(data: &[u8]) -> Result<Call, CallError> {
        Call::decode(&mut Decoder::new(data))
    }

    #[test]
    fn calls_without_credential_and_with_a_unix_one_are_accepted() {
        let expected = Call { xid: 9, program: 100_003, version: 3, procedure: 1 };
        assert_eq!(decode(&call(AUTH_NONE, b"")), Ok(expected));
        assert_eq!(decode(&call(AUTH_UNIX, &unix(16))), Ok(expected));
    }

    #[test]
    fn other_credentials_are_denied() {
        let auth = |error| Err(CallError::Auth { xid: 9, error });
        assert_eq!(decode(&call(AUTH_UNIX, &unix(17))), auth(AuthError::BadCredential));
        assert_eq!(decode(&call(AUTH_UNIX, b"")), auth(AuthError::BadCredential));
        assert_eq!(decode(&call(6, b"")), auth(AuthError::TooWeak));
    }

    #[test]
    fn anything_but_a_call_is_malformed() {
        let whole = call(AUTH_NONE, b"");
        for cut in 0..whole.len() {
            assert_eq!(decode(&whole[..cut]), Err(CallError::Malformed), "cut at {cut}");
        }
        let mut reply = whole.clone();
        reply[7] = 1;
        assert_eq!(decode(&reply), Err(CallError::Malformed));
        let mut version = whole;
        version[11] = 3;
        assert_eq!(decode(&version), Err(CallError::RpcVersion { xid: 9 }));
    }
}
