//! The paths of the routes.

/// Every route: its path, and its method in lower case.
pub const ROUTES: [(&str, &str); 10] = [
    (HEALTH, "get"),
    (READY, "get"),
    (METRICS, "get"),
    (CLIENTS, "get"),
    (KICK, "post"),
    (DRAIN, "post"),
    (PAGE, "get"),
    (SCRIPT, "get"),
    (STYLE, "get"),
    (EVENTS, "get"),
];

pub(super) const HEALTH: &str = "/healthz";
pub(super) const READY: &str = "/readyz";
pub(super) const METRICS: &str = "/metrics";
pub(super) const CLIENTS: &str = "/clients";
pub(super) const KICK: &str = "/clients/{id}/kick";
pub(super) const DRAIN: &str = "/drain";
pub(super) const PAGE: &str = "/";
pub(super) const SCRIPT: &str = "/dashboard.js";
pub(super) const STYLE: &str = "/dashboard.css";
pub(super) const EVENTS: &str = "/events";

/// The routes that need no token: they tell a supervisor or a load balancer nothing but a status.
pub(super) const OPEN: [&str; 2] = [HEALTH, READY];
