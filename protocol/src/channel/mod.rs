//! Messages over the acknowledged-packet endpoint.
