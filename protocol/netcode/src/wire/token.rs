//! The layouts of a connect token: its public face, and its private part before sealing (§1.4, §1.5).
//!
//! What a token is for, and who may trust one, is told in `token`.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::cursor::{Reader, Writer};
use super::{
    CONNECT_TOKEN_BYTES, KEY_BYTES, MAX_SERVERS_PER_TOKEN, PRIVATE_TOKEN_BYTES, PRIVATE_TOKEN_PLAIN_BYTES,
    TOKEN_NONCE_BYTES, USER_DATA_BYTES, VERSION,
};
use crate::time::{UnixMillis, UnixSeconds};

/// The address record of IPv4: 7 bytes.
const IPV4: u8 = 1;
/// The address record of IPv6: 19 bytes.
const IPV6: u8 = 2;

/// Where our mint time lies in the private part: in its last 16 bytes, which the standard fills with zeros and no
/// reader inspects. The largest standard content ends at byte 944, so the two never meet.
const MINT_MARK_OFFSET: usize = PRIVATE_TOKEN_PLAIN_BYTES - 16;
/// Says that a mint time follows.
const MINT_MARK: [u8; 8] = *b"sg-mint1";

/// One to 32 server addresses, in the order in which a client tries them. It lies in place, without an allocation.
#[derive(Clone)]
pub struct Servers {
    count: usize,
    addresses: [SocketAddr; MAX_SERVERS_PER_TOKEN],
}

const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl Servers {
    /// The list, or `None` if it is empty or longer than 32.
    #[must_use]
    pub fn new(addresses: &[SocketAddr]) -> Option<Self> {
        if addresses.is_empty() {
            return None;
        }
        let mut servers = Self { count: addresses.len(), addresses: [NO_ADDRESS; MAX_SERVERS_PER_TOKEN] };
        servers.addresses.get_mut(..addresses.len())?.copy_from_slice(addresses);
        Some(servers)
    }

    /// The addresses.
    #[must_use]
    pub fn as_slice(&self) -> &[SocketAddr] {
        self.addresses.get(..self.count).unwrap_or_default()
    }

    fn parse(reader: &mut Reader<'_>) -> Result<Self, LayoutError> {
        let count = reader.u32().ok_or(LayoutError::Length)?;
        let count = usize::try_from(count)
            .ok()
            .filter(|count| (1..=MAX_SERVERS_PER_TOKEN).contains(count))
            .ok_or(LayoutError::ServerCount)?;
        let mut servers = Self { count, addresses: [NO_ADDRESS; MAX_SERVERS_PER_TOKEN] };
        for address in servers.addresses.iter_mut().take(count) {
            *address = parse_address(reader)?;
        }
        Ok(servers)
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.u32(self.count as u32);
        for address in self.as_slice() {
            emit_address(*address, writer);
        }
    }
}

impl PartialEq for Servers {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Servers {}

impl core::fmt::Debug for Servers {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.as_slice().fmt(f)
    }
}

/// Reads one address record. IPv6 groups are little-endian each, first group first: not network order.
fn parse_address(reader: &mut Reader<'_>) -> Result<SocketAddr, LayoutError> {
    let ip: IpAddr = match reader.u8().ok_or(LayoutError::Length)? {
        IPV4 => Ipv4Addr::from(*reader.array::<4>().ok_or(LayoutError::Length)?).into(),
        IPV6 => {
            let mut groups = [0_u16; 8];
            for group in &mut groups {
                *group = reader.u16().ok_or(LayoutError::Length)?;
            }
            Ipv6Addr::from(groups).into()
        }
        _ => return Err(LayoutError::AddressType),
    };
    let port = reader.u16().ok_or(LayoutError::Length)?;
    Ok(SocketAddr::new(ip, port))
}

fn emit_address(address: SocketAddr, writer: &mut Writer<'_>) {
    match address.ip() {
        IpAddr::V4(ip) => {
            writer.u8(IPV4);
            writer.bytes(&ip.octets());
        }
        IpAddr::V6(ip) => {
            writer.u8(IPV6);
            for group in ip.segments() {
                writer.u16(group);
            }
        }
    }
    writer.u16(address.port());
}

/// Why bytes are not a connect token, or not the private part of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum LayoutError {
    /// Not 2048 bytes, or a field lies past the end.
    Length,
    /// The version is not `NETCODE 1.02`.
    Version,
    /// It was created after it expires.
    CreatedAfterExpiry,
    /// It lists no server, or more than 32.
    ServerCount,
    /// A server address is neither IPv4 (1) nor IPv6 (2).
    AddressType,
}

impl core::fmt::Display for LayoutError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Length => "a connect token is exactly 2048 bytes long",
            Self::Version => "this is not a connect token of protocol version NETCODE 1.02",
            Self::CreatedAfterExpiry => "the connect token was created after it expires",
            Self::ServerCount => "a connect token lists 1 to 32 server addresses",
            Self::AddressType => "the connect token lists an address that is neither IPv4 nor IPv6",
        })
    }
}

impl core::error::Error for LayoutError {}

/// The public face of a connect token: all that a client reads (§1.5).
///
/// It borrows keys and private part from the token's bytes, so that no copy of a key is left behind.
pub struct PublicLayout<'a> {
    /// The game.
    pub protocol_id: u64,
    /// When it was made.
    pub created: UnixSeconds,
    /// When it stops being accepted.
    pub expires: UnixSeconds,
    /// The nonce of the private part.
    pub nonce: &'a [u8; TOKEN_NONCE_BYTES],
    /// The sealed private part.
    pub sealed: &'a [u8; PRIVATE_TOKEN_BYTES],
    /// Seconds of silence after which the client gives up; negative: never.
    pub timeout_seconds: i32,
    /// The addresses to dial.
    pub servers: Servers,
    /// Seals what the client sends.
    pub client_to_server: &'a [u8; KEY_BYTES],
    /// Opens what the client receives.
    pub server_to_client: &'a [u8; KEY_BYTES],
}

impl<'a> PublicLayout<'a> {
    /// Reads a connect token, checking in the order of §1.5. Padding is not inspected.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, LayoutError> {
        if bytes.len() != CONNECT_TOKEN_BYTES {
            return Err(LayoutError::Length);
        }
        let mut reader = Reader::new(bytes);
        if reader.array() != Some(&VERSION) {
            return Err(LayoutError::Version);
        }
        let protocol_id = reader.u64().ok_or(LayoutError::Length)?;
        let created = UnixSeconds(reader.u64().ok_or(LayoutError::Length)?);
        let expires = UnixSeconds(reader.u64().ok_or(LayoutError::Length)?);
        if created > expires {
            return Err(LayoutError::CreatedAfterExpiry);
        }
        Ok(Self {
            protocol_id,
            created,
            expires,
            nonce: reader.array().ok_or(LayoutError::Length)?,
            sealed: reader.array().ok_or(LayoutError::Length)?,
            timeout_seconds: reader.i32().ok_or(LayoutError::Length)?,
            servers: Servers::parse(&mut reader)?,
            client_to_server: reader.array().ok_or(LayoutError::Length)?,
            server_to_client: reader.array().ok_or(LayoutError::Length)?,
        })
    }

    /// Writes the token.
    pub fn emit(&self, token: &mut [u8; CONNECT_TOKEN_BYTES]) {
        let mut writer = Writer::new(token);
        writer.bytes(&VERSION);
        writer.u64(self.protocol_id);
        writer.u64(self.created.0);
        writer.u64(self.expires.0);
        writer.bytes(self.nonce);
        writer.bytes(self.sealed);
        writer.i32(self.timeout_seconds);
        self.servers.emit(&mut writer);
        writer.bytes(self.client_to_server);
        writer.bytes(self.server_to_client);
        writer.zeros();
        debug_assert!(writer.written().is_some(), "32 addresses and two keys fit into 2048 bytes");
    }
}

/// The private part before sealing: what backend and server tell each other about a client (§1.4).
pub struct PrivateLayout<'a> {
    /// Who the client is.
    pub client_id: u64,
    /// Seconds of silence after which the server gives up; negative: never.
    pub timeout_seconds: i32,
    /// The servers that may accept it.
    pub servers: Servers,
    /// Opens what the server receives.
    pub client_to_server: &'a [u8; KEY_BYTES],
    /// Seals what the server sends.
    pub server_to_client: &'a [u8; KEY_BYTES],
    /// The application's own data.
    pub user_data: &'a [u8; USER_DATA_BYTES],
    /// When it was minted, if the issuer says so (ours does; see `specs/hardening.md`).
    pub minted: Option<UnixMillis>,
}

impl<'a> PrivateLayout<'a> {
    /// Reads an opened private part, checking in the order of §1.4. Padding is not inspected but for our mint mark.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse(plain: &'a [u8; PRIVATE_TOKEN_PLAIN_BYTES]) -> Result<Self, LayoutError> {
        let mut reader = Reader::new(plain);
        Ok(Self {
            client_id: reader.u64().ok_or(LayoutError::Length)?,
            timeout_seconds: reader.i32().ok_or(LayoutError::Length)?,
            servers: Servers::parse(&mut reader)?,
            client_to_server: reader.array().ok_or(LayoutError::Length)?,
            server_to_client: reader.array().ok_or(LayoutError::Length)?,
            user_data: reader.array().ok_or(LayoutError::Length)?,
            minted: parse_mint_time(plain),
        })
    }

    /// Writes the private part.
    pub fn emit(&self, plain: &mut [u8; PRIVATE_TOKEN_PLAIN_BYTES]) {
        let mut writer = Writer::new(plain);
        writer.u64(self.client_id);
        writer.i32(self.timeout_seconds);
        self.servers.emit(&mut writer);
        writer.bytes(self.client_to_server);
        writer.bytes(self.server_to_client);
        writer.bytes(self.user_data);
        writer.zeros();
        debug_assert!(writer.written().is_some(), "32 addresses, two keys and user data fit into 1008 bytes");
        if let (Some(minted), Some(mark)) = (self.minted, plain.get_mut(MINT_MARK_OFFSET..)) {
            let mut writer = Writer::new(mark);
            writer.bytes(&MINT_MARK);
            writer.u64(minted.0);
        }
    }
}

fn parse_mint_time(plain: &[u8; PRIVATE_TOKEN_PLAIN_BYTES]) -> Option<UnixMillis> {
    let mut reader = Reader::new(plain.get(MINT_MARK_OFFSET..)?);
    (reader.array()? == &MINT_MARK).then_some(())?;
    reader.u64().map(UnixMillis)
}
