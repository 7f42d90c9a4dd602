//! How the server ends connections: one client's, or all of them when it stops or is dropped.

use std::panic::{self, AssertUnwindSafe};
use std::thread;
use std::time::Duration;

use slipgate_netcode::server::ClientHandle;
use slipgate_session::connection::{CloseCode, SendError};
use slipgate_session::server::StopMode;

use super::Server;
use crate::{Clock, Event, Inbox};

/// The longest turn of a server that stops.
const STOP_TURN: Duration = Duration::from_millis(10);
/// The longest wait for acknowledgements: the default `close_timeout` for a redirect, and as much for the text.
const MAX_STOP: Duration = Duration::from_secs(2);

impl Server {
    /// Disconnects a client with a text of up to 256 bytes for the player; a longer one is cut between two characters.
    /// The text is sent only with [`Traffic::Channels`](crate::Traffic). After this call the client has no event but
    /// its `Disconnected`, and its partial transfers. They come at the next calls of
    /// [`Inbox::next`](crate::Inbox::next): in the next turn if the game has taken all events of this one.
    ///
    /// Messages that are not acknowledged by now may be lost. Put last words into the text, or wait for a receipt.
    ///
    /// # Errors
    /// `Gone`: the client is not connected.
    pub fn kick(&mut self, client: ClientHandle, text: &str) -> Result<(), SendError> {
        self.core.kick(client, CloseCode::KICKED, text)
    }

    /// Disconnects every client and accepts no new ones. Clients with channels receive `CloseCode::SHUTDOWN` and the
    /// text, of up to 256 bytes; an empty text is replaced by a sentence which says that the server is shutting down.
    /// The text is repeated in the following turns until a client has acknowledged it, at most for `close_timeout`: run
    /// turns until [`connected_count`](Self::connected_count) is 0, and one more for the last events.
    ///
    /// Messages that are not acknowledged by now may be lost. Put last words into the text, or wait for receipts.
    pub fn stop(&mut self, text: &str) {
        self.core.stop(text, StopMode::Repeat);
    }

    /// Calls [`stop`](Self::stop), and runs turns until all clients have acknowledged the text, about a round trip. If
    /// clients do not respond it takes `close_timeout`, and at most 2 s. Passes all events to `on_event`.
    pub(crate) fn stop_and_wait(
        &mut self,
        text: &str,
        clock: Clock,
        inbox: &mut Inbox,
        mut on_event: impl FnMut(Event<'_>),
    ) {
        self.begin_turn(clock.now());
        self.stop(text);
        let deadline = self.now.monotonic.after(MAX_STOP);
        loop {
            while let Some(event) = inbox.next(self) {
                on_event(event);
            }
            self.end_turn();
            let is_over = self.connected_count() == 0 || self.now.monotonic >= deadline;
            if is_over || self.wait(STOP_TURN).is_err() {
                break;
            }
            self.begin_turn(clock.now());
        }
        // The events of the last turn.
        while let Some(event) = inbox.next(self) {
            on_event(event);
        }
    }
}

/// A server that is dropped, in order or by a panic of its game, [stops](Server::stop) without a wait: its clients
/// learn of it at once instead of by a timeout, unless all packets of this moment get lost.
impl Drop for Server {
    fn drop(&mut self) {
        let mut stop = || {
            self.core.stop("", StopMode::AtOnce);
            self.end_turn();
        };
        if thread::panicking() {
            // A second panic during unwinding would abort the process, and all other shards with it.
            let _ = panic::catch_unwind(AssertUnwindSafe(stop));
        } else {
            stop();
        }
    }
}
