//! The public API of each library, as a list that a change must update: so growth of the surface is reviewed.
//!
//! The lists are in `tests/api/`. `SLIPGATE_UPDATE_API=1 cargo test -p slipgate-tests --test project api` writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use syn::Item;

use super::files::root;
use super::public_items::{Source, text};

/// The libraries, by folder and by name.
const LIBRARIES: &[(&str, &str)] = &[
    (".", "slipgate"),
    ("protocol/netcode", "slipgate_netcode"),
    ("protocol/session", "slipgate_session"),
    ("protocol/typed", "slipgate_typed"),
    ("os", "slipgate_os"),
    ("udp", "slipgate_udp"),
    ("server", "slipgate_server"),
    ("admin", "slipgate_admin"),
    ("fleet", "slipgate_fleet"),
    ("client", "slipgate_client"),
    ("token-issuer", "slipgate_token_issuer"),
    ("sync", "slipgate_sync"),
];

/// The most public functions in all crates of `protocol/`.
const MAX_PROTOCOL_FUNCTIONS: usize = 326;
/// The most methods of the UDP server and client, and names at the roots of their crates.
const MAX_SURFACE: &[(&str, &str, usize, usize)] =
    &[("slipgate_server", "Server", 35, 45), ("slipgate_client", "Client", 28, 30)];

fn api(folder: &str, name: &str) -> BTreeSet<String> {
    Source::read(&root().join(folder)).public("crate", name)
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
        .map(|folder| Source::read(&root().join(folder)).public_functions)
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
    ("Discard", "the example of `Discards` shows it"),
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
        let public =
            libraries[product].public_modules().into_iter().flat_map(|module| libraries[product].names(module));
        for path in public {
            let (first, rest) = path.split_once("::").unwrap();
            let (library, path) =
                if first == "crate" { (product, path.clone()) } else { (first, format!("crate::{rest}")) };
            let Some(source) = libraries.get(library) else { continue };
            let (name, attributes) = match source.definition_of(&path) {
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
fn the_list_follows_re_exports_and_macros() {
    let parts = [
        ("protocol/netcode", "slipgate_netcode::time::Instant: fn"),
        ("protocol/netcode", "slipgate_netcode::crypto::aead::packets::PreparedKey: struct"),
        ("protocol/netcode", "slipgate_netcode::discard::Discards: fn total("),
        ("protocol/session", "slipgate_session::channel::control::Hello: struct"),
        ("protocol/session", "slipgate_session::reject::Rejects: fn iter("),
        ("udp", "slipgate_udp::code::AND: const u16"),
        ("server", "slipgate_server::history_file::HistoryFileError: enum"),
        ("token-issuer", "slipgate_token_issuer::Issuer: fn"),
    ];
    for (folder, part) in parts {
        let lines = api(folder, part.split("::").next().unwrap());
        assert!(lines.iter().any(|line| line.contains(part)), "{part} is missing: {lines:#?}");
    }
}
