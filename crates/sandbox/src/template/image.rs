//! Archives of templates: a root filesystem, or an image in layers.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use workspace_state::{Extractor, list_tar};

use super::{ImportOptions, TemplateError, decompress};

/// Maximum size of a JSON file in an archive, in bytes.
const TEXT_MAX: u64 = 16 << 20;
/// Maximum depth of nested indexes in an OCI layout.
const DEPTH_MAX: u32 = 4;
/// Maximum number of layers of an image; runtimes have no more than 127.
const LAYERS_MAX: usize = 512;

/// An archive and its members.
struct Members<'o> {
    archive: File,
    /// Offset and size of the content of each member, by path.
    members: HashMap<Vec<u8>, (u64, u64)>,
    options: &'o ImportOptions,
    /// Digests of blobs that were verified.
    verified: RefCell<HashSet<String>>,
}

#[derive(Deserialize)]
struct SavedImage {
    #[serde(rename = "Config")]
    config: String,
    #[serde(rename = "Layers")]
    layers: Vec<String>,
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: String,
    #[serde(default, rename = "mediaType")]
    media_type: String,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

#[derive(Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Deserialize, Default)]
struct ImageConfig {
    config: Option<RunConfig>,
}

#[derive(Deserialize, Default)]
struct RunConfig {
    #[serde(rename = "Env")]
    env: Option<Vec<String>>,
}

/// Unpacks an archive of any supported format, and returns the environment variables of the image.
pub(super) fn unpack(
    archive: File,
    extractor: &mut Extractor,
    options: &ImportOptions,
) -> Result<BTreeMap<String, String>, TemplateError> {
    let mut members = Members::list(archive, options)?;
    if members.has("manifest.json") {
        return members.unpack_docker_save(extractor);
    }
    if members.has("oci-layout") && members.has("index.json") {
        return members.unpack_oci_layout(extractor);
    }
    members.archive.rewind()?;
    extractor.extract(&mut &members.archive)?;
    Ok(BTreeMap::new())
}

fn archive_error(message: impl Into<String>) -> TemplateError {
    TemplateError::Archive(message.into())
}

fn parse<T: for<'d> Deserialize<'d>>(text: &[u8], what: &str) -> Result<T, TemplateError> {
    serde_json::from_slice(text).map_err(|error| archive_error(format!("{what}: {error}")))
}

impl<'o> Members<'o> {
    /// Lists the members of an archive.
    fn list(mut archive: File, options: &'o ImportOptions) -> Result<Self, TemplateError> {
        archive.rewind()?;
        let files = list_tar(&archive, options.limits(), &options.cancel)?;
        if files.is_empty() {
            return Err(archive_error("it contains no files"));
        }
        let members = files.into_iter().map(|file| (file.path, (file.offset, file.size))).collect();
        Ok(Self { archive, members, options, verified: RefCell::default() })
    }

    fn has(&self, name: &str) -> bool {
        self.members.contains_key(name.as_bytes())
    }

    fn open(&self, name: &str) -> Result<impl Read + '_, TemplateError> {
        let path = name.trim_start_matches("./");
        let (offset, size) =
            *self.members.get(path.as_bytes()).ok_or_else(|| archive_error(format!("it has no `{name}`")))?;
        (&self.archive).seek(SeekFrom::Start(offset))?;
        Ok(self.options.cancel.reader((&self.archive).take(size)))
    }

    fn read_text(&self, name: &str) -> Result<Vec<u8>, TemplateError> {
        let mut text = Vec::new();
        self.open(name)?.take(TEXT_MAX).read_to_end(&mut text)?;
        Ok(text)
    }

    /// Verifies the digest of a blob, and returns its path in the archive.
    fn verify_blob(&self, digest: &str) -> Result<String, TemplateError> {
        let (algorithm, hex) = digest.split_once(':').unwrap_or_default();
        let name = format!("blobs/{algorithm}/{hex}");
        if algorithm != "sha256" {
            return Err(archive_error(format!("`{digest}` is not a SHA-256 digest")));
        }
        if self.verified.borrow().contains(digest) {
            return Ok(name);
        }
        let mut hasher = Sha256::new();
        io::copy(&mut self.open(&name)?, &mut hasher)?;
        let actual: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if actual != hex {
            return Err(archive_error(format!("`{name}` is corrupt")));
        }
        self.verified.borrow_mut().insert(digest.to_owned());
        Ok(name)
    }

    /// Extracts layers over each other. Together they have at most as many bytes as a template may have.
    fn extract_layers(&self, names: &[String], extractor: &mut Extractor) -> Result<(), TemplateError> {
        if names.len() > LAYERS_MAX {
            return Err(archive_error(format!("it has {} layers; {LAYERS_MAX} are allowed", names.len())));
        }
        let mut budget = self.options.max_bytes;
        for name in names {
            self.extract_layer(name, extractor, &mut budget)?;
        }
        Ok(())
    }

    /// Extracts a layer, and subtracts its decompressed bytes from `budget`.
    fn extract_layer(
        &self,
        name: &str,
        extractor: &mut Extractor,
        budget: &mut u64,
    ) -> Result<(), TemplateError> {
        let mut first_bytes = Vec::new();
        self.open(name)?.take(4).read_to_end(&mut first_bytes)?;
        // One reader at a time, because all readers share the offset of the file.
        let input = match decompress(&first_bytes, self.open(name)?)? {
            Some(reader) => reader,
            None => Box::new(self.open(name)?),
        };
        let mut layer = BudgetReader { input, budget, is_exceeded: false };
        let extracted = extractor.extract(&mut layer);
        if layer.is_exceeded {
            return Err(self.options.too_large());
        }
        Ok(extracted?)
    }

    /// Unpacks the output of `docker save`.
    fn unpack_docker_save(
        &self,
        extractor: &mut Extractor,
    ) -> Result<BTreeMap<String, String>, TemplateError> {
        let images: Vec<SavedImage> = parse(&self.read_text("manifest.json")?, "manifest.json")?;
        let [image] = &images[..] else {
            return Err(archive_error(format!("it contains {} images; save only one", images.len())));
        };
        self.extract_layers(&image.layers, extractor)?;
        variables(&self.read_text(&image.config)?)
    }

    /// Unpacks an OCI image layout.
    fn unpack_oci_layout(
        &self,
        extractor: &mut Extractor,
    ) -> Result<BTreeMap<String, String>, TemplateError> {
        let mut index: Index = parse(&self.read_text("index.json")?, "index.json")?;
        for _ in 0..DEPTH_MAX {
            let chosen = index.choose()?;
            let text = self.read_text(&self.verify_blob(&chosen.digest)?)?;
            if chosen.media_type.contains("index") || chosen.media_type.contains("manifest.list") {
                index = parse(&text, "an index")?;
                continue;
            }
            let manifest: Manifest = parse(&text, "a manifest")?;
            let layers: Result<Vec<_>, _> =
                manifest.layers.iter().map(|it| self.verify_blob(&it.digest)).collect();
            self.extract_layers(&layers?, extractor)?;
            return variables(&self.read_text(&self.verify_blob(&manifest.config.digest)?)?);
        }
        Err(archive_error("its indexes do not lead to an image"))
    }
}

/// Reader that subtracts the bytes that it reads from a budget, and fails when they exceed it.
struct BudgetReader<'a> {
    input: Box<dyn Read + 'a>,
    budget: &'a mut u64,
    /// True once the budget was exceeded, which tells this error from those of `input`.
    is_exceeded: bool,
}

impl Read for BudgetReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        match self.budget.checked_sub(read as u64) {
            Some(rest) => *self.budget = rest,
            None => {
                self.is_exceeded = true;
                return Err(io::Error::other("the layers are too large"));
            }
        }
        Ok(read)
    }
}

impl Index {
    /// Chooses the image for this machine, or the only one if it has no platform.
    fn choose(&self) -> Result<&Descriptor, TemplateError> {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let is_for_this_machine = |one: &&Descriptor| {
            one.platform.as_ref().is_some_and(|it| it.architecture == architecture && it.os == "linux")
        };
        match (self.manifests.iter().find(is_for_this_machine), &self.manifests[..]) {
            (Some(found), _) => Ok(found),
            (None, [only]) if only.platform.is_none() => Ok(only),
            _ => Err(archive_error(format!("it has no image for linux on {architecture}"))),
        }
    }
}

fn variables(config: &[u8]) -> Result<BTreeMap<String, String>, TemplateError> {
    let config: ImageConfig = parse(config, "the image's description")?;
    let env = config.config.unwrap_or_default().env.unwrap_or_default();
    let pairs = env.iter().filter_map(|line| line.split_once('='));
    Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}
