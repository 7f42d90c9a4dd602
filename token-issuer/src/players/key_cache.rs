//! The key set in memory: read from a file when asked to, or fetched from a URL by a thread of its own.
//!
//! ```text
//!  every 5 min ──────┐
//!  an unknown key id ┼▶ fetch (10 s apart, 5 s each, 64 KiB) ─▶ cached keys, for at most an hour
//!  reload ───────────┘
//! ```

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use slipgate_os::authorities::CertificateAuthorities;
use tokio::sync::watch;

use super::error::{PlayerRefusal, PlayersError};
use super::key_set::{PlayerKey, PlayerKeySet, UNKNOWN_KEY};
use super::settings::PlayerKeySource;

/// The times of fetches.
const TIMES: FetchTimes = FetchTimes {
    interval: Duration::from_secs(300),
    min_interval: Duration::from_secs(10),
    timeout: Duration::from_secs(5),
    max_age: Duration::from_secs(3600),
};
/// The maximum size of a key set, in bytes.
const MAX_SET_BYTES: u64 = 64 * 1024;

/// When keys are fetched, and for how long they are used.
#[derive(Clone, Copy)]
struct FetchTimes {
    interval: Duration,
    /// The minimum interval: tokens with invented key ids must not flood the identity provider.
    min_interval: Duration,
    /// The maximum time of a fetch.
    timeout: Duration,
    /// How long keys are used after their last fetch. A provider that withdraws a key is not ignored for longer.
    max_age: Duration,
}

/// The keys, and how to get new ones.
pub(super) struct KeyCache {
    shared: Arc<SharedKeys>,
    source: CacheSource,
}

enum CacheSource {
    File(PathBuf),
    Url {
        /// Wakes the thread that fetches, which ends when this is dropped.
        wanted: SyncSender<()>,
        /// The maximum time of a fetch.
        timeout: Duration,
    },
}

/// What the thread that fetches shares with the requests.
struct SharedKeys {
    keys: RwLock<CachedKeys>,
    /// The number of finished fetches.
    fetches: watch::Sender<u64>,
}

#[derive(Clone, Default)]
struct CachedKeys {
    set: Arc<PlayerKeySet>,
    /// When the keys become too old. `None` for those of a file.
    expiry: Option<Instant>,
    /// When the next fetch may begin.
    next_fetch: Option<Instant>,
}

impl KeyCache {
    /// Reads the file, or starts the thread.
    pub(super) fn open(source: PlayerKeySource, authorities: Option<PathBuf>) -> Result<Self, PlayersError> {
        Self::open_with(source, authorities, TIMES)
    }

    fn open_with(
        source: PlayerKeySource,
        authorities: Option<PathBuf>,
        times: FetchTimes,
    ) -> Result<Self, PlayersError> {
        let is_encrypted = matches!(&source, PlayerKeySource::Url(url) if url.starts_with("https:"));
        if let Some(path) = &authorities {
            if !is_encrypted {
                return Err(PlayersError::UnusedAuthorities);
            }
            CertificateAuthorities::read(path).map_err(|error| PlayersError::Authorities(path.clone(), error))?;
        }
        let shared = Arc::new(SharedKeys { keys: RwLock::default(), fetches: watch::channel(0).0 });
        let source = match source {
            PlayerKeySource::File(path) => {
                shared.set_file(&path)?;
                CacheSource::File(path)
            }
            PlayerKeySource::Url(url) => {
                // One request for a fetch is as good as many.
                let (wanted, requests) = sync_channel(1);
                let fetcher = KeyFetcher { url, authorities, times, shared: Arc::clone(&shared) };
                let run = move || fetcher.run(&requests);
                thread::Builder::new().name("player-keys".to_owned()).spawn(run).map_err(PlayersError::Thread)?;
                CacheSource::Url { wanted, timeout: times.timeout }
            }
        };
        Ok(Self { shared, source })
    }

    pub(super) fn reload(&self) -> Result<(), PlayersError> {
        match &self.source {
            CacheSource::File(path) => self.shared.set_file(path),
            CacheSource::Url { wanted, .. } => {
                // A full queue asks for the same.
                let _ = wanted.try_send(());
                Ok(())
            }
        }
    }

    /// Returns the present keys, or `None` if there are none or they are too old.
    pub(super) fn current(&self) -> Option<Arc<PlayerKeySet>> {
        let keys = self.shared.read();
        let is_fresh = keys.expiry.is_none_or(|expiry| Instant::now() < expiry);
        (keys.set.len() > 0 && is_fresh).then_some(keys.set)
    }

    /// Returns the key with this id. If it is unknown, waits for a fetch, unless the last one was just now.
    pub(super) async fn find(&self, id: Option<&str>) -> Result<Arc<PlayerKey>, PlayerRefusal> {
        let find = || self.current().ok_or(PlayerRefusal::NoKeys)?.find(id);
        let found = find();
        let is_unknown = matches!(found, Err(refusal) if refusal == UNKNOWN_KEY || refusal == PlayerRefusal::NoKeys);
        if is_unknown && self.fetch().await { find() } else { found }
    }

    /// Waits for a fetch. Returns `false` if there is none now.
    async fn fetch(&self) -> bool {
        let CacheSource::Url { wanted, timeout } = &self.source else { return false };
        let mut fetches = self.shared.fetches.subscribe();
        if self.shared.read().next_fetch.is_some_and(|next| Instant::now() < next) {
            return false;
        }
        let _ = wanted.try_send(());
        tokio::time::timeout(*timeout, fetches.changed()).await.is_ok()
    }
}

impl SharedKeys {
    fn read(&self) -> CachedKeys {
        // Poisoning is harmless: the critical sections only swap and clone pointers.
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_file(&self, path: &Path) -> Result<(), PlayersError> {
        let text = read_file(path).map_err(|error| PlayersError::File(path.into(), error))?;
        let set = PlayerKeySet::parse(&text)?.into();
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = CachedKeys { set, ..CachedKeys::default() };
        Ok(())
    }

    /// Records a fetch. Without a set the present keys stay until they are too old.
    fn on_fetched(&self, set: Option<PlayerKeySet>, times: FetchTimes, now: Instant) {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        keys.next_fetch = Some(now + times.min_interval);
        if let Some(set) = set {
            (keys.set, keys.expiry) = (set.into(), Some(now + times.max_age));
        }
        drop(keys);
        self.fetches.send_modify(|fetches| *fetches += 1);
    }
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(MAX_SET_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_SET_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {MAX_SET_BYTES} bytes")));
    }
    Ok(text)
}

/// The thread that fetches the keys.
struct KeyFetcher {
    url: String,
    authorities: Option<PathBuf>,
    times: FetchTimes,
    shared: Arc<SharedKeys>,
}

impl KeyFetcher {
    /// Returns the client of one fetch, which trusts the authorities as their file has them now.
    fn agent(&self) -> io::Result<ureq::Agent> {
        let is_encrypted = self.url.starts_with("https:");
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(self.times.timeout))
            .https_only(is_encrypted)
            .max_redirects(if is_encrypted { 3 } else { 0 });
        // A proxy of the environment does not reach this machine's loopback.
        let config = if is_encrypted { config } else { config.proxy(None) };
        let Some(path) = &self.authorities else { return Ok(config.build().into()) };
        Ok(config.tls_config(CertificateAuthorities::read(path)?.tls_config()).build().into())
    }

    /// Fetches now and in intervals, and when a request asks for it, until the service has ended.
    fn run(&self, requests: &Receiver<()>) {
        let mut has_failed = false;
        loop {
            let fetched = self.fetch();
            match &fetched {
                Ok(set) if has_failed => tracing::info!(keys = set.len(), "the keys of players were fetched again"),
                Ok(set) => tracing::debug!(keys = set.len(), "the keys of players were fetched"),
                Err(error) if !has_failed => tracing::warn!(error, "the keys of players cannot be fetched"),
                Err(_) => {}
            }
            has_failed = fetched.is_err();
            let now = Instant::now();
            self.shared.on_fetched(fetched.ok(), self.times, now);
            // After a failure the next try comes soon.
            let wait = if has_failed { self.times.min_interval } else { self.times.interval };
            if requests.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            thread::sleep(self.times.min_interval.saturating_sub(now.elapsed()));
        }
    }

    fn fetch(&self) -> Result<PlayerKeySet, String> {
        let agent = self.agent().map_err(|error| format!("the authorities cannot be read: {error}"))?;
        let mut response = agent.get(&self.url).call().map_err(|error| error.to_string())?;
        if response.status() != 200 {
            return Err(format!("status {}", response.status().as_u16()));
        }
        let text = response.body_mut().with_config().limit(MAX_SET_BYTES).read_to_vec();
        PlayerKeySet::parse(&text.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests;
