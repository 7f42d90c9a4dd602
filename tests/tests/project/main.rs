//! The shape of the project: imports, public API, language, documents.

mod api;
mod architecture;
mod contributing;
mod deploy;
mod discard_macro;
mod documents;
mod files;
mod functions;
mod fuzz_seeds;
mod import_cycles;
mod language;
mod law_book;
mod literals;
mod public_items;
