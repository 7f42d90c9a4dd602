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
const MAX_PROTOCOL_FUNCTIONS: usize = 317;
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

    /// Returns the root, and the public modules in it.
    fn public_modules(&self) -> Vec<&str> {
        let inner = self.modules["crate"].iter().filter_map(|item| match item {
            Item::Mod(module) if is_public(&module.vis) && !is_for_tests(item) => Some(module.ident.to_string()),
            _ => None,
        });
        let names: Vec<String> = inner.map(|name| format!("crate::{name}")).chain(["crate".to_owned()]).collect();
        self.modules.keys().filter(|name| names.contains(name)).map(String::as_str).collect()
    }

    /// Returns the paths of the public items of a module: those that it defines, and those that it re-exports.
    fn names(&self, module: &str) -> Vec<String> {
        let of_item = |item: &Item| match item {
            Item::Use(import) if is_public(&import.vis) => {
                used(&import.tree, "").into_iter().map(|(path, _)| path).collect()
            }
            Item::Struct(item) if is_public(&item.vis) => vec![format!("self::{}", item.ident)],
            Item::Enum(item) if is_public(&item.vis) => vec![format!("self::{}", item.ident)],
            _ => Vec::new(),
        };
        self.modules[module].iter().flat_map(of_item).collect()
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

/// Types without methods that need an example nevertheless, because a game handles them in each turn.
const SHOWN_WITHOUT_METHODS: &[&str] = &[
    "Event",
    "ChannelEvent",
    "PathStats",
    "CloseReason",
    "ReadLimits",
    "ConnectionConfig",
    "TransferConfig",
    "TransferOffer",
    "PacketTimes",
];
/// Types with methods that need no example of their own, and why.
const WITHOUT_EXAMPLE: &[(&str, &str)] = &[
    ("CloseKind", "the example of `CloseReason` shows it"),
    ("Instant", "`Clock` returns it, and its example shows it"),
    ("Kind", "`ChannelConfig` has a constructor for each kind"),
    ("Batching", "a setting of measurements, passed to `Sockets::limit_batching`"),
    ("Connection", "the server and the client have methods for what a game needs"),
    ("ContentDigest", "transfers return it, and a game compares it"),
    ("Dscp", "a value for `Sockets::set_dscp`"),
    ("KeyFileError", "an error: `Display` shows it"),
    ("Memory", "a value for `Server::with_memory`"),
    ("MemoryBudget", "a field of `Memory`"),
    ("Overflow", "a value that `SocketStats` returns"),
    ("Probe", "a tool of tests, which `slipgate-client` runs"),
    ("ProbeReport", "`Probe` returns it"),
    ("Sequence", "`Client::send_packet` returns it, and events repeat it"),
    ("ServerTotals", "counters: `Server::totals` returns them"),
    ("SocketErrorKind", "a column of `SocketStats`"),
    ("SocketStats", "counters: `Sockets::stats` returns them"),
    ("Steering", "a value for `Sockets::steer`"),
    ("WakePolicy", "a value for `Sockets::set_wake_policy`"),
];

#[test]
fn each_type_of_a_game_has_an_example() {
    let libraries: BTreeMap<&str, Source> =
        LIBRARIES.iter().map(|(folder, name)| (*name, Source::read(&root().join(folder)))).collect();
    let (mut without, mut shown, mut excused) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for product in ["slipgate_server", "slipgate_client"] {
        let public = libraries[product]
            .public_modules()
            .into_iter()
            .flat_map(|module| libraries[product].names(module).into_iter().map(move |path| (module, path)));
        for (module, path) in public {
            let (first, rest) = path.split_once("::").unwrap();
            let (library, path) = match first {
                "self" => (product, format!("{module}::{rest}")),
                "crate" => (product, path.clone()),
                _ => (first, format!("crate::{rest}")),
            };
            let Some(source) = libraries.get(library) else { continue };
            let (home, name) = path.rsplit_once("::").unwrap();
            let (name, attributes) = match source.find(home, name) {
                Some(Item::Struct(item)) => (item.ident.to_string(), &item.attrs),
                Some(Item::Enum(item)) => (item.ident.to_string(), &item.attrs),
                _ => continue,
            };
            let has_methods = source.methods.get(&name).is_some_and(|methods| !methods.is_empty());
            if !has_methods && !SHOWN_WITHOUT_METHODS.contains(&name.as_str()) {
                continue;
            }
            if attributes.iter().any(|attribute| text(attribute).contains("```")) {
                shown.insert(format!("{product}::{name}"));
            } else if let Some((reviewed, _)) = WITHOUT_EXAMPLE.iter().find(|(reviewed, _)| *reviewed == name) {
                excused.insert(*reviewed);
            } else {
                without.insert(format!("{product}::{name}"));
            }
        }
    }
    assert!(without.is_empty(), "types without an example: {without:#?}");
    assert!(shown.len() >= 25, "only {} types with an example were found: {shown:#?}", shown.len());
    assert_eq!(excused.len(), WITHOUT_EXAMPLE.len(), "the list has types that need no exception: {excused:?}");
}

/// Structs whose purpose is to hand out a secret, and why.
const SECRET_FIELDS: &[(&str, &str)] = &[
    ("ConnectionKeys", "the two keys of a connect token: the caller asked for them"),
    ("Redeemed", "the content of an opened token: the caller has the private key"),
    ("PrivateLayout", "the plain bytes of a token, for its parser"),
    ("PublicLayout", "the bytes of a token, for its parser"),
];

#[test]
fn no_struct_has_a_public_field_with_a_secret() {
    let (mut found, mut allowed) = (BTreeSet::new(), BTreeSet::new());
    for (folder, name) in LIBRARIES {
        for line in api(folder, name) {
            let Some((path, fields)) = line.split_once(": struct {") else { continue };
            let own = path.rsplit("::").next().unwrap_or(path);
            let types = fields.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            if !types.into_iter().any(|word| ["Key", "Seed", "KeyRing", "HashKey", "KEY_BYTES"].contains(&word)) {
                continue;
            }
            match SECRET_FIELDS.iter().find(|(reviewed, _)| *reviewed == own) {
                Some((reviewed, _)) => _ = allowed.insert(*reviewed),
                None => _ = found.insert(line.clone()),
            }
        }
    }
    assert!(found.is_empty(), "secrets in public fields: {found:#?}");
    assert_eq!(allowed.len(), SECRET_FIELDS.len(), "the list names structs that have no such field: {allowed:?}");
}

#[test]
fn the_list_follows_re_exports_and_shows_methods() {
    let lines = api("protocol/netcode", "slipgate_netcode");
    assert!(lines.len() > 100, "{}", lines.len());
    let has = |part: &str| lines.iter().any(|line| line.contains(part));
    assert!(has("slipgate_netcode::time::Instant: fn"), "{lines:#?}");
}
