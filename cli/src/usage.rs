//! Errors of the command line: one sentence that says what is wrong and what to do.
//!
//! clap finds the errors. Its own messages have several lines, and quote a wrong value even if it is a key.

use std::error::Error as _;
use std::net::AddrParseError;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Command, Error, Parser};
use slipgate_os::redact::redact;

use crate::Failure;

/// Parses the command line. Prints help or version, and ends the program, if that is asked for.
///
/// # Errors
/// A usage failure if the command line is wrong.
pub fn matches(command: Command) -> Result<ArgMatches, Failure> {
    command.try_get_matches().map_err(|error| refuse(&error))
}

/// Parses the command line as [`matches()`] does.
///
/// # Errors
/// A usage failure if the command line is wrong.
pub fn parse<T: Parser>() -> Result<T, Failure> {
    T::try_parse().map_err(|error| refuse(&error))
}

fn refuse(error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            error.exit()
        }
        _ => Failure::usage(sentence(error)),
    }
}

/// Returns the sentence of an error.
#[must_use]
pub fn sentence(error: &Error) -> String {
    let known = match error.kind() {
        ErrorKind::UnknownArgument => unknown_argument(error),
        ErrorKind::InvalidSubcommand => unknown_command(error),
        ErrorKind::MissingRequiredArgument => missing(error),
        ErrorKind::InvalidValue => value_of_list(error),
        ErrorKind::ValueValidation => invalid_value(error),
        ErrorKind::ArgumentConflict => conflict(error),
        _ => None,
    };
    // A value may be a key in the place of something else.
    redact(&known.unwrap_or_else(|| first_paragraph(error)))
}

fn unknown_argument(error: &Error) -> Option<String> {
    let given = list(error, ContextKind::InvalidArg).pop()?;
    if given.strip_prefix('-').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit())) {
        return Some(format!("'{given}' is no option, and numbers must not be negative"));
    }
    let what = if given.starts_with('-') { "option" } else { "argument" };
    let similar = list(error, ContextKind::SuggestedArg).pop().map(|option| flag(&option));
    Some(format!("unknown {what} '{given}': {}", where_to_look(error, "options", similar)))
}

fn unknown_command(error: &Error) -> Option<String> {
    let given = list(error, ContextKind::InvalidSubcommand).pop()?;
    let similar = list(error, ContextKind::SuggestedSubcommand).into_iter().next();
    Some(format!("unknown command '{given}': {}", where_to_look(error, "commands", similar)))
}

fn missing(error: &Error) -> Option<String> {
    let missing = list(error, ContextKind::InvalidArg);
    (!missing.is_empty()).then(|| format!("give {}: {}", join(&missing, "and"), where_to_look(error, "options", None)))
}

/// Returns the sentence about a value that is missing or not one of a list.
fn value_of_list(error: &Error) -> Option<String> {
    let argument = list(error, ContextKind::InvalidArg).pop()?;
    let given = list(error, ContextKind::InvalidValue).pop().unwrap_or_default();
    let allowed = list(error, ContextKind::ValidValue);
    let (name, allowed) = (flag(&argument), join(&allowed, "or"));
    Some(match (given.is_empty(), allowed.is_empty()) {
        (true, true) => format!("{name} needs a value: {argument}"),
        (true, false) => format!("{name} needs a value: {allowed}"),
        (false, true) => return None,
        (false, false) => format!("{name} must be {allowed}, not '{given}'"),
    })
}

/// Returns the sentence about a value that a parser refused.
fn invalid_value(error: &Error) -> Option<String> {
    let name = flag(&list(error, ContextKind::InvalidArg).pop()?);
    let given = list(error, ContextKind::InvalidValue).pop()?;
    let reason = error.source()?;
    let number = |error: &ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => "a smaller whole number",
        _ => "a whole number",
    };
    let expected = if let Some(error) = reason.downcast_ref::<ParseIntError>() {
        number(error).to_owned()
    } else if reason.is::<ParseFloatError>() {
        "a number".to_owned()
    } else if let Some(error) = reason.downcast_ref::<AddrParseError>() {
        address(error).to_owned()
    } else if let Some((min, max)) = range(&reason.to_string()) {
        // The ends of a type say nothing about the setting.
        let has_no_end = WIDEST.contains(&max) && min == "0";
        if has_no_end { "a smaller whole number".to_owned() } else { format!("{min} to {max}") }
    } else {
        return Some(format!("{name} cannot be '{given}': {reason}"));
    };
    Some(format!("{name} must be {expected}, not '{given}'"))
}

/// The ends of ranges that are those of a type.
const WIDEST: [&str; 2] = ["4294967295", "18446744073709551615"];

/// Returns the ends of the range in a message of clap, such as `0 is not in 1..=256`.
fn range(reason: &str) -> Option<(&str, &str)> {
    reason.split_once(" is not in ")?.1.split_once("..=")
}

/// Returns what an address must be. The standard library's error does not show its kind but in its text.
fn address(error: &AddrParseError) -> &'static str {
    if error.to_string().contains("socket") {
        "an address and a port, such as 192.0.2.1:40000 or [2001:db8::1]:40000"
    } else {
        "an IP address, such as 192.0.2.1 or 2001:db8::1"
    }
}

fn conflict(error: &Error) -> Option<String> {
    let name = flag(&list(error, ContextKind::InvalidArg).pop()?);
    let others: Vec<_> = list(error, ContextKind::PriorArg).iter().map(|other| flag(other)).collect();
    match others.as_slice() {
        [] => None,
        [other] if *other == name => Some(format!("{name} cannot be used multiple times")),
        _ => Some(format!("{name} cannot be used with {}", join(&others, "and"))),
    }
}

/// Returns the command whose help has the options or commands, and a similar one if there is one.
fn where_to_look(error: &Error, what: &str, similar: Option<String>) -> String {
    let usage = list(error, ContextKind::Usage).pop().unwrap_or_default();
    let words = usage.split_whitespace().skip_while(|word| *word == "Usage:");
    let command: Vec<_> = words.take_while(|word| word.starts_with(char::is_alphanumeric)).collect();
    let similar = similar.map_or_else(String::new, |similar| format!(", a similar one is {similar}"));
    let help = [&command[..], &["--help"]].concat().join(" ");
    format!("`{help}` lists the {what}{similar}")
}

/// Returns the name of an argument without its value: `--slots` of `--slots <COUNT>`.
fn flag(argument: &str) -> String {
    argument.split([' ', '=', '[']).next().filter(|name| !name.is_empty()).unwrap_or(argument).to_owned()
}

fn list(error: &Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::Strings(texts)) => texts.clone(),
        None | Some(ContextValue::None) => Vec::new(),
        Some(value) => vec![value.to_string()],
    }
}

/// Returns the items with commas, and a word before the last one.
fn join(items: &[String], word: &str) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [others @ .., last] => format!("{} {word} {last}", others.join(", ")),
    }
}

/// Returns clap's message in one line, without usage and tips.
fn first_paragraph(error: &Error) -> String {
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<_> = first.split_whitespace().skip_while(|word| *word == "error:").collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use clap::builder::PossibleValuesParser;
    use clap::{Arg, value_parser};

    use super::*;

    fn command() -> Command {
        let option = |name: &'static str| Arg::new(name).long(name).value_name("X");
        let mint = Command::new("mint").arg(option("key-file").required(true)).arg(Arg::new("file").required(true));
        Command::new("game")
            .arg(option("slots").value_parser(value_parser!(u16).range(1..=256)))
            .arg(option("size").value_parser(value_parser!(u8)))
            .arg(option("count").value_parser(value_parser!(u32)))
            .arg(option("rate").value_parser(value_parser!(f64)))
            .arg(option("bind").value_parser(value_parser!(std::net::SocketAddr)))
            .arg(option("host").value_parser(value_parser!(std::net::IpAddr)))
            .arg(option("log").value_parser(PossibleValuesParser::new(["text", "json", "none"])))
            .arg(option("quiet").conflicts_with_all(["log", "rate"]))
            .arg(option("time").value_parser(str::parse::<crate::values::Span>))
            .subcommand(mint)
    }

    fn sentence_of(arguments: &str) -> String {
        let arguments = std::iter::once("game").chain(arguments.split_whitespace());
        sentence(&command().try_get_matches_from(arguments).unwrap_err())
    }

    #[test]
    fn each_error_is_a_sentence_with_a_remedy() {
        for (arguments, expected) in [
            ("--nothing", "unknown option '--nothing': `game --help` lists the options"),
            ("--slot 5", "unknown option '--slot': `game --help` lists the options, a similar one is --slots"),
            ("mint x --key-file y z", "unknown argument 'z': `game mint --help` lists the options"),
            ("mnt", "unknown command 'mnt': `game --help` lists the commands, a similar one is mint"),
            ("mint", "give --key-file <X> and <file>: `game mint --help` lists the options"),
            ("--log", "--log needs a value: text, json or none"),
            ("--slots", "--slots needs a value: --slots <X>"),
            ("--log xml", "--log must be text, json or none, not 'xml'"),
            ("--slots 0", "--slots must be 1 to 256, not '0'"),
            ("--slots many", "--slots must be a whole number, not 'many'"),
            ("--size 99999999999999999999", "--size must be a smaller whole number, not '…'"),
            ("--size 256", "--size must be 0 to 255, not '256'"),
            ("--count 4294967296", "--count must be a smaller whole number, not '4294967296'"),
            ("--count -5", "'-5' is no option, and numbers must not be negative"),
            ("--rate x", "--rate must be a number, not 'x'"),
            (
                "--bind x",
                "--bind must be an address and a port, such as 192.0.2.1:40000 or [2001:db8::1]:40000, not 'x'",
            ),
            ("--host x", "--host must be an IP address, such as 192.0.2.1 or 2001:db8::1, not 'x'"),
            (
                "--time x",
                "--time cannot be 'x': a span of time is written as 250ms, 45s, 1m 30s or 2h, and is at most a year",
            ),
            ("--slots 1 --slots 2", "--slots cannot be used multiple times"),
            ("--quiet 1 --log text", "--quiet cannot be used with --log"),
            ("--quiet 1 --log text --rate 1", "--quiet cannot be used with --log and --rate"),
        ] {
            assert_eq!(sentence_of(arguments), expected, "{arguments}");
        }
    }

    #[test]
    fn other_errors_are_clap_s_first_paragraph_in_one_line() {
        let error = command().error(ErrorKind::WrongNumberOfValues, "two\nlines\n\nUsage: game");
        assert_eq!(sentence(&error), "two lines");
    }

    #[test]
    fn key_in_the_place_of_a_value_is_not_shown() {
        let key = "0a".repeat(32);
        for arguments in [format!("--slots {key}"), format!("--log {key}"), format!("--time {key}"), key.clone()] {
            let sentence = sentence_of(&arguments);
            assert!(!sentence.contains("0a0a"), "{sentence}");
        }
    }
}
