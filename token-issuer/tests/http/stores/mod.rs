//! The stores of the registry: the same rules in memory, in a file, and in a real Redis.

#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod file;
mod redis;
mod rules;
