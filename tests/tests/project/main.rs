//! The shape of the project: imports, public API, language, documents.

mod api;
mod architecture;
mod contributing;
mod documents;
mod files;
mod functions;
mod import_cycles;
mod language;
mod law_book;
mod literals;
