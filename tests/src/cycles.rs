//! Cycles among the files of a crate.
//!
//! A file depends on another when its code, without tests, names something that the other defines. Files of
//! one cycle can only be understood together, so a cycle may have at most [`LIMIT`] files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

use crate::modules::{self, ItemPath, Module, ReadError};

/// Maximum number of files in a cycle.
pub const LIMIT: usize = 3;

/// Maximum number of re-exports between a path and its definition.
const REEXPORTS_MAX: usize = 16;

/// Files that depend on each other, and every dependency between two of them.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} files in a cycle:\n  {}", files.len(), edges.iter().map(|(from, to)| format!("{} uses {}", from.display(), to.display())).collect::<Vec<_>>().join("\n  "))]
pub struct Cycle {
    /// Files in alphabetical order.
    pub files: Vec<PathBuf>,
    edges: Vec<(PathBuf, PathBuf)>,
}

/// Finds the cycles of a package that have more than [`LIMIT`] files.
pub fn large_cycles(package: &Path) -> Result<Vec<Cycle>, Box<dyn std::error::Error>> {
    let mut cycles = Vec::new();
    for root in modules::roots(package)? {
        cycles.extend(cycles_of_crate(&root)?.into_iter().filter(|cycle| cycle.files.len() > LIMIT));
    }
    Ok(cycles)
}

/// Finds all cycles of two or more files below a root file.
fn cycles_of_crate(root: &Path) -> Result<Vec<Cycle>, ReadError> {
    let modules = modules::read_crate(root)?;
    let mut graph = DiGraphMap::<&Path, ()>::new();
    for (path, module) in &modules {
        for used in used_files(&modules, path, module) {
            if used != module.file {
                graph.add_edge(&module.file, used, ());
            }
        }
    }
    let components = tarjan_scc(&graph).into_iter().filter(|component| component.len() > 1);
    Ok(components.map(|component| cycle(&graph, component)).collect())
}

fn cycle(graph: &DiGraphMap<&Path, ()>, component: Vec<&Path>) -> Cycle {
    let mut edges: Vec<_> = graph
        .all_edges()
        .filter(|(from, to, ())| component.contains(from) && component.contains(to))
        .map(|(from, to, ())| (from.to_owned(), to.to_owned()))
        .collect();
    edges.sort();
    let mut files: Vec<_> = component.into_iter().map(Path::to_owned).collect();
    files.sort();
    Cycle { files, edges }
}

/// Files that define what a module uses.
fn used_files<'a>(
    modules: &'a BTreeMap<ItemPath, Module>,
    path: &'a [String],
    module: &'a Module,
) -> impl Iterator<Item = &'a Path> {
    let reexported = module.names.iter().filter(|name| module.imports.contains_key(*name));
    let paths = module.uses.iter().cloned().chain(reexported.map(|name| vec![name.clone()]));
    paths.filter_map(move |used| defining_file(modules, path, &used, REEXPORTS_MAX))
}

/// Finds the file that defines a path, seen from a module. Returns `None` for names of other crates, for local
/// names and for paths of modules themselves, which define nothing.
fn defining_file<'a>(
    modules: &'a BTreeMap<ItemPath, Module>,
    from: &[String],
    path: &[String],
    reexports_left: usize,
) -> Option<&'a Path> {
    let (mut module, mut rest) = match path.split_first()? {
        (first, rest) if first == "crate" => (Vec::new(), rest),
        (first, rest) if first == "self" => (from.to_vec(), rest),
        (first, _) if first == "super" => {
            let count = path.iter().take_while(|segment| *segment == "super").count();
            (from[..from.len().checked_sub(count)?].to_vec(), &path[count..])
        }
        _ => (from.to_vec(), path),
    };
    loop {
        let (name, after) = rest.split_first()?;
        let current = modules.get(&module)?;
        // A function can have the name of a module; paths lead to the module.
        module.push(name.clone());
        if modules.contains_key(&module) {
            rest = after;
            continue;
        }
        module.pop();
        if current.items.contains(name) {
            return Some(&current.file);
        }
        let reexports_left = reexports_left.checked_sub(1)?;
        let follow = |target: &[String]| {
            let path: ItemPath = target.iter().chain(after).cloned().collect();
            // A name that stands for itself is another crate's.
            (path != rest).then(|| defining_file(modules, &module, &path, reexports_left)).flatten()
        };
        if let Some(target) = current.imports.get(name) {
            return follow(target);
        }
        return current.globs.iter().find_map(|glob| {
            let path: ItemPath = glob.iter().chain(rest).cloned().collect();
            defining_file(modules, &module, &path, reexports_left)
        });
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Finds the cycles of a crate with these files.
    fn cycles_of(name: &str, files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let directory = std::env::temp_dir().join(format!("cycles-{name}-{}", std::process::id()));
        for (name, text) in files {
            let path = directory.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = cycles_of_crate(&directory.join(files[0].0));
        fs::remove_dir_all(&directory).unwrap();
        let found = found.unwrap().into_iter();
        found.map(|cycle| cycle.files.iter().map(|file| file.display().to_string()).collect()).collect()
    }

    #[test]
    fn uses_through_reexports_count_for_the_defining_file() {
        let found = cycles_of(
            "reexports",
            &[
                ("lib.rs", "mod a; mod b; pub use a::{First, first as start}; pub use b::*;"),
                ("a.rs", "use crate::Second; pub struct First; pub fn first() {}"),
                ("b.rs", "pub struct Second; fn call() { crate::start() }"),
            ],
        );
        assert_eq!(found, [["a.rs", "b.rs"]]);
    }

    #[test]
    fn reexporting_is_no_use() {
        let found = cycles_of(
            "facade",
            &[
                ("lib.rs", "mod a; mod b; pub use a::first; pub struct Root;"),
                ("a.rs", "pub fn first(_: super::Root) {}"),
                ("b.rs", "use super::a::first; pub(crate) const B: u32 = 1;"),
            ],
        );
        assert_eq!(found, [[""; 0]; 0]);
    }

    #[test]
    fn names_in_macros_and_nested_files_count() {
        let found = cycles_of(
            "macros",
            &[
                (
                    "main.rs",
                    "mod part; const LIMIT: u32 = 1; fn main() { println!(\"{}\", part::inner::text()) }",
                ),
                ("part/mod.rs", "pub mod inner;"),
                ("part/inner.rs", "use self::deeper::Deep; mod deeper; pub fn text() -> u32 { Deep::new() }"),
                ("part/inner/deeper.rs", "pub struct Deep; fn f() { assert_eq!([crate::LIMIT], [1]) }"),
            ],
        );
        assert_eq!(found, [["main.rs", "part/inner/deeper.rs", "part/inner.rs"]]);
    }

    #[test]
    fn tests_and_other_crates_do_not_count() {
        let found = cycles_of(
            "tests",
            &[
                ("lib.rs", "mod a; mod b;"),
                ("a.rs", "use std::fs; pub fn a() { fs::read(\"\"); crate::b::b() }"),
                ("b.rs", "pub fn b() {} #[cfg(test)] mod tests { use crate::a::a; }"),
            ],
        );
        assert_eq!(found, [[""; 0]; 0]);
    }
}
