//! RPC version 2 (RFC 5531): headers of calls and replies.

use super::xdr::{Decoder, Encode, XdrError};

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;
const AUTH_NONE: u32 = 0;
const AUTH_UNIX: u32 = 1;
/// Longest credential or verifier.
const AUTH_MAX: usize = 400;
const MACHINE_NAME_MAX: usize = 255;
const GROUPS_MAX: u32 = 16;

/// Length of the header of a reply with results, with the record mark.
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
    /// It is not a call. The connection cannot be used any more.
    Malformed,
    /// Another version of RPC.
    RpcVersion { xid: u32 },
    /// Credential or verifier that is not accepted.
    Auth { xid: u32, error: AuthError },
}

/// Reason to refuse a credential, as RPC numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthError {
    BadCredential = 1,
    TooWeak = 5,
}

/// Status of an accepted call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepted {
    Success,
    ProgramUnavailable,
    /// Lowest and highest version.
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

/// Checks a credential. Its user does not matter: an export has one user for all clients.
fn check_credential((flavor, body): (u32, &[u8])) -> Result<(), AuthError> {
    match flavor {
        AUTH_NONE => Ok(()),
        AUTH_UNIX => check_unix(Decoder::new(body)).map_err(|_| AuthError::BadCredential),
        _ => Err(AuthError::TooWeak),
    }
}

fn check_unix(mut body: Decoder<'_>) -> Result<(), XdrError> {
    let _stamp = body.u32()?;
    let _machine = body.opaque(MACHINE_NAME_MAX)?;
    let (_uid, _gid, groups) = (body.u32()?, body.u32()?, body.u32()?);
    if groups > GROUPS_MAX {
        return Err(XdrError);
    }
    (0..groups).try_for_each(|_| body.u32().map(|_| ()))
}

/// Begins the reply to an accepted call in an empty buffer. The results follow.
pub(crate) fn begin_reply(out: &mut Vec<u8>, xid: u32, accepted: Accepted) {
    out.clear();
    // Room for the record mark.
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

/// Writes the reply to a call of another version of RPC into an empty buffer.
pub(crate) fn put_version_mismatch(out: &mut Vec<u8>, xid: u32) {
    out.clear();
    for value in [0, xid, REPLY, DENIED, 0, RPC_VERSION, RPC_VERSION] {
        out.put_u32(value);
    }
}

/// Writes the reply to a call whose credential is not accepted into an empty buffer.
pub(crate) fn put_auth_error(out: &mut Vec<u8>, xid: u32, error: AuthError) {
    out.clear();
    for value in [0, xid, REPLY, DENIED, 1, error as u32] {
        out.put_u32(value);
    }
}

/// Sets the record mark, after which a reply can be sent.
pub(crate) fn finish_reply(out: &mut [u8]) {
    let length = u32::try_from(out.len() - 4).expect("replies are shorter than 2 GiB");
    out[..4].copy_from_slice(&(length | 1 << 31).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

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
