//! Encoding of a program as one block of bytes. Its supervisor (the process between the agent and the program, see
//! `supervisor.rs`) inherits the block when it is forked, or receives it over its socket if it is reused.
//!
//! The block starts with three 32-bit integers, little endian: the number of arguments, the number of variables, and
//! flags. After them come the working directory, the arguments and the variables, as NUL-terminated strings.

use std::ffi::{CStr, CString, c_char};

/// Length of the three integers, in bytes.
const HEADER_LEN: usize = 12;
/// Flag of a program with a terminal.
const TERMINAL: u32 = 1;
/// Flag of a program that is looked up in `PATH`.
const PATH_LOOKUP: u32 = 2;

/// Program before it is encoded.
pub(crate) struct ProgramParts<'a> {
    pub(crate) directory: &'a CStr,
    pub(crate) arguments: &'a [CString],
    pub(crate) environment: &'a [CString],
    pub(crate) has_terminal: bool,
    /// True if the first argument is looked up in `PATH` of the environment.
    pub(crate) needs_path_lookup: bool,
}

impl ProgramParts<'_> {
    /// Encodes the program; `None` if the length of a list exceeds 32 bits.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let lists = [self.arguments, self.environment];
        let mut bytes = Vec::with_capacity(4 << 10);
        for list in lists {
            bytes.extend(u32::try_from(list.len()).ok()?.to_le_bytes());
        }
        let flag = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
        let flags = flag(self.has_terminal, TERMINAL) | flag(self.needs_path_lookup, PATH_LOOKUP);
        bytes.extend(flags.to_le_bytes());
        bytes.extend(self.directory.to_bytes_with_nul());
        for text in lists.into_iter().flatten() {
            bytes.extend(text.as_bytes_with_nul());
        }
        Some(bytes)
    }
}

/// Program as `execve` needs it: pointers into the encoded bytes. The supervisor decodes it before it starts the
/// process of the program, which shares the supervisor's memory until `execve` and must not allocate.
pub(crate) struct ExecArguments<'a> {
    pub(crate) directory: &'a CStr,
    /// Arguments, followed by a null pointer.
    pub(crate) arguments: Vec<*const c_char>,
    /// Environment, followed by a null pointer.
    pub(crate) environment: Vec<*const c_char>,
    /// First argument; empty without arguments.
    pub(crate) name: &'a CStr,
    /// Value of `PATH` in the environment.
    pub(crate) path: Option<&'a [u8]>,
    pub(crate) has_terminal: bool,
    pub(crate) needs_path_lookup: bool,
}

impl<'a> ExecArguments<'a> {
    /// Decodes a program; `None` if the bytes are not complete.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (header, mut rest) = bytes.split_at_checked(HEADER_LEN)?;
        let number = |index: usize| Some(u32::from_le_bytes(header[4 * index..][..4].try_into().ok()?));
        let mut next = || {
            let text = CStr::from_bytes_until_nul(rest).ok()?;
            rest = &rest[text.count_bytes() + 1..];
            Some(text)
        };
        let directory = next()?;
        let mut list = |count: u32| (0..count).map(|_| next()).collect::<Option<Vec<&'a CStr>>>();
        let (arguments, environment, flags) = (list(number(0)?)?, list(number(1)?)?, number(2)?);
        Some(Self {
            directory,
            arguments: pointers(&arguments),
            environment: pointers(&environment),
            name: arguments.first().copied().unwrap_or_default(),
            path: environment.iter().find_map(|variable| variable.to_bytes().strip_prefix(b"PATH=")),
            has_terminal: flags & TERMINAL != 0,
            needs_path_lookup: flags & PATH_LOOKUP != 0,
        })
    }
}

fn pointers(texts: &[&CStr]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<CString> {
        texts.iter().map(|text| CString::new(*text).unwrap()).collect()
    }

    /// Returns the texts behind the pointers of a list.
    fn read(pointers: &[*const c_char]) -> Vec<CString> {
        let (end, pointers) = pointers.split_last().unwrap();
        assert!(end.is_null());
        // SAFETY: the pointers are those of texts of a block that is still borrowed.
        pointers.iter().map(|text| unsafe { CStr::from_ptr(*text) }.to_owned()).collect()
    }

    #[test]
    fn programs_are_decoded_as_they_were_encoded() {
        let (arguments, environment) =
            (texts(&["printf", "", "two words"]), texts(&["XPATH=/wrong", "A=", "PATH=/a:/b", "B=ä"]));
        let parts = ProgramParts {
            directory: c"/usr",
            arguments: &arguments,
            environment: &environment,
            has_terminal: true,
            needs_path_lookup: false,
        };
        let bytes = parts.encode().unwrap();
        let exec = ExecArguments::decode(&bytes).unwrap();
        assert_eq!((exec.directory, exec.has_terminal, exec.needs_path_lookup), (c"/usr", true, false));
        assert_eq!((exec.name, exec.path), (c"printf", Some(b"/a:/b".as_slice())));
        assert_eq!(read(&exec.arguments), arguments);
        assert_eq!(read(&exec.environment), environment);
        for len in 0..bytes.len() {
            assert!(ExecArguments::decode(&bytes[..len]).is_none(), "{len} of {} bytes", bytes.len());
        }
    }
}
