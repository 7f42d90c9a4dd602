//! The reservations that this issuer made, which it writes again if the store has lost them.

use std::collections::HashMap;

use slipgate_netcode::ids::ClientId;
use tokio::time::Instant;

use crate::registry::name::RegistryName;

/// The maximum number of remembered reservations, about 10 MiB. Further ones are lost with the store.
const MAX_HELD: usize = 100_000;

/// A reservation in the store.
#[derive(Clone)]
pub(super) struct HeldReservation {
    pub(super) server: RegistryName,
    pub(super) client_id: ClientId,
    pub(super) made: Instant,
    pub(super) ends: Instant,
}

/// The live reservations of this issuer.
#[derive(Default)]
pub(super) struct HeldReservations {
    /// When each was made, and when it ends.
    by_client: HashMap<(RegistryName, ClientId), (Instant, Instant)>,
}

impl HeldReservations {
    pub(super) fn add(&mut self, server: RegistryName, client_id: ClientId, times: (Instant, Instant)) {
        if self.by_client.len() >= MAX_HELD {
            let now = Instant::now();
            self.by_client.retain(|_, (_, ends)| *ends > now);
        }
        if self.by_client.len() < MAX_HELD {
            self.by_client.insert((server, client_id), times);
        }
    }

    /// Removes a reservation, unless a newer one of the client has replaced it.
    pub(super) fn forget(&mut self, reservation: &HeldReservation) {
        let key = (reservation.server.clone(), reservation.client_id);
        if self.by_client.get(&key) == Some(&(reservation.made, reservation.ends)) {
            self.by_client.remove(&key);
        }
    }

    /// Returns the reservations that have not ended, and forgets the others.
    pub(super) fn live(&mut self, now: Instant) -> Vec<HeldReservation> {
        self.by_client.retain(|_, (_, ends)| *ends > now);
        let held = |((server, client_id), (made, ends)): (&(RegistryName, ClientId), &(Instant, Instant))| {
            HeldReservation { server: server.clone(), client_id: *client_id, made: *made, ends: *ends }
        };
        self.by_client.iter().map(held).collect()
    }
}
