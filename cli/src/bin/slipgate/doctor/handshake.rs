//! A connection to one server with a token: whether it comes about, and whether payloads of each size return.

use std::time::{Duration, Instant};

use slipgate_client::{Client, Clock, CloseReason, ConnectToken, Event, Inbox};

/// The maximum time of the handshake. A token's timeout is often shorter.
const HANDSHAKE_TIME: Duration = Duration::from_secs(8);
/// The time in which echoes are expected.
const ECHO_TIME: Duration = Duration::from_secs(2);
/// The time between two payloads of one size.
const INTERVAL: Duration = Duration::from_millis(50);
/// The longest time of a turn.
const MAX_TURN: Duration = Duration::from_millis(20);
/// The bytes of a payload's number, which the filler follows.
const NUMBER_BYTES: usize = 8;

/// The result of an attempt.
#[derive(Debug, Default)]
pub(super) struct HandshakeResult {
    /// The time until the connection, `None` if there is none.
    pub(super) connected_after: Option<Duration>,
    /// Why there is none, or why it has ended.
    pub(super) ended: Option<CloseReason>,
    /// The echoes of each size.
    pub(super) echoes: Vec<SizeEchoes>,
}

/// The payloads of one size, and their correct echoes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SizeEchoes {
    bytes: usize,
    sent: u64,
    returned: u64,
}

impl SizeEchoes {
    /// Returns whether most of the payloads have returned.
    pub(super) const fn is_most(&self) -> bool {
        self.returned > 0 && self.returned * 10 >= self.sent * 7
    }
}

/// Connects with the token and sends payloads of each of these sizes over the one connection: another token may lead to
/// another server. Calls `on_connected` once, while the server has the client.
///
/// # Errors
/// The text of what the system, or the token, refuses.
pub(super) fn attempt(
    token: ConnectToken,
    sizes: &[usize],
    on_connected: impl FnOnce(),
) -> Result<HandshakeResult, String> {
    let mut client = Client::new().map_err(|error| format!("no socket can be opened: {error}"))?;
    let clock = Clock::start();
    client.connect(token, clock.now()).map_err(|error| error.to_string())?;
    let echoes = sizes.iter().map(|bytes| SizeEchoes { bytes: *bytes, sent: 0, returned: 0 }).collect();
    let mut result = HandshakeResult { echoes, ..HandshakeResult::default() };
    let (start, mut inbox, mut on_connected) = (Instant::now(), Inbox::default(), Some(on_connected));
    let mut next_send = start;
    loop {
        client.begin_turn(clock.now());
        receive(&mut client, &mut inbox, &mut result.echoes);
        if client.state().is_connected()
            && let Some(on_connected) = on_connected.take()
        {
            result.connected_after = Some(start.elapsed());
            // Before the first payload: a server with channels disconnects a client for it.
            on_connected();
        }
        if client.state().is_connected() && next_send <= Instant::now() {
            next_send = Instant::now() + INTERVAL;
            send(&mut client, &mut result.echoes);
        }
        client.end_turn();
        client.wait(MAX_TURN).map_err(|error| error.to_string())?;
        result.ended = client.close_reason().cloned();
        let is_over = match result.connected_after {
            None => start.elapsed() > HANDSHAKE_TIME,
            Some(after) => start.elapsed() > after + ECHO_TIME,
        };
        if is_over || result.ended.is_some() {
            break;
        }
    }
    client.disconnect();
    client.begin_turn(clock.now());
    client.end_turn();
    Ok(result)
}

/// Counts the echoes that have arrived.
fn receive(client: &mut Client, inbox: &mut Inbox, sizes: &mut [SizeEchoes]) {
    while let Some(event) = inbox.next(client) {
        let Event::Payload { bytes, .. } = event else { continue };
        if let Some(echoes) = sizes.iter_mut().find(|echoes| echoes.bytes == bytes.len()) {
            echoes.returned += u64::from(is_echo(bytes, echoes));
        }
    }
}

/// Sends one payload of each size.
fn send(client: &mut Client, sizes: &mut [SizeEchoes]) {
    for echoes in sizes {
        let is_sent = client.send(&payload(echoes.sent, echoes.bytes)).is_ok();
        echoes.sent += u64::from(is_sent);
    }
}

/// Returns whether the bytes are those of a payload that was sent.
fn is_echo(bytes: &[u8], echoes: &SizeEchoes) -> bool {
    let number = bytes.first_chunk::<NUMBER_BYTES>().map(|number| u64::from_le_bytes(*number));
    number.is_some_and(|number| number < echoes.sent && payload(number, echoes.bytes) == bytes)
}

/// Returns a payload: its number, and bytes that depend on it.
fn payload(number: u64, bytes: usize) -> Vec<u8> {
    let filler = (0_u64..).map(|index| (number.wrapping_mul(31) ^ index) as u8);
    number.to_le_bytes().into_iter().chain(filler).take(bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_payload_that_was_sent_is_an_echo() {
        let echoes = SizeEchoes { bytes: 64, sent: 3, returned: 0 };
        assert!(is_echo(&payload(2, 64), &echoes));
        let mut changed = payload(2, 64);
        changed[63] ^= 1;
        for other in [payload(3, 64), payload(2, 63), changed] {
            assert!(!is_echo(&other, &echoes));
        }
        let returned = |returned| SizeEchoes { bytes: 64, sent: 10, returned }.is_most();
        assert_eq!([0, 6, 7].map(returned), [false, false, true]);
    }
}
