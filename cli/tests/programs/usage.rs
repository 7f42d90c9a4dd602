//! Wrong command lines of all programs: one sentence on stderr that says what to do, and status 2.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::process::{Command, Stdio};

const SERVER: &str = env!("CARGO_BIN_EXE_slipgate-server");
const ISSUER: &str = env!("CARGO_BIN_EXE_slipgate-token-issuer");
const CLIENT: &str = env!("CARGO_BIN_EXE_slipgate-client");
const SLIPGATE: &str = env!("CARGO_BIN_EXE_slipgate");

/// Runs a program that must end with this status and one line. Returns the line without the name of the program.
fn refused(program: &str, arguments: &str, status: i32) -> String {
    let mut command = Command::new(program);
    let ours = std::env::vars_os().map(|(name, _)| name);
    for name in ours.filter(|name| name.to_string_lossy().starts_with("SLIPGATE_")) {
        command.env_remove(name);
    }
    let output = command.args(arguments.split_whitespace()).stdin(Stdio::null()).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{arguments}: {message}");
    assert_eq!((message.lines().count(), output.stdout.len()), (1, 0), "{arguments}: {message}");
    let (_, sentence) = message.trim_end().split_once(": ").unwrap();
    sentence.to_owned()
}

#[test]
fn unknown_options_name_the_help_and_a_similar_option() {
    for (program, arguments, expected) in [
        (
            SERVER,
            "--protcol-id 1",
            "unknown option '--protcol-id': `slipgate-server --help` lists the options, a similar \
                                    one is --protocol-id",
        ),
        (SERVER, "start", "unknown argument 'start': `slipgate-server --help` lists the options"),
        (ISSUER, "--xyz", "unknown option '--xyz': `slipgate-token-issuer --help` lists the options"),
        (CLIENT, "--xyz", "unknown option '--xyz': `slipgate-client --help` lists the options"),
        (SLIPGATE, "demo --xyz", "unknown option '--xyz': `slipgate demo --help` lists the options"),
        (SLIPGATE, "dmo", "unknown command 'dmo': `slipgate --help` lists the commands, a similar one is demo"),
        (SLIPGATE, "lab x", "unknown command 'x': `slipgate lab --help` lists the commands"),
    ] {
        assert_eq!(refused(program, arguments, 2), expected, "{arguments}");
    }
}

#[test]
fn missing_options_are_named() {
    for (program, arguments, expected) in [
        (SERVER, "", "no protocol id is configured: give --protocol-id, equal to that of the game's token issuer"),
        (ISSUER, "", "no protocol id is configured: give --protocol-id, equal to that of the game's servers"),
        (
            SERVER,
            "--protocol-id 1 --bind 127.0.0.1:0",
            "no private key is configured: give --key-file (`slipgate keygen` \
                                                        creates the file), or set SLIPGATE_PRIVATE_KEY",
        ),
        (CLIENT, "", "give --token FILE, or --issuer URL with --client-id ID"),
        (CLIENT, "--token", "--token needs a value: --token <FILE>"),
        (
            SLIPGATE,
            "conditioner",
            "give --listen <IP:PORT> and --to <IP:PORT>: `slipgate conditioner --help` lists the \
                                   options",
        ),
        (SLIPGATE, "keygen", "give <FILE>: `slipgate keygen --help` lists the options"),
    ] {
        assert_eq!(refused(program, arguments, 2), expected, "{arguments}");
    }
}

#[test]
fn wrong_values_name_the_allowed_ones() {
    const ADDRESS: &str = "an address and a port, such as 192.0.2.1:40000 or [2001:db8::1]:40000";
    for (program, arguments, expected) in [
        (SERVER, "--log xml", "--log must be text or json, not 'xml'".to_owned()),
        (SERVER, "--slots many", "--slots must be a whole number, not 'many'".to_owned()),
        (SERVER, "--bind 40000", format!("--bind must be {ADDRESS}, not '40000'")),
        (
            ISSUER,
            "--max-lifetime 99999999999",
            "--max-lifetime must be a smaller whole number, not '99999999999'".into(),
        ),
        (ISSUER, "--max-lifetime -5", "'-5' is no option, and numbers must not be negative".to_owned()),
        (CLIENT, "--rate x", "--rate must be a whole number, not 'x'".to_owned()),
        (SLIPGATE, "demo --clients 0", "--clients must be 1 to 256, not '0'".to_owned()),
        (SLIPGATE, "keys rotate keys --keep 9", "--keep cannot be '9': a file has 1 to 3 keys".to_owned()),
    ] {
        assert_eq!(refused(program, arguments, 2), expected, "{arguments}");
    }
    let protocol_id = "--protocol-id cannot be 'x': a protocol id is a 64-bit number, in decimal or as 0x and \
                       hexadecimal digits";
    assert_eq!(refused(SERVER, "--protocol-id x", 2), protocol_id);
}

#[test]
fn files_that_do_not_exist_are_named() {
    for (program, arguments, status, expected) in [
        (SERVER, "--config none.toml", 2, "the configuration file none.toml cannot be read: "),
        (ISSUER, "--config none.toml", 2, "the configuration file none.toml cannot be read: "),
        (SERVER, "--protocol-id 1 --key-file none --bind 127.0.0.1:0", 2, "the key file none cannot be read: "),
        (CLIENT, "--token none", 1, "cannot read the token none: "),
        (SLIPGATE, "keys list none", 1, "the key file none cannot be read: "),
        (SLIPGATE, "token inspect none", 1, "cannot read none: "),
    ] {
        let sentence = refused(program, arguments, status);
        assert!(sentence.starts_with(expected), "{sentence}");
    }
    let sentence = refused(SLIPGATE, "token inspect", 1);
    assert!(sentence.starts_with("standard input holds no connect token: "), "{sentence}");
}

#[test]
fn key_as_an_argument_is_not_quoted() {
    let key = "c0ffee00".repeat(8);
    for (program, arguments) in [(SERVER, key.clone()), (ISSUER, format!("--log {key}")), (SLIPGATE, key.clone())] {
        assert!(!refused(program, &arguments, 2).contains("c0ffee"), "{program}");
    }
}

#[test]
fn help_and_version_are_printed_as_before() {
    for (program, argument) in [(SERVER, "--help"), (SLIPGATE, "--version"), (CLIENT, "--help"), (ISSUER, "--version")]
    {
        let output = Command::new(program).arg(argument).output().unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty() && output.stdout.len() > 10,
            "{program} {argument}"
        );
    }
}
