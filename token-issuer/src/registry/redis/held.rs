//! The reservations that this issuer made, which it writes again if the store has lost them.

use std::collections::HashMap;

use slipgate_netcode::ids::ClientId;
use tokio::time::Instant;

use crate::registry::name::RegistryName;

/// The maximum number of remembered reservations, about 10 MiB. Further ones are lost with the store.
const MAX_HELD: usize = 100_000;

/// A reservation in the store.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct HeldReservation {
    pub(super) server: RegistryName,
    pub(super) client_id: ClientId,
    pub(super) made: Instant,
    pub(super) ends: Instant,
}

/// The live reservations of this issuer.
#[derive(Default)]
pub(super) struct HeldReservations {
    by_client: HashMap<ClientId, Vec<HeldReservation>>,
    count: usize,
}

impl HeldReservations {
    /// Adds a reservation. It replaces that of the same client on the same server.
    pub(super) fn add(&mut self, reservation: HeldReservation) {
        if self.count >= MAX_HELD {
            self.forget_ended(Instant::now());
        }
        if self.count < MAX_HELD {
            let of_client = self.by_client.entry(reservation.client_id).or_default();
            let before = of_client.len();
            of_client.retain(|other| other.server != reservation.server);
            of_client.push(reservation);
            self.count = self.count + of_client.len() - before;
        }
    }

    /// Removes a reservation, unless a newer one of the client has replaced it.
    pub(super) fn forget(&mut self, reservation: &HeldReservation) {
        let Some(of_client) = self.by_client.get_mut(&reservation.client_id) else { return };
        let before = of_client.len();
        of_client.retain(|other| other != reservation);
        self.count -= before - of_client.len();
        if of_client.is_empty() {
            self.by_client.remove(&reservation.client_id);
        }
    }

    /// Returns the servers on which a client may have a reservation.
    pub(super) fn servers_of(&self, client_id: ClientId) -> Vec<RegistryName> {
        let of_client = self.by_client.get(&client_id);
        of_client.map(|held| held.iter().map(|one| one.server.clone()).collect()).unwrap_or_default()
    }

    /// Returns the reservations that have not ended, and forgets the others.
    pub(super) fn live(&mut self, now: Instant) -> Vec<HeldReservation> {
        self.forget_ended(now);
        self.by_client.values().flatten().cloned().collect()
    }

    fn forget_ended(&mut self, now: Instant) {
        self.by_client.retain(|_, of_client| {
            of_client.retain(|one| one.ends > now);
            !of_client.is_empty()
        });
        self.count = self.by_client.values().map(Vec::len).sum();
    }
}
