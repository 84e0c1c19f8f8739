//! Reads the modules of a crate and their imports from the source.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

/// The path of a module below the crate root; empty for the root.
pub(crate) type ModulePath = Vec<String>;

/// One module.
#[derive(Default)]
struct Module {
    children: BTreeSet<String>,
    /// Names that the module re-exports, and their paths.
    exports: BTreeMap<String, Vec<String>>,
    /// Paths of modules that are re-exported as a whole.
    globs: Vec<Vec<String>>,
    /// Names of the items that the module defines.
    definitions: BTreeSet<String>,
    /// Paths that occur in the module's code, except those that it only re-exports.
    used_paths: BTreeSet<Vec<String>>,
}

/// The modules of a crate.
#[derive(Default)]
pub(crate) struct Modules {
    all: BTreeMap<ModulePath, Module>,
}

impl Modules {
    /// Reads a crate from its root file. Skips code that is compiled only for tests.
    pub(crate) fn read(root: &Path) -> Self {
        let mut modules = Self::default();
        let directory = root.parent().expect("the root file has a directory");
        modules.add(&parse(root), &[], directory);
        modules
    }

    fn add(&mut self, items: &[syn::Item], path: &[String], directory: &Path) {
        let mut module = Module::default();
        for item in items.iter().filter(|item| !is_for_tests(item)) {
            match item {
                syn::Item::Mod(item) => {
                    let name = item.ident.to_string();
                    let below = directory.join(&name);
                    let mut child = path.to_vec();
                    child.push(name.clone());
                    match &item.content {
                        Some((_, items)) => self.add(items, &child, &below),
                        None => self.add(&parse(&file_of(directory, &name)), &child, &below),
                    }
                    module.children.insert(name);
                }
                syn::Item::Use(item) => module.add_use(item),
                item => module.definitions.extend(name_of(item)),
            }
        }
        // A name that the module re-exports is also in scope in the module.
        let mut code = Code::default();
        for item in items.iter().filter(|item| !is_for_tests(item)) {
            if !matches!(item, syn::Item::Mod(_) | syn::Item::Use(_)) {
                code.visit_item(item);
            }
        }
        for used_path in code.paths {
            let first = used_path[0].as_str();
            let is_local = matches!(first, "crate" | "self" | "super");
            // A path with a single word is not a module, but a variable or function.
            let is_child = used_path.len() > 1 && module.children.contains(first);
            if is_local || is_child || module.exports.contains_key(first) {
                module.used_paths.insert(used_path);
            }
        }
        self.all.insert(path.to_vec(), module);
    }

    /// Returns the imports as pairs of the importing and the imported module.
    pub(crate) fn imports(&self) -> BTreeSet<(ModulePath, ModulePath)> {
        let mut imports = BTreeSet::new();
        for (from, module) in &self.all {
            for used_path in &module.used_paths {
                if let Some(to) = self.resolve(from, used_path, 0)
                    && to != *from
                {
                    imports.insert((from.clone(), to));
                }
            }
        }
        imports
    }

    /// Returns the module that defines the item that `from` refers to with the path `used_path`; `None` = another crate
    /// defines it.
    fn resolve(&self, from: &[String], used_path: &[String], depth: u32) -> Option<ModulePath> {
        const MAX_DEPTH: u32 = 16;
        let mut module_path = from.to_vec();
        let mut remaining = used_path;
        match used_path.first()?.as_str() {
            "crate" => (module_path, remaining) = (Vec::new(), &used_path[1..]),
            "self" => remaining = &used_path[1..],
            "super" => {
                while remaining.first().is_some_and(|name| name == "super") {
                    module_path.pop()?;
                    remaining = &remaining[1..];
                }
            }
            first => {
                let module = &self.all[&module_path];
                let is_in_scope = module.children.contains(first)
                    || module.exports.contains_key(first)
                    || module.definitions.contains(first);
                if !is_in_scope {
                    return None;
                }
            }
        }
        while let Some(name) = remaining.first() {
            let module = &self.all[&module_path];
            if module.children.contains(name) {
                module_path.push(name.clone());
                remaining = &remaining[1..];
                continue;
            }
            if module.definitions.contains(name) || depth > MAX_DEPTH {
                return Some(module_path);
            }
            if let Some(origin) = module.exports.get(name) {
                return self.resolve(&module_path, origin, depth + 1);
            }
            for glob in &module.globs {
                let mut path = glob.clone();
                path.push(name.clone());
                if let Some(found) = self.resolve(&module_path, glob, depth + 1)
                    && self.defines(&found, name)
                {
                    return self.resolve(&module_path, &path, depth + 1);
                }
            }
            break;
        }
        Some(module_path)
    }

    fn defines(&self, module: &[String], name: &str) -> bool {
        let module = &self.all[module];
        module.definitions.contains(name)
            || module.children.contains(name)
            || module.exports.contains_key(name)
    }
}

impl Module {
    fn add_use(&mut self, item: &syn::ItemUse) {
        let is_exported = !matches!(item.vis, syn::Visibility::Inherited);
        let mut found = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut found);
        for (path, name) in found {
            match name {
                Some(name) if is_exported => drop(self.exports.insert(name, path)),
                None if is_exported => self.globs.push(path),
                _ => drop(self.used_paths.insert(path)),
            }
        }
    }
}

/// Returns the paths in a `use` declaration, each with the name that it binds; `None` = all names of a module.
fn flatten(
    tree: &syn::UseTree,
    path: &mut Vec<String>,
    found: &mut Vec<(Vec<String>, Option<String>)>,
) {
    let path_to = |path: &[String], name: &syn::Ident| {
        let mut full_path = path.to_vec();
        if name != "self" {
            full_path.push(name.to_string());
        }
        full_path
    };
    match tree {
        syn::UseTree::Path(tree) => {
            path.push(tree.ident.to_string());
            flatten(&tree.tree, path, found);
            path.pop();
        }
        syn::UseTree::Name(tree) => {
            let full_path = path_to(path, &tree.ident);
            let name = full_path.last().cloned();
            found.push((full_path, name));
        }
        syn::UseTree::Rename(tree) => {
            found.push((path_to(path, &tree.ident), Some(tree.rename.to_string())));
        }
        syn::UseTree::Glob(_) => found.push((path.clone(), None)),
        syn::UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, path, found);
            }
        }
    }
}

/// The paths in the code of a module, including macro arguments.
#[derive(Default)]
struct Code {
    paths: BTreeSet<Vec<String>>,
}

impl<'ast> Visit<'ast> for Code {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        self.paths.insert(words.collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        let text = call.tokens.to_string().replace(' ', "");
        for (start, _) in text.match_indices("crate::") {
            let words = text[start..].split("::").map(|word| {
                let end = word.find(|c: char| !c.is_alphanumeric() && c != '_');
                (&word[..end.unwrap_or(word.len())], end.is_some())
            });
            let mut path = Vec::new();
            for (word, is_last) in words {
                path.push(word.to_owned());
                if is_last {
                    break;
                }
            }
            self.paths.insert(path);
        }
        visit::visit_macro(self, call);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let mut found = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut found);
        self.paths.extend(found.into_iter().map(|(path, _)| path));
    }

    // `pub(crate)` imports nothing.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}
}

fn parse(file: &Path) -> Vec<syn::Item> {
    let text = std::fs::read_to_string(file).expect("read the source file");
    let parsed = syn::parse_file(&text);
    parsed
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
        .items
}

fn file_of(directory: &Path, name: &str) -> PathBuf {
    let file = directory.join(format!("{name}.rs"));
    if file.exists() {
        file
    } else {
        directory.join(name).join("mod.rs")
    }
}

fn is_for_tests(item: &syn::Item) -> bool {
    let attributes = match item {
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        _ => return false,
    };
    let tests: syn::Meta = syn::parse_quote!(cfg(test));
    attributes.iter().any(|attribute| attribute.meta == tests)
}

fn name_of(item: &syn::Item) -> Option<String> {
    let name = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}
