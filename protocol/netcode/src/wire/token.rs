//! The layouts of a connect token: its public fields, and its private part before sealing (§1.4, §1.5).
//!
//! [`token`](crate::token) issues and redeems tokens.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::ops::Deref;

use super::cursor::{Reader, Writer};
use super::{
    CONNECT_TOKEN_BYTES, KEY_BYTES, MAX_SERVERS_PER_TOKEN, PRIVATE_TOKEN_BYTES, PRIVATE_TOKEN_PLAIN_BYTES,
    TOKEN_NONCE_BYTES, USER_DATA_BYTES, VERSION,
};
use crate::ids::ClientId;
use crate::time::{UnixMillis, UnixSeconds};

/// The type of an IPv4 address record, 7 bytes long.
const IPV4: u8 = 1;
/// The type of an IPv6 address record, 19 bytes long.
const IPV6: u8 = 2;

/// The offset of Slipgate's mint time in the private part: its last 16 bytes, which the standard fills with zeros and
/// no parser inspects. The largest standard content ends at byte 944, so they never overlap.
const MINT_MARK_OFFSET: usize = PRIVATE_TOKEN_PLAIN_BYTES - 16;
/// The mark before a mint time.
const MINT_MARK: [u8; 8] = *b"sg-mint1";

/// One to 32 server addresses, in the order in which a client tries them. They are stored inline, without an
/// allocation.
#[derive(Clone)]
pub struct Servers {
    count: usize,
    addresses: [SocketAddr; MAX_SERVERS_PER_TOKEN],
}

const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl Servers {
    /// Returns the list, or `None` unless it has 1 to 32 addresses.
    #[must_use]
    pub fn new(addresses: &[SocketAddr]) -> Option<Self> {
        if addresses.is_empty() {
            return None;
        }
        let mut servers = Self { count: addresses.len(), addresses: [NO_ADDRESS; MAX_SERVERS_PER_TOKEN] };
        // A longer list than 32 is refused here, by the missing range.
        servers.addresses.get_mut(..addresses.len())?.copy_from_slice(addresses);
        Some(servers)
    }

    fn parse(reader: &mut Reader<'_>) -> Result<Self, TokenLayoutError> {
        let count = reader.read::<u32>().ok_or(TokenLayoutError::Length)?;
        let count = usize::try_from(count)
            .ok()
            .filter(|count| (1..=MAX_SERVERS_PER_TOKEN).contains(count))
            .ok_or(TokenLayoutError::ServerCount)?;
        // The count was checked against 1..=32 before any address is parsed.
        let mut servers = Self { count, addresses: [NO_ADDRESS; MAX_SERVERS_PER_TOKEN] };
        for address in servers.addresses.iter_mut().take(count) {
            *address = parse_address(reader)?;
        }
        Ok(servers)
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.write::<u32>(self.count as u32);
        for address in self.iter() {
            emit_address(*address, writer);
        }
    }
}

impl Deref for Servers {
    type Target = [SocketAddr];

    /// Returns the addresses.
    fn deref(&self) -> &[SocketAddr] {
        // `count` is 1 to 32 in every list, so the range exists.
        self.addresses.get(..self.count).unwrap_or_default()
    }
}

impl PartialEq for Servers {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Servers {}

impl core::fmt::Debug for Servers {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self[..].fmt(f)
    }
}

/// Parses one address record. Each IPv6 group is little-endian, unlike in network byte order. The first group comes
/// first.
fn parse_address(reader: &mut Reader<'_>) -> Result<SocketAddr, TokenLayoutError> {
    let ip: IpAddr = match reader.read::<u8>().ok_or(TokenLayoutError::Length)? {
        // The four bytes are in network byte order, as in the reference.
        IPV4 => Ipv4Addr::from(*reader.array::<4>().ok_or(TokenLayoutError::Length)?).into(),
        IPV6 => {
            let mut groups = [0_u16; 8];
            for group in &mut groups {
                *group = reader.read::<u16>().ok_or(TokenLayoutError::Length)?;
            }
            Ipv6Addr::from(groups).into()
        }
        _ => return Err(TokenLayoutError::AddressType),
    };
    let port = reader.read::<u16>().ok_or(TokenLayoutError::Length)?;
    Ok(SocketAddr::new(ip, port))
}

fn emit_address(address: SocketAddr, writer: &mut Writer<'_>) {
    match address.ip() {
        IpAddr::V4(ip) => {
            writer.write::<u8>(IPV4);
            writer.bytes(&ip.octets());
        }
        IpAddr::V6(ip) => {
            writer.write::<u8>(IPV6);
            // Little-endian groups (§1.5), while `octets` would give network byte order.
            for group in ip.segments() {
                writer.write::<u16>(group);
            }
        }
    }
    writer.write::<u16>(address.port());
}

/// Why bytes are not a connect token, or not the private part of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum TokenLayoutError {
    /// The token is not 2048 bytes long, or a field is past the end.
    Length,
    /// The version is not `NETCODE 1.02`.
    Version,
    /// The token was created after it expires.
    CreatedAfterExpiry,
    /// The token lists no server, or more than 32.
    ServerCount,
    /// A server address is neither IPv4 (type 1) nor IPv6 (type 2).
    AddressType,
}

impl core::fmt::Display for TokenLayoutError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Length => "a connect token must be exactly 2048 bytes long",
            Self::Version => "this is not a connect token of protocol version NETCODE 1.02",
            Self::CreatedAfterExpiry => "the connect token was created after it expires",
            Self::ServerCount => "a connect token lists 1 to 32 server addresses",
            Self::AddressType => "the connect token lists an address that is neither IPv4 nor IPv6",
        })
    }
}

impl core::error::Error for TokenLayoutError {}

/// The public fields of a connect token, which a client reads (§1.5).
///
/// Keys and private part borrow the token's bytes, so that no unwiped copy of a key is left behind.
pub struct PublicLayout<'a> {
    /// The id of the game.
    pub protocol_id: u64,
    /// The second in which the token was made.
    pub created: UnixSeconds,
    /// The second from which on the token is refused.
    pub expires: UnixSeconds,
    /// The nonce of the private part.
    pub nonce: &'a [u8; TOKEN_NONCE_BYTES],
    /// The sealed private part.
    pub sealed: &'a [u8; PRIVATE_TOKEN_BYTES],
    /// The seconds of silence after which the client ends the connection. A negative value disables the timeout.
    pub timeout_seconds: i32,
    /// The addresses to dial.
    pub servers: Servers,
    /// The key of the packets from the client.
    pub client_to_server: &'a [u8; KEY_BYTES],
    /// The key of the packets to the client.
    pub server_to_client: &'a [u8; KEY_BYTES],
}

impl<'a> PublicLayout<'a> {
    /// Parses a connect token. The checks have the order of §1.5, and padding is ignored.
    ///
    /// # Errors
    /// - `Length` when `bytes` are not 2048, or a field is past the end.
    /// - `Version` when the version is not `NETCODE 1.02`.
    /// - `CreatedAfterExpiry` when the token expires before its creation.
    /// - `ServerCount` unless it lists 1 to 32 servers.
    /// - `AddressType` when an address is neither IPv4 nor IPv6.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, TokenLayoutError> {
        if bytes.len() != CONNECT_TOKEN_BYTES {
            return Err(TokenLayoutError::Length);
        }
        let mut reader = Reader::new(bytes);
        if reader.array() != Some(&VERSION) {
            return Err(TokenLayoutError::Version);
        }
        let protocol_id = reader.read::<u64>().ok_or(TokenLayoutError::Length)?;
        let created = UnixSeconds(reader.read::<u64>().ok_or(TokenLayoutError::Length)?);
        let expires = UnixSeconds(reader.read::<u64>().ok_or(TokenLayoutError::Length)?);
        // Equal times are permitted: such a token is valid, but expired at once.
        if created > expires {
            return Err(TokenLayoutError::CreatedAfterExpiry);
        }
        Ok(Self {
            protocol_id,
            created,
            expires,
            nonce: reader.array().ok_or(TokenLayoutError::Length)?,
            sealed: reader.array().ok_or(TokenLayoutError::Length)?,
            timeout_seconds: reader.read::<u32>().map(u32::cast_signed).ok_or(TokenLayoutError::Length)?,
            servers: Servers::parse(&mut reader)?,
            client_to_server: reader.array().ok_or(TokenLayoutError::Length)?,
            server_to_client: reader.array().ok_or(TokenLayoutError::Length)?,
        })
    }

    /// Writes the token and fills the padding with zeros.
    pub fn emit(&self, token: &mut [u8; CONNECT_TOKEN_BYTES]) {
        let mut writer = Writer::new(token);
        writer.bytes(&VERSION);
        writer.write::<u64>(self.protocol_id);
        writer.write::<u64>(self.created.0);
        writer.write::<u64>(self.expires.0);
        // The nonce is public: the server needs it to open the sealed part.
        writer.bytes(self.nonce);
        writer.bytes(self.sealed);
        writer.write::<u32>(self.timeout_seconds.cast_unsigned());
        self.servers.emit(&mut writer);
        writer.bytes(self.client_to_server);
        writer.bytes(self.server_to_client);
        writer.zeros();
        debug_assert!(writer.written().is_some(), "32 addresses and two keys fit into 2048 bytes");
    }
}

/// The private part before sealing: the backend's data about a client for the server (§1.4).
pub struct PrivateLayout<'a> {
    /// The client's id.
    pub client_id: ClientId,
    /// The seconds of silence after which the server ends the connection. A negative value disables the timeout.
    pub timeout_seconds: i32,
    /// The servers that may accept the token.
    pub servers: Servers,
    /// The key of the packets from the client.
    pub client_to_server: &'a [u8; KEY_BYTES],
    /// The key of the packets to the client.
    pub server_to_client: &'a [u8; KEY_BYTES],
    /// The application's own data.
    pub user_data: &'a [u8; USER_DATA_BYTES],
    /// The mint time, if the issuer wrote one. Slipgate's issuer does (see `specs/hardening.md`).
    pub minted: Option<UnixMillis>,
}

impl<'a> PrivateLayout<'a> {
    /// Parses an opened private part. The checks have the order of §1.4. Padding is ignored except for the mint mark.
    ///
    /// # Errors
    /// - `Length` when a field is past the end.
    /// - `ServerCount` unless it lists 1 to 32 servers.
    /// - `AddressType` when an address is neither IPv4 nor IPv6.
    pub fn parse(plain: &'a [u8; PRIVATE_TOKEN_PLAIN_BYTES]) -> Result<Self, TokenLayoutError> {
        let mut reader = Reader::new(plain);
        Ok(Self {
            client_id: ClientId(reader.read::<u64>().ok_or(TokenLayoutError::Length)?),
            timeout_seconds: reader.read::<u32>().map(u32::cast_signed).ok_or(TokenLayoutError::Length)?,
            servers: Servers::parse(&mut reader)?,
            client_to_server: reader.array().ok_or(TokenLayoutError::Length)?,
            server_to_client: reader.array().ok_or(TokenLayoutError::Length)?,
            user_data: reader.array().ok_or(TokenLayoutError::Length)?,
            // After the checks of the standard, and never a reason to refuse a token.
            minted: parse_mint_time(plain),
        })
    }

    /// Writes the private part and fills the padding with zeros, except for the mint mark.
    pub fn emit(&self, plain: &mut [u8; PRIVATE_TOKEN_PLAIN_BYTES]) {
        let mut writer = Writer::new(plain);
        writer.write::<u64>(self.client_id.0);
        writer.write::<u32>(self.timeout_seconds.cast_unsigned());
        self.servers.emit(&mut writer);
        writer.bytes(self.client_to_server);
        writer.bytes(self.server_to_client);
        writer.bytes(self.user_data);
        writer.zeros();
        debug_assert!(writer.written().is_some(), "32 addresses, two keys and user data fit into 1008 bytes");
        // Written last, over the zeros: the mark is in the padding.
        if let (Some(minted), Some(mark)) = (self.minted, plain.get_mut(MINT_MARK_OFFSET..)) {
            let mut writer = Writer::new(mark);
            writer.bytes(&MINT_MARK);
            writer.write::<u64>(minted.0);
        }
    }
}

fn parse_mint_time(plain: &[u8; PRIVATE_TOKEN_PLAIN_BYTES]) -> Option<UnixMillis> {
    let mut reader = Reader::new(plain.get(MINT_MARK_OFFSET..)?);
    // A token of another issuer has zeros here.
    (reader.array()? == &MINT_MARK).then_some(())?;
    reader.read::<u64>().map(UnixMillis)
}
