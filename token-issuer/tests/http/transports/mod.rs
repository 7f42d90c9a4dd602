//! TLS and Unix sockets: the same service, with the same limits.

mod certificate;
mod limits;
mod service;
mod tls;
mod unix;
