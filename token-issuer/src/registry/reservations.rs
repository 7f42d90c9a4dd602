//! The reservations of one server, and those that outlive the registration of their server.

use core::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use slipgate_netcode::ids::ClientId;
use slipgate_netcode::time::UnixMillis;

use super::name::RegistryName;

/// The maximum number of reservations of servers that are not registered, about 10 MiB.
const MAX_KEPT: usize = 100_000;

/// A slot that is reserved for a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reservation {
    /// When it ends, in milliseconds since 1970.
    pub(super) ends: u64,
    /// When its newest token was requested, in milliseconds since 1970.
    pub(super) made: u64,
    /// The number of tokens that have not admitted the client yet.
    pub(super) tokens: u32,
}

/// The reservations of one server. A client has one slot on a server at a time, so its tokens share a reservation.
#[derive(Default)]
pub(super) struct Reservations {
    by_client: HashMap<ClientId, Reservation>,
    /// The ends of all reservations, the earliest first. An end that is not the one of its reservation is void.
    ends: BinaryHeap<Reverse<(u64, ClientId)>>,
}

impl Reservations {
    /// Removes what has ended.
    pub(super) fn expire(&mut self, now: UnixMillis) {
        while let Some(Reverse((ends, client_id))) = self.ends.peek().copied() {
            if ends > now.0 {
                break;
            }
            self.ends.pop();
            if self.by_client.get(&client_id).is_some_and(|reservation| reservation.ends == ends) {
                self.by_client.remove(&client_id);
            }
        }
    }

    pub(super) fn add(&mut self, client_id: ClientId, made: u64, ends: u64) {
        let reservation = self.by_client.entry(client_id).or_insert(Reservation { ends, made, tokens: 0 });
        reservation.made = reservation.made.max(made);
        reservation.tokens = reservation.tokens.saturating_add(1);
        if reservation.ends <= ends {
            reservation.ends = ends;
            self.ends.push(Reverse((ends, client_id)));
        }
    }

    /// Ends the reservation of a client that got a slot, unless another token of it may still be used.
    pub(super) fn admit(&mut self, client_id: ClientId) {
        let Some(reservation) = self.by_client.get_mut(&client_id) else { return };
        reservation.tokens = reservation.tokens.saturating_sub(1);
        if reservation.tokens == 0 {
            self.by_client.remove(&client_id);
        }
    }

    /// Ends the reservations that were made up to this time. Returns their clients.
    pub(super) fn end_made_up_to(&mut self, made: u64) -> Vec<ClientId> {
        self.by_client.extract_if(|_, reservation| reservation.made <= made).map(|(client_id, _)| client_id).collect()
    }

    pub(super) fn get(&self, client_id: ClientId) -> Option<Reservation> {
        self.by_client.get(&client_id).copied()
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.by_client.len()).unwrap_or(u32::MAX)
    }

    /// Returns when the last one ends, or `None` without any.
    fn last_end(&self) -> Option<u64> {
        self.by_client.values().map(|reservation| reservation.ends).max()
    }
}

/// Collects the reservations of an earlier run.
impl FromIterator<(ClientId, Reservation)> for Reservations {
    fn from_iter<I: IntoIterator<Item = (ClientId, Reservation)>>(reservations: I) -> Self {
        let by_client: HashMap<_, _> = reservations.into_iter().collect();
        let ends = by_client.iter().map(|(client_id, reservation)| Reverse((reservation.ends, *client_id))).collect();
        Self { by_client, ends }
    }
}

/// The reservations of servers that are not registered any more. The tokens may still be valid, and a server that is
/// started again may accept them.
#[derive(Default)]
pub(super) struct KeptReservations {
    /// By the end of the last one, and by server.
    by_end: BTreeMap<(u64, RegistryName), Reservations>,
    /// When the last reservation of each server ends.
    end_of: HashMap<RegistryName, u64>,
    /// The number of reservations.
    count: usize,
}

impl KeptReservations {
    /// Keeps the reservations of a server until they end. Beyond the maximum, the server that has none left first is
    /// removed.
    pub(super) fn keep(&mut self, id: RegistryName, mut reservations: Reservations, now: UnixMillis) {
        reservations.expire(now);
        let Some(end) = reservations.last_end() else { return };
        self.count += reservations.by_client.len();
        self.end_of.insert(id.clone(), end);
        self.by_end.insert((end, id), reservations);
        while self.count > MAX_KEPT && self.remove_first() {}
    }

    /// Returns the reservations of a server that registers again.
    pub(super) fn take(&mut self, id: &RegistryName) -> Reservations {
        let Some(end) = self.end_of.remove(id) else { return Reservations::default() };
        let reservations = self.by_end.remove(&(end, id.clone())).unwrap_or_default();
        self.count -= reservations.by_client.len();
        reservations
    }

    /// Forgets each server of which all reservations have ended.
    pub(super) fn expire(&mut self, now: UnixMillis) {
        while self.by_end.first_key_value().is_some_and(|((end, _), _)| *end <= now.0) {
            self.remove_first();
        }
    }

    /// Removes the server of which all reservations will have ended first. Returns whether there was one.
    fn remove_first(&mut self) -> bool {
        let Some(((_, id), reservations)) = self.by_end.pop_first() else { return false };
        self.end_of.remove(&id);
        self.count -= reservations.by_client.len();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> RegistryName {
        format!("s{number}").parse().unwrap()
    }

    fn reservations(count: u64, ends: u64) -> Reservations {
        (0..count).map(|client| (ClientId(client), Reservation { ends, made: 0, tokens: 1 })).collect()
    }

    #[test]
    fn kept_reservations_end_and_are_bounded() {
        let mut kept = KeptReservations::default();
        for number in 0..5 {
            kept.keep(name(number), reservations(30_000, 1_000 + number as u64), UnixMillis(0));
        }
        assert_eq!(kept.count, 90_000, "the two that end first are forgotten");
        assert_eq!((kept.take(&name(1)).count(), kept.take(&name(2)).count()), (0, 30_000));
        kept.keep(name(9), reservations(1, 500), UnixMillis(500));
        assert_eq!(kept.end_of.len(), 2, "what has ended is not kept");
        kept.expire(UnixMillis(1_003));
        assert_eq!((kept.count, kept.end_of.len(), kept.by_end.len()), (30_000, 1, 1));
        kept.expire(UnixMillis(1_004));
        assert_eq!((kept.count, kept.end_of.len(), kept.by_end.len()), (0, 0, 0));
    }
}
