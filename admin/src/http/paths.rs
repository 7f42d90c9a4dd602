//! The paths of the routes.

/// Every route: its path, and its method in lower case.
pub const ROUTES: [(&str, &str); 6] =
    [(HEALTH, "get"), (READY, "get"), (METRICS, "get"), (CLIENTS, "get"), (KICK, "post"), (DRAIN, "post")];

pub(super) const HEALTH: &str = "/healthz";
pub(super) const READY: &str = "/readyz";
pub(super) const METRICS: &str = "/metrics";
pub(super) const CLIENTS: &str = "/clients";
pub(super) const KICK: &str = "/clients/{id}/kick";
pub(super) const DRAIN: &str = "/drain";

/// The routes that need no token: they tell a supervisor or a load balancer nothing but a status.
pub(super) const OPEN: [&str; 2] = [HEALTH, READY];
