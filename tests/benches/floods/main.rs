//! What one flooding client costs: each of its packets, and the other clients of its server.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod cost;

fn main() {
    cost::run();
}
