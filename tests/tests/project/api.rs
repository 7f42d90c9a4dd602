//! The public API of each library, as a list that a change must update: so growth of the surface is reviewed.
//!
//! The lists are in `tests/api/`. `SLIPGATE_UPDATE_API=1 cargo test -p slipgate-tests --test project api` writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use quote::ToTokens;
use syn::{Fields, ImplItem, Item, TraitItem, UseTree, Visibility};

use super::files::{files, is_test, production, root};

/// The libraries, by folder and by name.
const LIBRARIES: &[(&str, &str)] = &[
    (".", "slipgate"),
    ("protocol/netcode", "slipgate_netcode"),
    ("protocol/session", "slipgate_session"),
    ("protocol/typed", "slipgate_typed"),
    ("os", "slipgate_os"),
    ("udp", "slipgate_udp"),
    ("server", "slipgate_server"),
    ("client", "slipgate_client"),
    ("token-issuer", "slipgate_token_issuer"),
];

/// The most public functions in all crates of `protocol/`.
const MAX_PROTOCOL_FUNCTIONS: usize = 320;
/// The most methods of the UDP server and client, and names at the roots of their crates.
const MAX_SURFACE: &[(&str, &str, usize, usize)] =
    &[("slipgate_server", "Server", 35, 45), ("slipgate_client", "Client", 28, 30)];

/// The items of a crate by module path, and the methods of its types by name.
#[derive(Default)]
struct Source {
    modules: BTreeMap<String, Vec<Item>>,
    methods: BTreeMap<String, BTreeSet<String>>,
}

impl Source {
    fn read(crate_folder: &Path) -> Self {
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
        for item in &items {
            if is_for_tests(item) {
                continue;
            }
            match item {
                Item::Mod(inner) => {
                    let name = inner.ident.to_string();
                    let (path, below) = (format!("{module}::{name}"), children.join(&name));
                    if let Some((_, items)) = &inner.content {
                        self.add_module(items.clone(), &below, &path);
                    } else {
                        let flat = children.join(format!("{name}.rs"));
                        let file = if flat.is_file() { flat } else { below.join("mod.rs") };
                        self.read_file(&file, &below, &path);
                    }
                }
                Item::Impl(block) => self.add_methods(block),
                _ => {}
            }
        }
        self.modules.insert(module.to_owned(), items);
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
                ImplItem::Fn(method) if is_public(&method.vis) => {
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
    fn public(&self, module: &str, shown_as: &str) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        for item in self.modules.get(module).into_iter().flatten().filter(|item| !is_for_tests(item)) {
            self.add_item(item, module, shown_as, &mut lines);
        }
        lines
    }

    fn add_item(&self, item: &Item, module: &str, shown_as: &str, lines: &mut BTreeSet<String>) {
        match item {
            Item::Mod(inner) if is_public(&inner.vis) => {
                lines.insert(format!("{shown_as}::{}: mod", inner.ident));
                lines.extend(
                    self.public(&format!("{module}::{}", inner.ident), &format!("{shown_as}::{}", inner.ident)),
                );
            }
            Item::Use(import) if is_public(&import.vis) => {
                for (path, name) in used(&import.tree, "") {
                    self.add_import(&path, &name, module, shown_as, lines);
                }
            }
            Item::Macro(call) if call.mac.path.segments.last().is_some_and(|name| name.ident == "discard_reasons") => {
                let (reason, variants) = reasons(&text(&call.mac.tokens));
                lines.insert(format!("{shown_as}::{reason}: enum {{ {} }}", variants.join(", ")));
            }
            _ => self.add_definition(item, shown_as, None, lines),
        }
    }

    /// Shows a re-exported item of the crate as if it were defined here; one of another crate by its path.
    fn add_import(&self, path: &str, name: &str, module: &str, shown_as: &str, lines: &mut BTreeSet<String>) {
        let absolute = match path.split_once("::") {
            Some(("self", rest)) => format!("{module}::{rest}"),
            Some(("crate", rest)) => format!("crate::{rest}"),
            Some(("super", rest)) => format!("{}::{rest}", module.rsplit_once("::").map_or("crate", |(up, _)| up)),
            _ => path.to_owned(),
        };
        let found = absolute.rsplit_once("::").and_then(|(home, item)| self.find(home, item));
        match found {
            Some(item) => self.add_definition(item, shown_as, Some(name), lines),
            None => _ = lines.insert(format!("{shown_as}::{name}: use {absolute}")),
        }
    }

    /// Returns the definition of an item, through re-exports on the way.
    fn find(&self, module: &str, name: &str) -> Option<&Item> {
        let items = self.modules.get(module)?;
        if let Some(item) = items.iter().find(|item| name_of(item).is_some_and(|own| own == name)) {
            return Some(item);
        }
        items.iter().find_map(|item| {
            let Item::Use(import) = item else { return None };
            let (path, _) = used(&import.tree, "").into_iter().find(|(_, own)| own == name)?;
            let absolute = path.strip_prefix("self::").map_or(path.clone(), |rest| format!("{module}::{rest}"));
            let (home, item) = absolute.rsplit_once("::")?;
            if home == module { None } else { self.find(home, item) }
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

/// Returns whether an item exists in tests only.
fn is_for_tests(item: &Item) -> bool {
    let attributes = match item {
        Item::Mod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| text(attribute).contains("cfg(test)") || text(attribute).contains("cfg(doctest)"))
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
fn text(tokens: &impl ToTokens) -> String {
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

fn api(folder: &str, name: &str) -> BTreeSet<String> {
    Source::read(&root().join(folder)).public("crate", name)
}

/// Returns the name and the variants of an enum that `discard_reasons!` defines.
fn reasons(tokens: &str) -> (String, Vec<String>) {
    let last_word = |text: &str| text.split_whitespace().last().unwrap_or_default().to_owned();
    // Without the texts between quotes, which are documents and counter names.
    let tokens: String = tokens.split('"').step_by(2).collect();
    let name = last_word(tokens.split(';').next().unwrap_or_default());
    let (variants, _) = tokens.rsplit_once("=>").unwrap_or_default();
    (name, variants.split("=>").map(last_word).collect())
}

#[test]
fn the_public_api_is_the_reviewed_one() {
    let mut changed = String::new();
    for (folder, name) in LIBRARIES {
        let file = root().join("tests/api").join(format!("{name}.txt"));
        let now: String = api(folder, name).iter().fold(String::new(), |text, line| text + line + "\n");
        if std::env::var_os("SLIPGATE_UPDATE_API").is_some() {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, now).unwrap();
            continue;
        }
        let reviewed = fs::read_to_string(&file).unwrap_or_default();
        let (before, after): (BTreeSet<&str>, BTreeSet<&str>) = (reviewed.lines().collect(), now.lines().collect());
        before.difference(&after).for_each(|line| _ = writeln!(changed, "- {line}"));
        after.difference(&before).for_each(|line| _ = writeln!(changed, "+ {line}"));
    }
    assert!(
        changed.is_empty(),
        "the public API changed; to accept it: SLIPGATE_UPDATE_API=1 cargo test -p slipgate-tests --test project api\n\
         {changed}"
    );
}

/// Returns the number of functions in a file that are `pub`, without those of a narrower visibility.
fn public_functions(code: &str) -> usize {
    let is_public = |line: &&str| {
        let mut words = line.split_whitespace();
        words.next() == Some("pub") && words.find(|word| !["const", "async", "unsafe"].contains(word)) == Some("fn")
    };
    code.lines().filter(is_public).count()
}

#[test]
fn the_public_surface_stays_within_its_limits() {
    for (name, type_name, max_methods, max_names) in MAX_SURFACE {
        let (folder, _) = LIBRARIES.iter().find(|(_, library)| library == name).unwrap();
        let source = Source::read(&root().join(folder));
        let methods = source.methods[*type_name].iter().filter(|method| method.contains("fn ")).count();
        assert!(methods <= *max_methods, "{name}::{type_name} has {methods} methods, at most {max_methods} allowed");
        let lines = source.public("crate", name);
        let root_names: BTreeSet<&str> =
            lines.iter().filter_map(|line| line.strip_prefix(&format!("{name}::"))?.split([':', ' ']).next()).collect();
        assert!(root_names.len() <= *max_names, "{name}: {} names at the root: {root_names:?}", root_names.len());
    }
    let functions: usize = ["protocol/netcode", "protocol/session", "protocol/typed"]
        .iter()
        .flat_map(|folder| files(&root().join(folder).join("src"), &["rs"]))
        .filter(|path| !is_test(path))
        .map(|path| public_functions(&production(&fs::read_to_string(path).unwrap())))
        .sum();
    assert!(functions <= MAX_PROTOCOL_FUNCTIONS, "protocol/ has {functions} public functions");
}

#[test]
fn the_list_follows_re_exports_and_shows_methods() {
    let lines = api("protocol/netcode", "slipgate_netcode");
    assert!(lines.len() > 100, "{}", lines.len());
    let has = |part: &str| lines.iter().any(|line| line.contains(part));
    assert!(has("slipgate_netcode::time::Instant: fn"), "{lines:#?}");
}
