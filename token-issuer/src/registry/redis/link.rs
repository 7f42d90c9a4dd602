//! The connection to the store, and the run of the store to which it leads.

use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, RedisError};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// The maximum time for a connection, and for the response to a script.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The pause after a failed attempt to connect.
const RETRY: Duration = Duration::from_millis(250);

/// A connection and the run of the store to which it leads.
#[derive(Clone)]
pub(super) struct StoreConnection {
    pub(super) connection: MultiplexedConnection,
    /// Random, drawn by the store at its start.
    pub(super) run_id: String,
    /// Distinguishes this connection from the next one.
    number: u64,
}

/// Connects when needed.
pub(super) struct StoreLink {
    client: Client,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    link: Option<StoreConnection>,
    connections: u64,
    failed: Option<Instant>,
}

impl StoreLink {
    pub(super) fn new(url: &str, password: Option<&str>) -> Result<Self, RedisError> {
        let mut info = url.into_connection_info()?;
        if let Some(password) = password {
            let settings = info.redis_settings().clone().set_password(password);
            info = info.set_redis_settings(settings);
        }
        Ok(Self { client: Client::open(info)?, state: Mutex::default() })
    }

    /// Returns the connection.
    pub(super) async fn get(&self) -> Result<StoreConnection, RedisError> {
        let mut state = self.state.lock().await;
        if state.link.is_none() {
            if state.failed.is_some_and(|failed| failed.elapsed() < RETRY) {
                return Err(std::io::Error::from(std::io::ErrorKind::NotConnected).into());
            }
            let connected = self.connect(state.connections).await;
            state.failed = connected.is_err().then(Instant::now);
            state.link = Some(connected?);
            state.connections += 1;
        }
        Ok(state.link.clone().ok_or(std::io::Error::from(std::io::ErrorKind::NotConnected))?)
    }

    async fn connect(&self, number: u64) -> Result<StoreConnection, RedisError> {
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(TIMEOUT));
        let config = config.set_response_timeout(Some(TIMEOUT));
        let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        let info: String = ::redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
        let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap_or_default().trim().to_owned();
        Ok(StoreConnection { connection, run_id, number })
    }

    /// Drops this connection, unless it was replaced already.
    pub(super) async fn drop_link(&self, link: &StoreConnection) {
        let mut state = self.state.lock().await;
        if state.link.as_ref().is_some_and(|current| current.number == link.number) {
            state.link = None;
        }
    }
}
