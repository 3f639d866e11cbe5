//! Builder of tar archives, including invalid ones.

/// Builder of a tar archive.
#[derive(Default)]
pub(crate) struct Archive(Vec<u8>);

impl Archive {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn file(self, name: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> Self {
        self.member(name.as_ref(), b'0', b"", 0o644, content.as_ref())
    }

    pub(crate) fn program(self, name: &str, content: &str) -> Self {
        self.member(name.as_bytes(), b'0', b"", 0o755, content.as_bytes())
    }

    pub(crate) fn symlink(self, name: &str, target: &str) -> Self {
        self.member(name.as_bytes(), b'2', target.as_bytes(), 0o777, b"")
    }

    pub(crate) fn hard_link(self, name: &str, target: &str) -> Self {
        self.member(name.as_bytes(), b'1', target.as_bytes(), 0o644, b"")
    }

    pub(crate) fn device(self, name: &str) -> Self {
        self.member(name.as_bytes(), b'3', b"", 0o644, b"")
    }

    /// Adds pax records for the next member.
    pub(crate) fn records(self, records: &[(&str, &[u8])]) -> Self {
        let mut text = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let digits = (1..).find(|digits| (rest + digits).to_string().len() == *digits).unwrap();
            text.extend_from_slice(format!("{} {key}=", rest + digits).as_bytes());
            text.extend_from_slice(value);
            text.push(b'\n');
        }
        self.member(b"PaxHeader", b'x', b"", 0o644, &text)
    }

    /// Adds a file that is one hole, in the GNU sparse format 1.0.
    pub(crate) fn hole(self, name: &str, size: u64) -> Self {
        let size = size.to_string();
        let records: [(&str, &[u8]); 4] = [
            ("GNU.sparse.major", b"1"),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.name", name.as_bytes()),
            ("GNU.sparse.realsize", size.as_bytes()),
        ];
        self.records(&records).file("hole", [&b"0\n"[..], &[0; 510]].concat())
    }

    fn member(mut self, name: &[u8], kind: u8, target: &[u8], mode: u32, content: &[u8]) -> Self {
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name);
        header[100..107].copy_from_slice(format!("{mode:07o}").as_bytes());
        header[108..115].copy_from_slice(b"0000000");
        header[116..123].copy_from_slice(b"0000000");
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[136..147].copy_from_slice(b"14371573400");
        header[148..156].copy_from_slice(b"        ");
        header[156] = kind;
        header[157..157 + target.len()].copy_from_slice(target);
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        self.0.extend_from_slice(&header);
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        [&self.0[..], &[0; 1024]].concat()
    }
}

/// Returns a tar archive with one file of zeros, compressed with zstd to 32 bytes per MiB (RLE blocks).
pub(crate) fn zeros(mebibytes: usize) -> Vec<u8> {
    filled(mebibytes, 0)
}

/// Returns a tar archive with one file `zeros` that has only this byte, compressed like [`zeros`].
pub(crate) fn filled(mebibytes: usize, byte: u8) -> Vec<u8> {
    const BLOCK: u32 = 128 << 10;
    let size = (mebibytes << 20).to_string();
    let head = Archive::new().records(&[("size", size.as_bytes())]).file("zeros", "").0;
    // Magic number, no optional fields, a window of one block.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 7 << 3];
    let block = |kind: u32, len: u32, last: u32| (len << 3 | kind << 1 | last).to_le_bytes()[..3].to_vec();
    frame.extend(block(0, u32::try_from(head.len()).unwrap(), 0));
    frame.extend(head);
    for _ in 0..mebibytes * 8 {
        frame.extend(block(1, BLOCK, 0));
        frame.push(byte);
    }
    frame.extend(block(1, 1024, 1));
    frame.push(0);
    frame
}
