//! The sink of one client's packets.

use crate::connection::SealingSink;
use slipgate_netcode::Outbox;
use slipgate_netcode::server::{ClientHandle, NetcodeServer};
use slipgate_netcode::time::Now;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;

/// Returns the sink of a client's packets.
pub(super) fn client_sink<'a, O: Outbox>(
    netcode: &'a mut NetcodeServer,
    client: ClientHandle,
    now: Now,
    outbox: &'a mut O,
    buf: &'a mut [u8; MAX_PAYLOAD_BYTES],
) -> SealingSink<'a, O, impl FnMut(&[u8], &mut O) -> bool + 'a> {
    let confirmed = netcode.client(client).is_some_and(|info| info.confirmed);
    let datagrams = if confirmed { 1 } else { 2 };
    let seal = move |payload: &[u8], outbox: &mut O| netcode.send(client, payload, now, outbox).is_ok();
    SealingSink::new(outbox, buf, datagrams, seal)
}
