//! Templates of the docker runtime, and their images.

use bollard::models::{CreateImageInfo, ImageSummary};
use bollard::query_parameters::{CreateImageOptionsBuilder, ListImagesOptionsBuilder};
use tokio::sync::watch;
use tokio_stream::StreamExt as _;

use super::{Docker, failed, is_not_found};
use crate::runtime::{RuntimeError, Template};

/// Name of the default template.
const BASE_NAME: &str = "base";
/// Images of the template `base`, in order of preference: first an image that the deployment built. If none is
/// present, the last is pulled.
const BASE: [&str; 2] = ["workspace-base", "ubuntu:22.04"];
/// Other built-in templates: name, image and description.
const BUILT_IN: [(&str, &str, &str); 5] = [
    ("python:3.11", "python:3.11-slim", "Python 3.11"),
    ("python:3.12", "python:3.12-slim", "Python 3.12"),
    ("node:18", "node:18-slim", "Node.js 18"),
    ("node:20", "node:20-slim", "Node.js 20"),
    ("go:1.21", "golang:1.21-alpine", "Go 1.21"),
];
/// Maximum length of the name of an image, in bytes.
const IMAGE_NAME_MAX: usize = 255;

impl Docker {
    /// Finds the image of a template, and pulls it if it is missing.
    pub(super) async fn find_or_pull_image(
        &self,
        template: &str,
        progress_sender: &watch::Sender<String>,
    ) -> Result<String, RuntimeError> {
        let images = images_of(template)?;
        for image in &images {
            if self.has_image(image).await? {
                return Ok(image.clone());
            }
        }
        let image = images.last().cloned().unwrap_or_default();
        self.pull(template, &image, progress_sender).await?;
        Ok(image)
    }

    async fn has_image(&self, image: &str) -> Result<bool, RuntimeError> {
        match self.client.inspect_image(image).await {
            Ok(_) => Ok(true),
            Err(error) if is_not_found(&error) => Ok(false),
            Err(error) => Err(failed("inspect an image", &error)),
        }
    }

    async fn pull(
        &self,
        template: &str,
        image: &str,
        progress_sender: &watch::Sender<String>,
    ) -> Result<(), RuntimeError> {
        tracing::info!(template, image, "pulling an image that is not present");
        progress_sender.send_replace(format!("the image {image} is being pulled"));
        let options = CreateImageOptionsBuilder::new().from_image(image).build();
        let mut steps = self.client.create_image(Some(options), None, None);
        let mut last = String::new();
        while let Some(step) = steps.next().await {
            let step = step.map_err(|error| not_pulled(template, image, &last, &error))?;
            if let Some(error) = &step.error_detail {
                let message = error.message.clone().unwrap_or_default();
                return Err(not_pulled(template, image, &last, &message));
            }
            if let Some(text) = progress(&step).filter(|text| *text != last) {
                progress_sender.send_replace(format!("the image {image} is being pulled: {text}"));
                last = text;
            }
        }
        tracing::info!(template, image, "pulled an image");
        Ok(())
    }

    pub(super) async fn list_templates(&self) -> Result<Vec<Template>, RuntimeError> {
        let options = ListImagesOptionsBuilder::new().build();
        let images = self.client.list_images(Some(options)).await;
        let images = images.map_err(|error| failed("list images", &error))?;
        let base = BASE.map(tagged).into();
        let with_tags =
            BUILT_IN.iter().map(|(name, image, description)| (*name, vec![tagged(image)], *description));
        let with_tags: Vec<(&str, Vec<String>, &str)> =
            std::iter::once((BASE_NAME, base, "a shell and basic tools")).chain(with_tags).collect();
        let mut templates: Vec<Template> = with_tags
            .iter()
            .map(|(name, tags, description)| built_in(name, tags, description, &images))
            .collect();
        for image in &images {
            for tag in image.repo_tags.iter().filter(|tag| is_image(tag)) {
                if !with_tags.iter().any(|(_, tags, _)| tags.contains(tag)) {
                    templates.push(present(tag, "an image of the Docker daemon", image));
                }
            }
        }
        Ok(templates)
    }
}

fn built_in(name: &str, tags: &[String], description: &str, images: &[ImageSummary]) -> Template {
    let found = tags.iter().find_map(|tag| images.iter().find(|image| image.repo_tags.contains(tag)));
    match (found, tags.last()) {
        (Some(image), _) => present(name, description, image),
        (None, tag) => Template {
            name: name.to_owned(),
            description: format!("{description}; pulled when it is used"),
            size: None,
            created_at: None,
            present: false,
            fetch_command: tag.map(|tag| format!("docker pull {tag}")),
        },
    }
}

fn present(name: &str, description: &str, image: &ImageSummary) -> Template {
    Template {
        name: name.to_owned(),
        description: description.to_owned(),
        size: u64::try_from(image.size).ok(),
        created_at: Some(image.created.saturating_mul(1_000)),
        present: true,
        fetch_command: None,
    }
}

/// Lists the images that can be used for a template, in order of preference.
fn images_of(template: &str) -> Result<Vec<String>, RuntimeError> {
    if template == BASE_NAME {
        return Ok(BASE.map(tagged).into());
    }
    if !is_image(template) {
        let hint = "; the docker runtime expects names of images".to_owned();
        return Err(RuntimeError::NoTemplate { name: template.to_owned(), hint });
    }
    let built_in = BUILT_IN.iter().find(|(name, ..)| *name == template);
    Ok(vec![tagged(built_in.map_or(template, |(_, image, _)| image))])
}

/// Returns the progress of a pull as text; `None` if the daemon reports none.
fn progress(step: &CreateImageInfo) -> Option<String> {
    let status = step.status.clone()?;
    let detail = step.progress_detail.as_ref();
    let bytes = detail.and_then(|detail| Some(format!(" {} of {} bytes", detail.current?, detail.total?)));
    Some(format!("{status}{}", bytes.unwrap_or_default()))
}

fn not_pulled(template: &str, image: &str, progress: &str, error: &dyn std::fmt::Display) -> RuntimeError {
    let progress = if progress.is_empty() { String::new() } else { format!(" after `{progress}`") };
    if template == BASE_NAME || BUILT_IN.iter().any(|(name, ..)| *name == template) {
        let reason = format!(": the image {image} could not be pulled{progress} ({error})");
        let fetch_command = format!("docker pull {image}");
        return RuntimeError::TemplateNotPresent { name: template.to_owned(), reason, fetch_command };
    }
    let hint = format!(
        ": the image {image} is not here and could not be pulled{progress} ({error}); \
         `docker pull {image}` or `docker load` brings it"
    );
    RuntimeError::NoTemplate { name: template.to_owned(), hint }
}

/// Adds the tag `latest` where there is none: without a tag, all tags of an image would be pulled.
fn tagged(image: &str) -> String {
    let name = image.rsplit('/').next().unwrap_or(image);
    if name.contains([':', '@']) { image.to_owned() } else { format!("{image}:latest") }
}

/// Returns true for a valid name of an image. Names become parts of the paths of requests.
fn is_image(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_./:@".contains(c);
    name.len() <= IMAGE_NAME_MAX
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(is_allowed)
        && !name.contains("..")
        && !name.contains("//")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_a_tag_is_the_latest() {
        for (image, expected) in [
            ("debian", "debian:latest"),
            ("debian:12", "debian:12"),
            ("localhost:5000/a", "localhost:5000/a:latest"),
            ("a@sha256:00", "a@sha256:00"),
        ] {
            assert_eq!(tagged(image), expected);
        }
    }

    #[test]
    fn invalid_image_names_are_refused() {
        for name in ["", "../../containers/x", "a b", "a?x=y", "-a", "a//b", "$(id)", "/a", "a\0"] {
            assert!(!is_image(name), "{name}");
        }
        assert!(is_image("registry.example:5000/team/image:1.0-rc_1"));
    }
}
