//! How connections end by the server's will: one client's, or all of them when it stops or is dropped.

use std::panic::{self, AssertUnwindSafe};
use std::thread;

use slipgate_netcode::server::ClientHandle;
use slipgate_session::channel::control::ByeCode;

use super::Server;

impl Server {
    /// Disconnects a client with a text for people, of up to 256 bytes, which it hears before it goes; a longer one is cut,
    /// between two characters. Its event comes now. Where [`Traffic`](crate::Traffic) is not `Channels` the text is not sent. Answers whether
    /// it was connected.
    ///
    /// What is not acknowledged by now may not arrive: put last words into the text, or wait for the receipt.
    pub fn kick(&mut self, client: ClientHandle, text: &str) -> bool {
        self.core.kick(client, ByeCode::KICKED, text)
    }

    /// As [`kick`](Self::kick), with a reason for programs: the application's own are those from
    /// [`ByeCode::FIRST_OF_APPLICATION`] on, and smaller ones count as 0, but for [`ByeCode::SHUTDOWN`], which tells both
    /// sides of a stop.
    ///
    /// What is not acknowledged by now may not arrive: put last words into the text, or wait for the receipt.
    pub fn kick_with(&mut self, client: ClientHandle, code: ByeCode, text: &str) -> bool {
        self.core.kick(client, code, text)
    }

    /// Disconnects a client; answers whether it was connected. Its event comes, and its packets leave with this turn.
    ///
    /// What is not acknowledged by now may not arrive: put last words into the text of [`kick`](Self::kick), or wait for the
    /// receipt.
    pub fn disconnect(&mut self, client: ClientHandle) -> bool {
        self.core.disconnect(client)
    }

    /// Disconnects everyone and admits nobody any more. The packets leave at the end of the turn; clients with channels hear
    /// that the server shuts down.
    ///
    /// What is not acknowledged by now may not arrive: put last words into the text of [`stop_with`](Self::stop_with), or wait
    /// for the receipt.
    pub fn stop(&mut self) {
        self.core.stop();
    }

    /// As [`stop`](Self::stop), with a text of its own for people, of up to 256 bytes; a longer one is cut, between two
    /// characters. The code is always [`ByeCode::SHUTDOWN`], by which clients know a stop from a kick.
    ///
    /// What is not acknowledged by now may not arrive: put last words into the text, or wait for the receipt.
    pub fn stop_with(&mut self, text: &str) {
        self.core.stop_with(text);
    }
}

/// A server that is dropped, in order or by a panic of its game, says goodbye as one that is [stopped](Server::stop):
/// its clients hear of the end, and need not wait for their time-outs.
///
/// Where that panics as well, while a panic of the game unwinds already, the goodbye is left: a second panic would end the
/// process, and all other shards with it.
impl Drop for Server {
    fn drop(&mut self) {
        let mut goodbye = || {
            if self.clients().next().is_some() {
                self.stop();
            }
            self.end_turn();
        };
        if thread::panicking() {
            let _ = panic::catch_unwind(AssertUnwindSafe(goodbye));
        } else {
            goodbye();
        }
    }
}
