//! What an archive holds: a root filesystem, or an image in layers.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tar::Archive;

use super::unpack::Unpacker;
use super::{TemplateError, decompress};

/// Descriptions are small.
const TEXT_MAX: u64 = 16 << 20;
/// An index may hold an index, but not for ever.
const DEPTH_MAX: u32 = 4;

/// Where the members of an archive are in it.
struct Members {
    archive: File,
    places: HashMap<String, (u64, u64)>,
}

#[derive(Deserialize)]
struct Saved {
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

/// Unpacks whatever the archive is; the variables that its programs expect.
pub(super) fn unpack(
    archive: File,
    unpacker: &mut Unpacker,
) -> Result<BTreeMap<String, String>, TemplateError> {
    let mut members = Members::find(archive)?;
    if members.has("manifest.json") {
        return members.saved(unpacker);
    }
    if members.has("oci-layout") && members.has("index.json") {
        return members.layout(unpacker);
    }
    members.archive.rewind()?;
    unpacker.layer(&members.archive)?;
    Ok(BTreeMap::new())
}

fn wrong(message: impl Into<String>) -> TemplateError {
    TemplateError::Archive(message.into())
}

fn parse<T: for<'d> Deserialize<'d>>(text: &[u8], what: &str) -> Result<T, TemplateError> {
    serde_json::from_slice(text).map_err(|error| wrong(format!("{what}: {error}")))
}

impl Members {
    fn find(mut archive: File) -> Result<Self, TemplateError> {
        archive.rewind()?;
        let mut places = HashMap::new();
        for entry in Archive::new(&archive).entries_with_seek()? {
            let entry = entry.map_err(|error| wrong(error.to_string()))?;
            if entry.header().entry_type().is_file() {
                let name = entry.path()?.to_string_lossy().trim_start_matches("./").to_owned();
                places.insert(name, (entry.raw_file_position(), entry.size()));
            }
        }
        if places.is_empty() {
            return Err(wrong("it holds no files"));
        }
        Ok(Self { archive, places })
    }

    fn has(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    fn open(&self, name: &str) -> Result<impl Read + '_, TemplateError> {
        let place = self.places.get(name).ok_or_else(|| wrong(format!("it has no `{name}`")))?;
        (&self.archive).seek(SeekFrom::Start(place.0))?;
        Ok((&self.archive).take(place.1))
    }

    fn text(&self, name: &str) -> Result<Vec<u8>, TemplateError> {
        let mut text = Vec::new();
        self.open(name)?.take(TEXT_MAX).read_to_end(&mut text)?;
        Ok(text)
    }

    /// A blob, which must be what its name says.
    fn blob(&self, digest: &str) -> Result<String, TemplateError> {
        let (kind, hex) = digest.split_once(':').unwrap_or_default();
        let name = format!("blobs/{kind}/{hex}");
        if kind != "sha256" {
            return Err(wrong(format!("`{digest}` is no SHA-256 digest")));
        }
        let mut hasher = Sha256::new();
        io::copy(&mut self.open(&name)?, &mut hasher)?;
        let found: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if found != hex {
            return Err(wrong(format!("`{name}` is damaged")));
        }
        Ok(name)
    }

    fn layer(&self, name: &str, unpacker: &mut Unpacker) -> Result<(), TemplateError> {
        let mut begins = Vec::new();
        self.open(name)?.take(4).read_to_end(&mut begins)?;
        let layer = self.open(name)?;
        // A second reader of the same file would move the first.
        match decompress(&begins, &mut { layer })? {
            Some(reader) => unpacker.layer(reader),
            None => unpacker.layer(self.open(name)?),
        }
    }

    fn saved(&self, unpacker: &mut Unpacker) -> Result<BTreeMap<String, String>, TemplateError> {
        let images: Vec<Saved> = parse(&self.text("manifest.json")?, "manifest.json")?;
        let [image] = &images[..] else {
            return Err(wrong(format!("it holds {} images; save one", images.len())));
        };
        for layer in &image.layers {
            self.layer(layer, unpacker)?;
        }
        variables(&self.text(&image.config)?)
    }

    fn layout(&self, unpacker: &mut Unpacker) -> Result<BTreeMap<String, String>, TemplateError> {
        let mut index: Index = parse(&self.text("index.json")?, "index.json")?;
        for _ in 0..DEPTH_MAX {
            let chosen = index.choose()?;
            let text = self.text(&self.blob(&chosen.digest)?)?;
            if chosen.media_type.contains("index") || chosen.media_type.contains("manifest.list") {
                index = parse(&text, "an index")?;
                continue;
            }
            let manifest: Manifest = parse(&text, "a manifest")?;
            for layer in &manifest.layers {
                self.layer(&self.blob(&layer.digest)?, unpacker)?;
            }
            return variables(&self.text(&self.blob(&manifest.config.digest)?)?);
        }
        Err(wrong("its indexes never come to an image"))
    }
}

impl Index {
    /// The image for this machine; the only one there is, if it does not say for which.
    fn choose(&self) -> Result<&Descriptor, TemplateError> {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let fits = |one: &&Descriptor| {
            one.platform.as_ref().is_some_and(|it| it.architecture == architecture && it.os == "linux")
        };
        match (self.manifests.iter().find(fits), &self.manifests[..]) {
            (Some(found), _) => Ok(found),
            (None, [only]) if only.platform.is_none() => Ok(only),
            _ => Err(wrong(format!("it has no image for linux on {architecture}"))),
        }
    }
}

fn variables(config: &[u8]) -> Result<BTreeMap<String, String>, TemplateError> {
    let config: ImageConfig = parse(config, "the image's description")?;
    let env = config.config.unwrap_or_default().env.unwrap_or_default();
    let pairs = env.iter().filter_map(|line| line.split_once('='));
    Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}
