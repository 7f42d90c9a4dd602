//! netcode
