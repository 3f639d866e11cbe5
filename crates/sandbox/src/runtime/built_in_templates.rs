//! Templates of runtimes that store them in directories: built-in and imported ones.

use std::io;

use super::{RuntimeError, Template};
use crate::template::{BuildOrigin, ImportedTemplate, Templates};

/// Template that is always present.
pub(super) const BASE: &str = "base";
/// Built-in templates with their images.
const BUILT_IN: [(&str, &str); 5] = [
    ("python:3.11", "python:3.11-slim"),
    ("python:3.12", "python:3.12-slim"),
    ("node:18", "node:18-slim"),
    ("node:20", "node:20-slim"),
    ("go:1.21", "golang:1.21-alpine"),
];

/// Lists the templates that are present, and those that can be fetched.
pub(super) fn list_templates(templates: &Templates) -> io::Result<Vec<Template>> {
    let imported = templates.list()?;
    let mut all = vec![base()];
    for (name, image) in BUILT_IN {
        if !imported.iter().any(|template| template.name == name) {
            all.push(absent(name, image));
        }
    }
    all.extend(imported.into_iter().map(Template::from));
    Ok(all)
}

fn base() -> Template {
    Template {
        name: BASE.to_owned(),
        description: "the programs and libraries of this machine, read-only".to_owned(),
        size: None,
        created_at: None,
        present: true,
        fetch_command: None,
    }
}

impl From<ImportedTemplate> for Template {
    fn from(template: ImportedTemplate) -> Self {
        let described = |build: &BuildOrigin| match (&build.description, &build.from) {
            (Some(description), _) => description.clone(),
            (None, Some(from)) => format!("built from {from}"),
            (None, None) => "built".to_owned(),
        };
        Template {
            description: template.build.as_ref().map_or_else(|| "imported".to_owned(), described),
            size: Some(template.size),
            created_at: Some(template.created_at),
            present: true,
            fetch_command: None,
            name: template.name,
        }
    }
}

/// Describes a built-in template that is not present.
fn absent(name: &str, image: &str) -> Template {
    Template {
        name: name.to_owned(),
        description: format!("the image {image}"),
        size: None,
        created_at: None,
        present: false,
        fetch_command: Some(fetch_command(name, image)),
    }
}

fn fetch_command(name: &str, image: &str) -> String {
    format!("docker pull {image} && docker save {image} | workspace template import {name} -")
}

/// Returns the error for a template that is not present.
pub(super) fn template_not_found(name: &str) -> RuntimeError {
    let name = name.to_owned();
    match BUILT_IN.iter().find(|(known, _)| *known == name) {
        Some((_, image)) => {
            let fetch_command = fetch_command(&name, image);
            RuntimeError::TemplateNotPresent { name, reason: String::new(), fetch_command }
        }
        None => {
            let hint = format!("; import one: workspace template import {name} ARCHIVE");
            RuntimeError::NoTemplate { name, hint }
        }
    }
}
