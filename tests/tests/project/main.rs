//! The shape of the project: imports, public API, language, documents.

mod architecture;
