//! The choice of servers for a token: region, load, different hosts, and chance among equals.

use core::cmp::Ordering;
use core::net::{IpAddr, SocketAddr};

use super::types::{Registration, SlotRequest};

/// A server that may be chosen.
#[derive(Clone, Copy)]
pub(super) struct RankedServer<'a> {
    pub(super) server: &'a Registration,
    /// Free slots without a reservation.
    pub(super) available: u32,
    /// A random number, which decides among equal servers. Without it, concurrent requests would all pick the same.
    pub(super) chance: u64,
}

/// The rank of a candidate, the best one least.
struct Rank {
    region: usize,
    is_host_used: bool,
    available: u32,
    slots: u32,
    chance: u64,
}

impl Rank {
    /// Compares loads as fractions: the one with the larger share of available slots comes first.
    fn compare(&self, other: &Self) -> Ordering {
        let share = |of: &Self, slots: u32| u64::from(of.available) * u64::from(slots);
        (self.region, self.is_host_used)
            .cmp(&(other.region, other.is_host_used))
            .then_with(|| share(other, self.slots).cmp(&share(self, other.slots)))
            .then_with(|| self.chance.cmp(&other.chance))
    }
}

/// Returns up to `count` of the candidates with room, the best first.
pub(super) fn choose<'a>(
    candidates: &(impl Iterator<Item = RankedServer<'a>> + Clone),
    request: &SlotRequest,
    count: usize,
) -> Vec<RankedServer<'a>> {
    let mut chosen: Vec<RankedServer<'a>> = Vec::with_capacity(count);
    while chosen.len() < count {
        let is_chosen = |candidate: &RankedServer<'_>| chosen.iter().any(|one| one.server.id == candidate.server.id);
        let left = candidates.clone().filter(|candidate| candidate.available > 0 && !is_chosen(candidate));
        let ranked = left.filter_map(|candidate| Some((rank(&candidate, request, &chosen)?, candidate)));
        let Some((_, best)) = ranked.min_by(|(one, _), (other, _)| one.compare(other)) else { break };
        chosen.push(best);
    }
    chosen
}

fn rank(candidate: &RankedServer<'_>, request: &SlotRequest, chosen: &[RankedServer<'_>]) -> Option<Rank> {
    let region = request.region_rank(candidate.server)?;
    let is_host_used =
        chosen.iter().any(|one| host(one.server).is_some() && host(one.server) == host(candidate.server));
    Some(Rank {
        region,
        is_host_used,
        available: candidate.available,
        slots: candidate.server.slots,
        chance: candidate.chance,
    })
}

fn host(server: &Registration) -> Option<IpAddr> {
    server.addresses.first().map(SocketAddr::ip)
}
