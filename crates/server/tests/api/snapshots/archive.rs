//! Archives as tests want them, also such as no program writes.

/// A tar in the making.
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
