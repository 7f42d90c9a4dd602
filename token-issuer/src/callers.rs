//! The callers of the HTTP service: named API keys, what each may do, and how often.
//!
//! ```text
//!  Authorization: Bearer lobby.sgk_…   id and secret of a named key: one or two digests, scopes, a limit
//!  Authorization: Bearer sgk_…         a key without a name: may do everything
//! ```
//!
//! The HTTP service asks here whether a key is valid and what its request may do.

use core::fmt;
use core::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use prometheus_client::metrics::counter::Counter;
use subtle::{Choice, ConditionallySelectable};

use crate::api_key::{API_KEY_PREFIX, ApiKeyDigest, ApiKeyError};
use crate::registry::RegistryName;

/// The maximum number of digests of keys without a name. A request without a valid key costs one HMAC for each of them.
pub const MAX_API_KEYS: usize = 16;
/// The maximum number of named keys.
pub const MAX_NAMED_KEYS: usize = 1024;
/// The number of secrets that a named key may have at a time: the present one and the next.
pub const MAX_SECRETS: usize = 2;
/// The number of keys that a log names.
const MAX_LISTED: usize = 32;
/// Longer keys are refused unread. A name, a dot and a secret have at most 133 bytes.
const MAX_PRESENTED_BYTES: usize = 256;

/// What a key may do with the API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permission {
    /// Request tokens.
    Mint,
    /// Register game servers.
    Register,
    /// Read servers and metrics.
    Observe,
}

/// The limits of a key's requests. The default allows everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scopes {
    /// What the key may do.
    pub permissions: Vec<Permission>,
    /// The groups of servers for tokens and registrations. `None`: all groups, and addresses of the allow-list.
    pub groups: Option<Vec<RegistryName>>,
    /// The protocol ids for tokens and registrations. `None`: all.
    pub protocol_ids: Option<Vec<u64>>,
    /// Whether a request may name its client id. Otherwise it needs the player's own JSON Web Token.
    pub names_client_id: bool,
}

impl Scopes {
    /// Returns whether they include a server of this game and group.
    #[must_use]
    pub fn include(&self, protocol_id: u64, group: &RegistryName) -> bool {
        self.groups.as_ref().is_none_or(|groups| groups.contains(group))
            && self.protocol_ids.as_ref().is_none_or(|ids| ids.contains(&protocol_id))
    }
}

impl Default for Scopes {
    fn default() -> Self {
        Self {
            permissions: vec![Permission::Mint, Permission::Register, Permission::Observe],
            groups: None,
            protocol_ids: None,
            names_client_id: true,
        }
    }
}

/// A key of a backend, of a game server or of a monitor: its id, the digests of its secrets, and its limits.
///
/// `Debug` shows the id only.
#[derive(Clone)]
pub struct Caller {
    id: Box<str>,
    digests: Box<[ApiKeyDigest]>,
    scopes: Scopes,
    limit: Option<RequestLimit>,
    /// The metric of its tokens, which is looked up once.
    minted: OnceLock<Counter>,
}

/// The requests that a key may send in a minute. Clones count together.
#[derive(Clone)]
struct RequestLimit {
    per_minute: NonZeroU32,
    limiter: Arc<DefaultDirectRateLimiter>,
}

impl RequestLimit {
    fn new(per_minute: NonZeroU32) -> Self {
        Self { per_minute, limiter: Arc::new(RateLimiter::direct(Quota::per_minute(per_minute))) }
    }
}

impl Caller {
    /// Creates a named key from one or two digests of its secrets. It may send `requests_per_minute`, all of them at
    /// once, or any number if that is `None`.
    ///
    /// # Errors
    /// [`ApiKeyError::Secrets`] unless there are one or two digests.
    pub fn new(
        id: &RegistryName,
        digests: Vec<ApiKeyDigest>,
        scopes: Scopes,
        requests_per_minute: Option<NonZeroU32>,
    ) -> Result<Self, ApiKeyError> {
        if !(1..=MAX_SECRETS).contains(&digests.len()) {
            return Err(ApiKeyError::Secrets(digests.len()));
        }
        let limit = requests_per_minute.map(RequestLimit::new);
        Ok(Self { id: id.as_str().into(), digests: digests.into(), scopes, limit, minted: OnceLock::new() })
    }

    fn unnamed(number: usize, digest: ApiKeyDigest) -> Self {
        let id = number.to_string().into();
        Self { id, digests: Box::new([digest]), scopes: Scopes::default(), limit: None, minted: OnceLock::new() }
    }

    /// Returns the key's id, which logs and metrics show. For a key without a name it is the position of its digest in
    /// the configuration, from 1.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns what the key may do.
    #[must_use]
    pub const fn scopes(&self) -> &Scopes {
        &self.scopes
    }

    /// Returns the metric of the key's tokens, which `find` looks up at the first token.
    pub(crate) fn minted(&self, find: impl FnOnce() -> Counter) -> &Counter {
        self.minted.get_or_init(find)
    }

    /// Counts a request, or returns how long to wait for the next one.
    pub(crate) fn count_request(&self) -> Result<(), Duration> {
        let Some(limit) = &self.limit else { return Ok(()) };
        limit.limiter.check().map_err(|refused| refused.wait_time_from(DefaultClock::default().now()))
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("id", &self.id).finish_non_exhaustive()
    }
}

/// All accepted API keys.
#[derive(Clone, Debug)]
pub struct ApiKeys {
    unnamed: Arc<[Arc<Caller>]>,
    /// Sorted by id.
    named: Arc<[Arc<Caller>]>,
}

impl ApiKeys {
    /// Creates the set of accepted keys from the digests of keys without a name: 1 to 16, so that a key can be replaced
    /// while the old one still works.
    ///
    /// # Errors
    /// [`ApiKeyError::Count`] if there are none or more than 16.
    pub fn new(digests: Vec<ApiKeyDigest>) -> Result<Self, ApiKeyError> {
        Self::with_named(digests, Vec::new())
    }

    /// Creates the set of accepted keys: up to 16 without a name, and named ones.
    ///
    /// # Errors
    /// [`ApiKeyError::Count`] if there are no keys at all or more than 16 without a name,
    /// [`ApiKeyError::NamedCount`] for more than [`MAX_NAMED_KEYS`], [`ApiKeyError::IdTwice`] if two have one id.
    pub fn with_named(digests: Vec<ApiKeyDigest>, mut named: Vec<Caller>) -> Result<Self, ApiKeyError> {
        if digests.len() > MAX_API_KEYS || digests.is_empty() && named.is_empty() {
            return Err(ApiKeyError::Count(digests.len()));
        }
        if named.len() > MAX_NAMED_KEYS {
            return Err(ApiKeyError::NamedCount(named.len()));
        }
        named.sort_by(|one, other| one.id.cmp(&other.id));
        if named.windows(2).any(|pair| matches!(pair, [one, other] if one.id == other.id)) {
            return Err(ApiKeyError::IdTwice);
        }
        let unnamed = digests.into_iter().zip(1..).map(|(digest, number)| Arc::new(Caller::unnamed(number, digest)));
        Ok(Self { unnamed: unnamed.collect(), named: named.into_iter().map(Arc::new).collect() })
    }

    /// Returns the keys with the counts of requests of those before: of each named key with the same limit. Without
    /// them, a reload would give it all requests of a minute at once.
    pub(crate) fn with_counts_of(self, before: &Self) -> Self {
        let continued = |caller: &Arc<Caller>| {
            let earlier = before.named.binary_search_by(|earlier| earlier.id.cmp(&caller.id)).ok();
            let earlier = earlier.and_then(|index| before.named.get(index)?.limit.as_ref());
            match (earlier, &caller.limit) {
                (Some(earlier), Some(limit)) if earlier.per_minute == limit.per_minute => {
                    Arc::new(Caller { limit: Some(earlier.clone()), ..Caller::clone(caller) })
                }
                _ => Arc::clone(caller),
            }
        };
        Self { named: self.named.iter().map(continued).collect(), ..self }
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn count(&self) -> usize {
        self.unnamed.len() + self.named.len()
    }

    /// Returns the ids of the keys for a log, each with the first 8 digits of its digests: `1 (0c3dbb4a), lobby
    /// (51f3f1cb bf2c5ac9)`. Of more than 32 keys it lists the first ones, and the number of the others.
    #[must_use]
    pub fn list(&self) -> String {
        let mut listed: Vec<_> = self.unnamed.iter().chain(&*self.named).take(MAX_LISTED).map(describe).collect();
        let others = self.count().saturating_sub(MAX_LISTED);
        if others > 0 {
            listed.push(format!("and {others} more"));
        }
        listed.join(", ")
    }

    /// Returns whether this is one of the keys, in a time that depends on neither the key nor the matching digest.
    #[must_use]
    pub fn accept(&self, presented: &[u8]) -> bool {
        self.find(presented).is_some()
    }

    /// Returns which of the keys this is, in constant time as [`accept`](Self::accept): with the same set of keys each
    /// call computes the same number of HMACs, also for an unknown id and for no key at all.
    pub(crate) fn find(&self, presented: &[u8]) -> Option<Arc<Caller>> {
        let presented = if presented.len() <= MAX_PRESENTED_BYTES { presented } else { &[] };
        let (caller, secret) = match split_id(presented) {
            Some((id, secret)) => (self.named.binary_search_by(|caller| caller.id.as_bytes().cmp(id)).ok(), secret),
            None => (None, presented),
        };
        let caller = caller.and_then(|index| self.named.get(index));
        let found_named = self.verify_named(caller, secret);
        let found_unnamed = self.verify_unnamed(presented);
        let named = caller.filter(|_| found_named);
        named.or_else(|| found_unnamed.checked_sub(1).and_then(|index| self.unnamed.get(index))).map(Arc::clone)
    }

    /// Computes two HMACs, whether the id is known or not, and none if no key has a name.
    fn verify_named(&self, caller: Option<&Arc<Caller>>, secret: &[u8]) -> bool {
        if self.named.is_empty() {
            return false;
        }
        let no_key = ApiKeyDigest::of_no_key();
        let digests: &[ApiKeyDigest] = caller.map_or(&[], |caller| &caller.digests);
        let accepted = (0..MAX_SECRETS).map(|index| digests.get(index).unwrap_or(no_key).accepts(secret));
        bool::from(accepted.fold(Choice::from(0), |found, one| found | one))
    }

    /// Compares all digests, also after a match, to keep the time constant. Returns the position of the match, from 1.
    fn verify_unnamed(&self, presented: &[u8]) -> usize {
        let digests = self.unnamed.iter().flat_map(|caller| caller.digests.iter()).zip(1_u64..);
        let found = digests
            .fold(0, |found, (digest, number)| u64::conditional_select(&found, &number, digest.accepts(presented)));
        usize::try_from(found).unwrap_or_default()
    }
}

/// Returns the id of a key with the first digits of its digests.
fn describe(caller: &Arc<Caller>) -> String {
    let digits: Vec<_> = caller.digests.iter().map(ApiKeyDigest::first_digits).collect();
    format!("{} ({})", caller.id, digits.join(" "))
}

/// Splits a named key into its id and its secret.
fn split_id(presented: &[u8]) -> Option<(&[u8], &[u8])> {
    let dot = presented.windows(API_KEY_PREFIX.len() + 1).position(|bytes| {
        bytes.split_first().is_some_and(|(dot, prefix)| *dot == b'.' && prefix == API_KEY_PREFIX.as_bytes())
    })?;
    let (id, secret) = presented.split_at_checked(dot)?;
    Some((id, secret.get(1..)?))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::api_key::ApiKey;

    fn entropy() -> StdRng {
        StdRng::from_seed([3; 32])
    }

    fn name(text: &str) -> RegistryName {
        text.parse().unwrap()
    }

    #[test]
    fn each_of_several_keys_is_accepted() {
        let mut entropy = entropy();
        let created: Vec<_> = (0..MAX_API_KEYS).map(|_| ApiKey::random(&mut entropy)).collect();
        let keys = ApiKeys::new(created.iter().map(|key| key.digest(&mut entropy)).collect()).unwrap();
        for (key, number) in created.iter().zip(1..) {
            assert_eq!(keys.find(key.expose().as_bytes()).unwrap().id(), number.to_string());
        }
        assert!(keys.find(b"sgk_").is_none());
    }

    #[test]
    fn list_names_the_keys_and_at_most_32_of_them() {
        let digest = |digit: &str| format!("hmac-sha256:{}:{}", "ab".repeat(32), digit.repeat(64)).parse().unwrap();
        let caller = |id: &str, digests| Caller::new(&name(id), digests, Scopes::default(), None).unwrap();
        let lobby = caller("lobby", vec![digest("2"), digest("3")]);
        let keys = ApiKeys::with_named(vec![digest("1")], vec![lobby]).unwrap();
        assert_eq!(keys.list(), "1 (11111111), lobby (22222222 33333333)");
        let many = (100..140).map(|id| caller(&format!("n{id}"), vec![digest("4")])).collect();
        let keys = ApiKeys::with_named(Vec::new(), many).unwrap();
        assert!(keys.list().ends_with("n131 (44444444), and 8 more"), "{}", keys.list());
    }

    #[test]
    fn named_key_needs_its_id_and_one_of_its_secrets() {
        let mut entropy = entropy();
        let [first, second, other] = [(); 3].map(|()| ApiKey::random(&mut entropy));
        let digests = vec![first.digest(&mut entropy), second.digest(&mut entropy)];
        let lobby = Caller::new(&name("lobby.eu"), digests, Scopes::default(), None).unwrap();
        let shop = Caller::new(&name("shop"), vec![other.digest(&mut entropy)], Scopes::default(), None).unwrap();
        let keys = ApiKeys::with_named(Vec::new(), vec![shop, lobby]).unwrap();
        let find = |key: String| keys.find(key.as_bytes()).map(|caller| caller.id().to_owned());
        for key in [&first, &second] {
            assert_eq!(find(format!("lobby.eu.{}", key.expose())).as_deref(), Some("lobby.eu"));
            assert_eq!(find(format!("shop.{}", key.expose())), None);
            assert_eq!(find(key.expose().to_owned()), None, "the id is missing");
        }
        assert_eq!(find(format!("shop.{}", other.expose())).as_deref(), Some("shop"));
        for wrong in ["", ".", "shop", "shop.", "shop.sgk_", &"a".repeat(500)] {
            assert_eq!(find(wrong.to_owned()), None, "{wrong}");
        }
    }

    #[test]
    fn wrong_sets_of_keys_are_refused() {
        let mut entropy = entropy();
        let digest = ApiKey::random(&mut entropy).digest(&mut entropy);
        let caller =
            |id: &str, count: usize| Caller::new(&name(id), vec![digest.clone(); count], Scopes::default(), None);
        assert_eq!(ApiKeys::new(vec![]).unwrap_err(), ApiKeyError::Count(0));
        assert_eq!(ApiKeys::new(vec![digest.clone(); 17]).unwrap_err(), ApiKeyError::Count(17));
        assert_eq!(caller("a", 0).unwrap_err(), ApiKeyError::Secrets(0));
        assert_eq!(caller("a", 3).unwrap_err(), ApiKeyError::Secrets(3));
        let twice = vec![caller("a", 1).unwrap(), caller("a", 2).unwrap()];
        assert_eq!(ApiKeys::with_named(vec![], twice).unwrap_err(), ApiKeyError::IdTwice);
    }

    #[test]
    fn key_has_a_limit_of_its_own() {
        let mut entropy = entropy();
        let digest = ApiKey::random(&mut entropy).digest(&mut entropy);
        let limited = Caller::new(&name("a"), vec![digest], Scopes::default(), NonZeroU32::new(3)).unwrap();
        for _ in 0..3 {
            limited.count_request().unwrap();
        }
        let wait = limited.count_request().unwrap_err();
        assert!(wait > Duration::from_secs(10) && wait <= Duration::from_secs(20), "{wait:?}");
    }

    #[test]
    fn counts_of_requests_continue_while_the_limit_is_the_same() {
        let mut entropy = entropy();
        let digest = ApiKey::random(&mut entropy).digest(&mut entropy);
        let keys = |names: &[(&str, u32)]| {
            let named = names.iter().map(|(id, limit)| {
                Caller::new(&name(id), vec![digest.clone()], Scopes::default(), NonZeroU32::new(*limit)).unwrap()
            });
            ApiKeys::with_named(Vec::new(), named.collect()).unwrap()
        };
        let before = keys(&[("a", 2), ("b", 2), ("c", 0)]);
        for caller in before.named.iter().filter(|caller| caller.id() != "c") {
            (0..2).for_each(|_| caller.count_request().unwrap());
        }
        let after = keys(&[("a", 2), ("b", 3), ("c", 2), ("d", 2)]).with_counts_of(&before);
        let refused: Vec<_> = after.named.iter().filter(|caller| caller.count_request().is_err()).collect();
        assert_eq!(refused.iter().map(|caller| caller.id()).collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn debug_shows_no_digest() {
        let mut entropy = entropy();
        let digest = ApiKey::random(&mut entropy).digest(&mut entropy);
        let text = format!("{:?}", ApiKeys::new(vec![digest.clone()]).unwrap());
        assert!(text.contains("Caller { id: \"1\", .. }") && !text.contains(&digest.to_string()[12..30]), "{text}");
    }
}
