//! The C# file, compiled and run by Mono.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use super::header::{functions, generated_header};
use super::toolchain::{folder, has, library, out, run};

/// Compiles `Slipgate.cs` with a program, and returns the program; `None` where Mono is not installed.
pub(crate) fn compile(source: PathBuf) -> Option<PathBuf> {
    if !has("mcs") || !has("mono") {
        return None;
    }
    let program = out().join(source.with_extension("exe").file_name().unwrap());
    let mut compiler = Command::new("mcs");
    compiler.args(["-unsafe", "-langversion:latest", "-warnaserror"]).arg(format!("-out:{}", program.display()));
    run(compiler.arg(folder().join("../bindings/csharp/Slipgate.cs")).arg(source));
    Some(program)
}

/// Returns the command that runs a program of [`compile`].
pub(crate) fn mono(program: PathBuf) -> Command {
    let mut command = Command::new("mono");
    command.env("LD_LIBRARY_PATH", library()).arg(program);
    command
}

#[test]
fn ten_thousand_messages_make_no_garbage() {
    let Some(program) = compile(folder().join("../bindings/csharp/Tests~/EveryMethod.cs")) else { return };
    assert_eq!(run(&mut mono(program)), "garbage: 0 bytes, 0 collections\nok\n");
}

/// Returns the class, the name and the kind (whether it is a method) of the public methods and properties of a file.
fn public_members(file: &str) -> Vec<(&str, &str, bool)> {
    let mut class = "";
    let mut found = Vec::new();
    for line in file.lines().filter_map(|line| line.trim().strip_prefix("public ")) {
        if let Some((_, rest)) = line.split_once("class ").or_else(|| line.split_once("struct ")) {
            class = rest.split([' ', ':']).next().unwrap();
            continue;
        }
        // Before the body or the parameters. A field ends with a semicolon, and an enumeration has no methods.
        let declaration = line.split(['(', '{']).next().unwrap().trim();
        let name = declaration.split(' ').next_back().unwrap();
        let is_field = declaration.contains([';', '=']) || line.contains("enum ");
        // A constructor has the name of its class. A handle is one of the system's, and has its members.
        if !is_field && name != class && !class.ends_with("Handle") {
            found.push((class, name, line[declaration.len()..].starts_with('(')));
        }
    }
    found
}

/// Returns whether a program uses a member of a class, by the names that its objects have in `EveryMethod.cs`.
fn uses(program: &str, class: &str, name: &str, is_method: bool) -> bool {
    if class == "SendOptions" {
        return program.contains(&format!(" {name} = "));
    }
    // `public ref Channel this[byte channel]`
    if name.ends_with(']') {
        return program.contains("traffic[");
    }
    let own = format!("{class}.");
    let receivers: &[&str] = match class {
        "Client" => &["client.", "Client."],
        "Server" => &["server.", "Server."],
        "MessageBatch" => &["batch."],
        "NetEvent" => &["found."],
        "Traffic" => &["traffic."],
        "Transfer" => &["new Transfer(content)."],
        _ => &[&own],
    };
    let ends = |rest: &str| if is_method { rest.starts_with('(') } else { !rest.starts_with(char::is_alphanumeric) };
    receivers.iter().any(|receiver| program.split(&format!("{receiver}{name}")).skip(1).any(ends))
}

#[test]
fn every_method_and_property_is_used() {
    let read = |file: &str| std::fs::read_to_string(folder().join("../bindings/csharp").join(file)).unwrap();
    let (file, program) = (read("Slipgate.cs"), read("Tests~/EveryMethod.cs"));
    let members = public_members(&file);
    let missing: Vec<_> =
        members.iter().filter(|(class, name, method)| !uses(&program, class, name, *method)).collect();
    assert!(missing.is_empty(), "EveryMethod.cs does not use {missing:?}");
    let known = |class, name| members.iter().any(|found| (found.0, found.1) == (class, name));
    assert!(known("Server", "Connected") && known("Server", "Kick") && known("NetEvent", "Bytes"), "{members:?}");
}

#[test]
fn example_of_the_guide_compiles() {
    let source = out().join("Guide.cs");
    let head = "using System;\nusing System.Text;\nusing Slipgate;\nstatic class Guide {\n\
                static void Play(byte[] token, byte[] line) {\n";
    let guide = std::fs::read_to_string(folder().join("../docs/csharp.md")).unwrap();
    let mut examples = guide.split("```csharp\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
    let (client, server) = (examples.next().unwrap(), examples.next().unwrap());
    let middle = "}\nstatic void Host(byte[] key, Func<bool> isRunning) {\n";
    std::fs::write(&source, format!("{head}{client}{middle}{server}}}\nstatic void Main() {{ }}\n}}\n")).unwrap();
    compile(source);
}

/// Returns the type of the result and of each parameter of a function that a file declares, without their names.
fn types(file: &str, function: &str) -> Vec<String> {
    let start = file.find(&format!(" {function}(")).unwrap_or_else(|| panic!("{function} is missing"));
    let before = file[..start].rsplit([';', ']', '\n', '{']).next().unwrap();
    let (_, rest) = file[start..].split_once('(').unwrap();
    let (inside, _) = rest.split_once(')').unwrap();
    let result = before.trim().to_owned();
    // The name of a parameter is its last word.
    let parameters = inside.split(',').map(str::trim).filter(|text| !["", "void"].contains(text));
    let types = parameters.map(|text| text.trim_end_matches(|last: char| last.is_alphanumeric() || last == '_').trim());
    std::iter::once(result).chain(types.map(str::to_owned)).collect()
}

/// Returns the types in C# with which a type in C may be declared.
fn of_csharp(c: &str) -> Vec<&'static str> {
    let words = c.split_whitespace().filter(|word| !["const", "struct", "SLIPGATE_IMPORT"].contains(word));
    match words.collect::<Vec<_>>().join(" ").as_str() {
        "void" => vec!["void"],
        "int32_t" => vec!["int"],
        "uint8_t" => vec!["byte"],
        "uint16_t" => vec!["ushort"],
        "uint32_t" => vec!["uint"],
        "uint64_t" => vec!["ulong"],
        // Mono calls a function for each conversion of a UIntPtr, so hot functions have a pointer there.
        "size_t" => vec!["UIntPtr", "void*"],
        "char *" => vec!["IntPtr", "byte*"],
        "char **" => vec!["out IntPtr"],
        "uint8_t *" => vec!["byte*"],
        "uint16_t *" => vec!["out ushort"],
        "uint32_t *" => vec!["out uint"],
        "uint64_t *" => vec!["out ulong", "ulong*"],
        "size_t *" => vec!["out UIntPtr", "UIntPtr*"],
        "slipgate_client *" => vec!["ClientHandle", "IntPtr", "void*"],
        "slipgate_server *" => vec!["ServerHandle", "IntPtr", "void*"],
        "slipgate_transfer *" => vec!["TransferHandle", "IntPtr"],
        "slipgate_waker *" => vec!["WakerHandle", "IntPtr"],
        "slipgate_client **" => vec!["out ClientHandle"],
        "slipgate_server **" => vec!["out ServerHandle"],
        "slipgate_transfer **" => vec!["out TransferHandle"],
        "slipgate_waker **" => vec!["out WakerHandle"],
        "slipgate_event *" => vec!["NativeEvent*"],
        "slipgate_outgoing_message *" => vec!["OutgoingMessage*"],
        "slipgate_send_options *" => vec!["SendOptions*"],
        "slipgate_channel *" => vec!["out Channel"],
        "slipgate_traffic *" => vec!["NativeTraffic*"],
        "slipgate_path *" => vec!["out PathStats"],
        "slipgate_budget *" => vec!["out Budget"],
        "slipgate_remaining *" => vec!["out Remaining"],
        "slipgate_close_reason *" => vec!["out NativeCloseReason"],
        "slipgate_server_config *" => vec!["ref NativeServerConfig", "out NativeServerConfig"],
        "slipgate_client_info *" => vec!["out ClientInfo"],
        "slipgate_claims *" => vec!["ref NativeClaims"],
        other => panic!("{other} is not known"),
    }
}

#[test]
fn functions_and_their_parameters_are_those_of_the_header() {
    let header = generated_header();
    let code: Vec<&str> = header.lines().filter(|line| !line.trim_start().starts_with(['/', '#'])).collect();
    // A pointer's star stands at the name in the header.
    let code = code.join(" ").replace("*slipgate_", "* slipgate_");
    let file = std::fs::read_to_string(folder().join("../bindings/csharp/Slipgate.cs")).unwrap();
    let imports: Vec<&str> = file.lines().filter(|line| line.contains("[DllImport(Library)]")).collect();
    let imports = imports.join("\n").replace("internal static extern ", "");
    let mut found = 0;
    for name in functions(&header) {
        let (c, csharp) = (types(&code, &name), types(&imports, &name));
        assert_eq!(c.len(), csharp.len(), "{name}: {c:?}, {csharp:?}");
        for (c, csharp) in c.iter().zip(&csharp) {
            assert!(of_csharp(c).contains(&csharp.as_str()), "{name}: {c} is {csharp}");
        }
        found += 1;
    }
    assert_eq!(file.matches("[DllImport(Library)]").count(), found);
}

/// Returns the members of an enumeration of a file in C#, with their values.
fn members(file: &str, name: &str) -> BTreeMap<String, i64> {
    let (_, rest) = file.split_once(&format!("public enum {name}")).unwrap_or_else(|| panic!("no enum {name}"));
    let (_, rest) = rest.split_once('{').unwrap();
    let (body, _) = rest.split_once('}').unwrap();
    let mut next = 0;
    let mut found = BTreeMap::new();
    for member in body.split(',').map(str::trim).filter(|member| !member.is_empty()) {
        let (name, value) = member.split_once(" = ").unwrap_or((member, ""));
        let value = value.parse().unwrap_or(next);
        next = value + 1;
        found.insert(name.to_owned(), value);
    }
    found
}

/// Returns a name such as `ARRIVED_LATE` as `ArrivedLate`.
fn pascal(name: &str) -> String {
    let word = |word: &str| word[..1].to_owned() + &word[1..].to_lowercase();
    name.split('_').map(word).collect()
}

#[test]
fn constants_are_those_of_the_header() {
    /// Constants with a prefix, and their enumeration in C#.
    const GROUPS: &[(&str, &str)] = &[
        ("ERROR_", "Status"),
        ("LOG_", "LogLevel"),
        ("TRANSFER_REASON_", "TransferReason"),
        ("BY_", "Side"),
        ("CLOSE_", "CloseKind"),
        ("ADMIT_", "Admission"),
    ];
    /// The enumerations of constants without a prefix.
    const OTHERS: [&str; 5] = ["Status", "TrafficKind", "ChannelKind", "EventKind", "DeliveryStatus"];
    /// Constants that are a method, a property or a number in C#.
    const NO_MEMBERS: [&str; 6] = ["ABI", "STRUCT_", "HAS_", "NEWEST_ONLY", "ACCEPT_OLD_TOKENS", "NO_CODE"];
    let header = generated_header();
    let file = std::fs::read_to_string(folder().join("../bindings/csharp/Slipgate.cs")).unwrap();
    let mut compared = 0;
    for line in header.lines() {
        let Some((name, value)) = line.strip_prefix("#define SLIPGATE_").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        let Ok(value) = value.trim().parse::<i64>() else { continue };
        if name.ends_with("_BYTES") || NO_MEMBERS.iter().any(|other| name.starts_with(other)) {
            continue;
        }
        let group = GROUPS.iter().find_map(|(prefix, group)| Some((name.strip_prefix(prefix)?, *group)));
        let found = match group {
            Some((rest, group)) => members(&file, group).get(&pascal(rest)).copied(),
            None => OTHERS.iter().find_map(|other| members(&file, other).get(&pascal(name)).copied()),
        };
        assert_eq!(found, Some(value), "SLIPGATE_{name}");
        compared += 1;
    }
    let all = GROUPS.iter().map(|(_, group)| *group).chain(OTHERS).collect::<BTreeSet<_>>();
    // The members that are not an enumeration.
    for (constant, in_csharp) in [
        ("SLIPGATE_NO_CODE 65536", "public const uint NoCode = 65536;"),
        ("SLIPGATE_HAS_DEADLINE 1", "deadlineUs = value; Flags |= 1;"),
        ("SLIPGATE_HAS_KEY 2", "key = value; Flags |= 2;"),
        ("SLIPGATE_HAS_RECEIPT 4", "receipt = value; Flags |= 4;"),
        ("SLIPGATE_NEWEST_ONLY 1", "channel.Flags = newestOnly ? 1u : 0u;"),
        ("SLIPGATE_ACCEPT_OLD_TOKENS 1", "native.Flags = config.AcceptOldTokens ? 1u : 0u;"),
    ] {
        assert!(header.contains(&format!("#define {constant}\n")) && file.contains(in_csharp), "{constant}");
    }
    let listed: usize = all.iter().map(|name| members(&file, name).len()).sum();
    assert_eq!(compared, listed, "no enumeration has a member that the header does not have");
}

#[test]
fn every_function_has_a_method() {
    let file = std::fs::read_to_string(folder().join("../bindings/csharp/Slipgate.cs")).unwrap();
    for name in functions(&generated_header()) {
        // The constructors compare the ABI and the sizes, and methods take several events with one call.
        if !["slipgate_abi", "slipgate_size_of"].contains(&name.as_str()) && !name.ends_with("_next_event") {
            assert!(file.contains(&format!("Native.{name}(")), "{name} has no method");
        }
    }
}
