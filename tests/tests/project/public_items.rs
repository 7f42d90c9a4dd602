//! The public items of a library, read from its sources: through re-exports, modules and the macro of discard reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use quote::ToTokens;
use syn::{Attribute, Fields, ImplItem, Item, TraitItem, UseTree, Visibility};

use super::discard_macro;

/// The items of a crate by module path, and the methods of its types by name.
#[derive(Default)]
pub(crate) struct Source {
    pub(crate) modules: BTreeMap<String, Vec<Item>>,
    pub(crate) methods: BTreeMap<String, BTreeSet<String>>,
    /// The number of all functions and methods that are `pub`, also in private modules.
    pub(crate) public_functions: usize,
}

/// What a path leads to.
enum Found<'s> {
    Module(String),
    Item(&'s Item),
}

impl Source {
    /// Reads the library in this folder.
    pub(crate) fn read(crate_folder: &Path) -> Self {
        let mut source = Self::default();
        source.read_file(&crate_folder.join("src/lib.rs"), &crate_folder.join("src"), "crate");
        source
    }

    fn read_file(&mut self, file: &Path, children: &Path, module: &str) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.add_module(parsed.items, children, module);
    }

    fn add_module(&mut self, items: Vec<Item>, children: &Path, module: &str) {
        let items: Vec<Item> =
            items.into_iter().filter(|item| !is_for_tests(attributes(item))).flat_map(expanded).collect();
        for item in &items {
            match item {
                Item::Mod(inner) => self.add_inner_module(inner, children, module),
                Item::Impl(block) => self.add_methods(block),
                Item::Fn(function) => self.public_functions += usize::from(is_public(&function.vis)),
                _ => {}
            }
        }
        self.modules.insert(module.to_owned(), items);
    }

    fn add_inner_module(&mut self, inner: &syn::ItemMod, children: &Path, module: &str) {
        let name = inner.ident.to_string();
        let (path, below) = (format!("{module}::{name}"), children.join(&name));
        if let Some((_, items)) = &inner.content {
            return self.add_module(items.clone(), &below, &path);
        }
        let flat = children.join(format!("{name}.rs"));
        let file = if flat.is_file() { flat } else { below.join("mod.rs") };
        self.read_file(&file, &below, &path);
    }

    fn add_methods(&mut self, block: &syn::ItemImpl) {
        if block.trait_.is_some() {
            return;
        }
        let syn::Type::Path(path) = &*block.self_ty else { return };
        let Some(name) = path.path.segments.last() else { return };
        let methods = self.methods.entry(name.ident.to_string()).or_default();
        for item in &block.items {
            match item {
                ImplItem::Fn(method) if is_public(&method.vis) && !is_for_tests(&method.attrs) => {
                    self.public_functions += 1;
                    methods.insert(text(&method.sig));
                }
                ImplItem::Const(constant) if is_public(&constant.vis) => {
                    methods.insert(format!("const {}: {}", constant.ident, text(&constant.ty)));
                }
                _ => {}
            }
        }
    }

    /// Returns the public items of a module and of its public modules, one on each line.
    pub(crate) fn public(&self, module: &str, shown_as: &str) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        for item in self.modules.get(module).into_iter().flatten() {
            self.add_item(item, module, shown_as, &mut lines);
        }
        lines
    }

    fn add_item(&self, item: &Item, module: &str, shown_as: &str, lines: &mut BTreeSet<String>) {
        match item {
            Item::Mod(inner) if is_public(&inner.vis) => {
                let (path, shown) = (format!("{module}::{}", inner.ident), format!("{shown_as}::{}", inner.ident));
                self.add_public_module(&path, &shown, lines);
            }
            Item::Use(import) if is_public(&import.vis) => {
                for (path, name) in used(&import.tree, "") {
                    self.add_import(&path, &name, module, shown_as, lines);
                }
            }
            Item::Macro(definition) if is_exported(&definition.attrs) => {
                let name = definition.ident.as_ref().map(ToString::to_string).unwrap_or_default();
                lines.insert(format!("{}::{name}: macro", shown_as.split("::").next().unwrap_or(shown_as)));
            }
            _ => self.add_definition(item, shown_as, None, lines),
        }
    }

    fn add_public_module(&self, module: &str, shown_as: &str, lines: &mut BTreeSet<String>) {
        lines.insert(format!("{shown_as}: mod"));
        lines.extend(self.public(module, shown_as));
    }

    /// Returns the root, and the public modules in it.
    pub(crate) fn public_modules(&self) -> Vec<&str> {
        let inner = self.modules["crate"].iter().filter_map(|item| match item {
            Item::Mod(module) if is_public(&module.vis) => Some(module.ident.to_string()),
            _ => None,
        });
        let names: Vec<String> = inner.map(|name| format!("crate::{name}")).chain(["crate".to_owned()]).collect();
        self.modules.keys().filter(|name| names.contains(name)).map(String::as_str).collect()
    }

    /// Returns the paths of the public types of a module: those that it defines, and those that it re-exports.
    pub(crate) fn names(&self, module: &str) -> Vec<String> {
        let of_item = |item: &Item| match item {
            Item::Use(import) if is_public(&import.vis) => {
                used(&import.tree, "").into_iter().map(|(path, _)| self.absolute(module, &path)).collect()
            }
            Item::Struct(item) if is_public(&item.vis) => vec![format!("{module}::{}", item.ident)],
            Item::Enum(item) if is_public(&item.vis) => vec![format!("{module}::{}", item.ident)],
            _ => Vec::new(),
        };
        self.modules[module].iter().flat_map(of_item).collect()
    }

    /// Returns a path from the root of the crate (`crate::...`), or the path itself if it leads to another crate.
    fn absolute(&self, module: &str, path: &str) -> String {
        let (first, rest) = path.split_once("::").map_or((path, ""), |(first, rest)| (first, rest));
        let joined = |start: &str| if rest.is_empty() { start.to_owned() } else { format!("{start}::{rest}") };
        match first {
            "crate" => path.to_owned(),
            "self" => joined(module),
            "super" => {
                let up = module.rsplit_once("::").map_or("crate", |(up, _)| up);
                if rest.starts_with("super") { self.absolute(up, rest) } else { joined(up) }
            }
            _ if self.modules.contains_key(&format!("{module}::{first}")) => format!("{module}::{path}"),
            _ => path.to_owned(),
        }
    }

    /// Shows a re-exported item of the crate as if it were defined here; one of another crate by its path.
    fn add_import(&self, path: &str, name: &str, module: &str, shown_as: &str, lines: &mut BTreeSet<String>) {
        let absolute = self.absolute(module, path);
        if let Some(all_of) = absolute.strip_suffix("::*").filter(|all_of| self.modules.contains_key(*all_of)) {
            return lines.extend(self.public(all_of, shown_as));
        }
        match self.find(&absolute) {
            Some(Found::Module(found)) => self.add_public_module(&found, &format!("{shown_as}::{name}"), lines),
            Some(Found::Item(item)) => self.add_definition(item, shown_as, Some(name), lines),
            // An item of this crate that is not found would be left out without notice.
            None if absolute.starts_with("crate::") => panic!("{module}: {absolute} was not found"),
            None => _ = lines.insert(format!("{shown_as}::{name}: use {absolute}")),
        }
    }

    /// Returns the definition of an item at a path from the root.
    pub(crate) fn definition_of(&self, path: &str) -> Option<&Item> {
        match self.find(path)? {
            Found::Item(item) => Some(item),
            Found::Module(_) => None,
        }
    }

    /// Returns what stands at a path from the root, through re-exports on the way.
    fn find(&self, path: &str) -> Option<Found<'_>> {
        if self.modules.contains_key(path) {
            return Some(Found::Module(path.to_owned()));
        }
        let (home, name) = path.rsplit_once("::")?;
        let home = if self.modules.contains_key(home) {
            home.to_owned()
        } else {
            match self.find(home)? {
                Found::Module(home) => home,
                Found::Item(_) => return None,
            }
        };
        let items = &self.modules[&home];
        if let Some(item) = items.iter().find(|item| name_of(item).is_some_and(|own| own == name)) {
            return Some(Found::Item(item));
        }
        let imports = items.iter().filter_map(|item| if let Item::Use(import) = item { Some(import) } else { None });
        let mut paths = imports.flat_map(|import| used(&import.tree, ""));
        paths.find_map(|(path, own)| {
            let target = self.absolute(&home, &path);
            match own.as_str() {
                "*" => self.find(&format!("{}::{name}", target.strip_suffix("::*")?)),
                own if own == name && target != format!("{home}::{name}") => self.find(&target),
                _ => None,
            }
        })
    }

    fn add_definition(&self, item: &Item, shown_as: &str, name: Option<&str>, lines: &mut BTreeSet<String>) {
        let Some((visibility, own, described)) = definition(item) else { return };
        if !is_public(visibility) {
            return;
        }
        let shown = format!("{shown_as}::{}", name.unwrap_or(&own));
        lines.insert(format!("{shown}: {described}"));
        for method in self.methods.get(&own).into_iter().flatten() {
            lines.insert(format!("{shown}: {method}"));
        }
    }
}

/// Returns the items that a call of the macro of discard reasons defines, or the item itself.
fn expanded(item: Item) -> Vec<Item> {
    let Item::Macro(call) = &item else { return vec![item] };
    if call.mac.path.segments.last().is_some_and(|name| name.ident == "discard_reasons") {
        return discard_macro::items(call.mac.tokens.clone());
    }
    let is_read = call.ident.as_ref().is_none_or(|name| name == "discard_reasons");
    assert!(is_read || !text(&call.mac.tokens).contains("pub "), "a macro defines public items: {:?}", call.ident);
    vec![item]
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns whether an item exists in tests only.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| text(attribute).contains("cfg(test)") || text(attribute).contains("cfg(doctest)"))
}

fn is_exported(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("macro_export"))
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn name_of(item: &Item) -> Option<String> {
    definition(item).map(|(_, name, _)| name)
}

/// Returns the visibility, the name and a one-line description of an item that can be public.
fn definition(item: &Item) -> Option<(&Visibility, String, String)> {
    Some(match item {
        Item::Fn(item) => (&item.vis, item.sig.ident.to_string(), text(&item.sig)),
        Item::Struct(item) => {
            (&item.vis, item.ident.to_string(), format!("struct {{ {} }}", public_fields(&item.fields)))
        }
        Item::Enum(item) => {
            let variants: Vec<String> = item.variants.iter().map(text_of_variant).collect();
            (&item.vis, item.ident.to_string(), format!("enum {{ {} }}", variants.join(", ")))
        }
        Item::Trait(item) => {
            let parts: Vec<String> = item.items.iter().filter_map(text_of_trait_item).collect();
            (&item.vis, item.ident.to_string(), format!("trait {{ {} }}", parts.join("; ")))
        }
        Item::Const(item) => (&item.vis, item.ident.to_string(), format!("const {}", text(&item.ty))),
        Item::Static(item) => (&item.vis, item.ident.to_string(), format!("static {}", text(&item.ty))),
        Item::Type(item) => (&item.vis, item.ident.to_string(), format!("type {}", text(&item.ty))),
        _ => return None,
    })
}

fn text_of_variant(variant: &syn::Variant) -> String {
    let mut variant = variant.clone();
    variant.attrs.clear();
    variant.fields.iter_mut().for_each(|field| field.attrs.clear());
    text(&variant)
}

fn text_of_trait_item(item: &TraitItem) -> Option<String> {
    match item {
        TraitItem::Fn(item) => Some(text(&item.sig)),
        TraitItem::Type(item) => Some(format!("type {}", item.ident)),
        TraitItem::Const(item) => Some(format!("const {}", item.ident)),
        _ => None,
    }
}

fn public_fields(fields: &Fields) -> String {
    let public = fields.iter().filter(|field| is_public(&field.vis));
    let shown = public.map(|field| {
        let name = field.ident.as_ref().map(|name| format!("{name}: ")).unwrap_or_default();
        format!("{name}{}", text(&field.ty))
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Returns the path and the visible name of everything that a `use` names.
fn used(tree: &UseTree, prefix: &str) -> Vec<(String, String)> {
    let join = |name: &str| if prefix.is_empty() { name.to_owned() } else { format!("{prefix}::{name}") };
    match tree {
        UseTree::Path(path) => used(&path.tree, &join(&path.ident.to_string())),
        UseTree::Name(name) if name.ident == "self" => {
            vec![(prefix.to_owned(), prefix.rsplit("::").next().unwrap_or(prefix).to_owned())]
        }
        UseTree::Name(name) => vec![(join(&name.ident.to_string()), name.ident.to_string())],
        UseTree::Rename(rename) if rename.ident == "self" => vec![(prefix.to_owned(), rename.rename.to_string())],
        UseTree::Rename(rename) => vec![(join(&rename.ident.to_string()), rename.rename.to_string())],
        UseTree::Glob(_) => vec![(join("*"), "*".to_owned())],
        UseTree::Group(group) => group.items.iter().flat_map(|item| used(item, prefix)).collect(),
    }
}

/// Returns tokens as one line of source text.
pub(crate) fn text(tokens: &impl ToTokens) -> String {
    let mut line = tokens.to_token_stream().to_string();
    for (from, to) in [
        (" :: ", "::"),
        (":: ", "::"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        (" ,", ","),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        ("& ", "&"),
        (" :", ":"),
        ("[ ", "["),
        (" ]", "]"),
        (" ;", ";"),
        ("' ", "'"),
        ("-> ", "-> "),
    ] {
        line = line.replace(from, to);
    }
    line.replace("->", " -> ").replace("  ", " ")
}
