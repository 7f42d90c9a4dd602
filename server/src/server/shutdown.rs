//! How the server ends connections: one client's, or all of them when it stops or is dropped.

use std::panic::{self, AssertUnwindSafe};
use std::thread;

use slipgate_netcode::server::ClientHandle;
use slipgate_session::connection::{CloseCode, SendError};

use super::Server;

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

    /// Disconnects every client and accepts no new ones. The packets leave at the end of the turn. Clients with
    /// channels receive `CloseCode::SHUTDOWN` and the text, of up to 256 bytes; an empty text is replaced by a sentence
    /// which says that the server is shutting down.
    ///
    /// Messages that are not acknowledged by now may be lost. Put last words into the text, or wait for receipts.
    pub fn stop(&mut self, text: &str) {
        self.core.stop(text);
    }
}

/// A server that is dropped, in order or by a panic of its game, [stops](Server::stop): its clients learn of it at once
/// instead of by a timeout.
impl Drop for Server {
    fn drop(&mut self) {
        let mut stop = || {
            if self.clients().next().is_some() {
                self.stop("");
            }
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
