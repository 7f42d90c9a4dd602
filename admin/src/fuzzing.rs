//! Requests as bytes, for the fuzz target `admin_requests`. Time is virtual: streams and time limits take no time.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use axum::Router;
use slipgate_server::ServerConfig;
use tokio::runtime::Runtime;

use crate::command::AdminCommand;
use crate::state::AdminState;
use crate::token::AdminToken;

/// An admin service without a socket. Its server has started and executes no command.
pub struct AdminRequests {
    state: Arc<AdminState>,
    /// Built once: it takes longer than a request.
    router: Router,
    commands: Receiver<AdminCommand>,
    runtime: Runtime,
}

impl AdminRequests {
    /// Creates a service, with this token if there is one.
    ///
    /// # Panics
    /// If the token is invalid or the system has no event queue.
    #[must_use]
    pub fn new(token: Option<&str>) -> Self {
        let token = token.map(|token| AdminToken::parse(token).expect("a token of 32 to 256 characters"));
        let state = Arc::new(AdminState::new(token));
        let (shard, commands) = state.add_shard(&ServerConfig::new(1, 8, &[]));
        shard.on_turn(state.uptime());
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
        let router = crate::http::router(Arc::clone(&state));
        Self { state, router, commands, runtime }
    }

    /// Sends the bytes of one connection. Returns the bytes of the response.
    pub fn exchange(&mut self, request: &[u8]) -> Vec<u8> {
        let response = self.runtime.block_on(crate::http::exchange(self.router.clone(), request));
        self.commands.try_iter().for_each(drop);
        response
    }

    /// Returns whether a request has started a drain.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.state.is_draining()
    }
}
