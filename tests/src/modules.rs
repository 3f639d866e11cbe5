//! Modules of a crate: the file of each, the names it defines and the paths that its code uses.
//!
//! This reads as much Rust as it takes to say in which file a path such as `crate::disk::Usage` is defined.
//! Types of expressions are unknown here, so a method call is not a use of the method's file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree, Visibility};

/// Path of a module or an item below the root of its crate, without `crate`.
pub(crate) type ItemPath = Vec<String>;

/// Module of a crate without its tests.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// File with the module's source, relative to the directory of the sources.
    pub(crate) file: PathBuf,
    /// Names of items that are defined here, submodules excepted.
    pub(crate) items: BTreeSet<String>,
    /// Targets of `use` declarations as they are written, by the name that they bring into scope.
    pub(crate) imports: BTreeMap<String, ItemPath>,
    /// Targets of `use path::*`.
    pub(crate) globs: Vec<ItemPath>,
    /// Paths of two or more segments in code, and the targets of private `use` declarations.
    pub(crate) uses: BTreeSet<ItemPath>,
    /// Names of single-segment paths in code, which can be re-exported names.
    pub(crate) names: BTreeSet<String>,
}

/// Source file that cannot be read as Rust.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub(crate) struct ReadError {
    path: PathBuf,
    reason: String,
}

/// Reads all modules of a crate, from the root file (`lib.rs` or `main.rs`) down.
pub(crate) fn read_crate(root: &Path) -> Result<BTreeMap<ItemPath, Module>, ReadError> {
    let directory = root.parent().expect("a file has a parent").to_owned();
    let mut reader = Reader { sources: directory.clone(), modules: BTreeMap::new() };
    reader.read_file(Vec::new(), root, &directory)?;
    Ok(reader.modules)
}

struct Reader {
    sources: PathBuf,
    modules: BTreeMap<ItemPath, Module>,
}

impl Reader {
    /// Reads one file and the files of its submodules, which are below `children`.
    fn read_file(&mut self, path: ItemPath, file: &Path, children: &Path) -> Result<(), ReadError> {
        let failed = |reason: &dyn ToString| ReadError { path: file.to_owned(), reason: reason.to_string() };
        let text = fs::read_to_string(file).map_err(|error| failed(&error))?;
        let items = syn::parse_file(&text).map_err(|error| failed(&error))?.items;
        self.read_items(path, file, children, &items)
    }

    fn read_items(
        &mut self,
        path: ItemPath,
        file: &Path,
        children: &Path,
        items: &[Item],
    ) -> Result<(), ReadError> {
        let relative = file.strip_prefix(&self.sources).unwrap_or(file).to_owned();
        let mut module = Module { file: relative, ..Module::default() };
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            module.items.extend(defined_name(item));
            match item {
                Item::Mod(child) => self.read_submodule(&path, file, children, child)?,
                _ => module.visit_item(item),
            }
        }
        // The first of two modules of one name is the one that is built for Linux.
        self.modules.entry(path).or_insert(module);
        Ok(())
    }

    fn read_submodule(
        &mut self,
        parent: &[String],
        file: &Path,
        children: &Path,
        child: &ItemMod,
    ) -> Result<(), ReadError> {
        let name = child.ident.to_string();
        let path: ItemPath = parent.iter().cloned().chain([name.clone()]).collect();
        let below = children.join(&name);
        if let Some((_, items)) = &child.content {
            return self.read_items(path, file, &below, items);
        }
        if let Some(named) = path_attribute(&child.attrs) {
            let named = file.parent().expect("a file has a parent").join(named);
            return self.read_file(path, &named, named.parent().expect("a file has a parent"));
        }
        let flat = children.join(format!("{name}.rs"));
        let file = if flat.exists() { flat } else { below.join("mod.rs") };
        self.read_file(path, &file, &below)
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_private = matches!(item.vis, Visibility::Inherited);
        self.add_import(Vec::new(), &item.tree, is_private);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.add_use(segments);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invocation: &'ast syn::Macro) {
        self.add_tokens(invocation.tokens.clone());
        visit::visit_macro(self, invocation);
    }
}

impl Module {
    fn add_use(&mut self, path: ItemPath) {
        match path.as_slice() {
            [] => {}
            [name] => _ = self.names.insert(name.clone()),
            _ => _ = self.uses.insert(path),
        }
    }

    fn add_import(&mut self, prefix: ItemPath, tree: &UseTree, is_private: bool) {
        let joined = |name: &dyn ToString| -> ItemPath {
            prefix.iter().cloned().chain([name.to_string()].into_iter().filter(|it| it != "self")).collect()
        };
        let (name, target) = match tree {
            UseTree::Path(path) if path.ident == "self" && prefix.is_empty() => {
                return self.add_import(vec!["self".to_owned()], &path.tree, is_private);
            }
            UseTree::Path(path) => return self.add_import(joined(&path.ident), &path.tree, is_private),
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.add_import(prefix.clone(), tree, is_private));
            }
            UseTree::Glob(_) => return self.globs.push(prefix),
            UseTree::Name(name) => (joined(&name.ident).last().cloned(), joined(&name.ident)),
            UseTree::Rename(rename) => (Some(rename.rename.to_string()), joined(&rename.ident)),
        };
        if is_private {
            self.add_use(target.clone());
        }
        self.imports.extend(name.map(|name| (name, target)));
    }

    /// Adds the paths among the arguments of a macro, which are tokens and no syntax tree.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path = ItemPath::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.add_use(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.add_use(std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.add_use(path);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn defined_name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Returns true for `#[cfg(test)]` and `#[cfg(all(test, …))]`.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|it| it.path().is_ident("cfg")).any(|attribute| {
        let mut is_test = false;
        // A condition that is no list of names has no `test` in it.
        let _ = attribute.parse_nested_meta(|meta| {
            is_test |= meta.path.is_ident("test");
            if meta.path.is_ident("all") {
                return meta.parse_nested_meta(|inner| {
                    is_test |= inner.path.is_ident("test");
                    Ok(())
                });
            }
            Ok(())
        });
        is_test
    })
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|it| it.path().is_ident("path"))?;
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) =
        &attribute.meta.require_name_value().ok()?.value
    else {
        return None;
    };
    Some(path.value())
}

/// Finds the root files of a package: `src/lib.rs` and `src/main.rs`, as far as they exist.
pub(crate) fn roots(package: &Path) -> io::Result<Vec<PathBuf>> {
    let candidates = ["lib.rs", "main.rs"].map(|name| package.join("src").join(name));
    let mut roots = Vec::new();
    for root in candidates {
        if root.try_exists()? {
            roots.push(root);
        }
    }
    Ok(roots)
}
