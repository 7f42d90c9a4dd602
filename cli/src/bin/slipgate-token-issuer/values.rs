//! Values of the issuer's settings: addresses, servers, and the store of the registry.

use core::fmt;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};
use slipgate_token_issuer::AllowedNetwork;

/// Where the issuer listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum BindAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for BindAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("unix:") {
            Some(_) if cfg!(not(unix)) => Err("this system has no Unix sockets"),
            Some(path) if !path.is_empty() => Ok(Self::Unix(path.into())),
            _ => text.parse().map(Self::Tcp).map_err(|_| "an address is IP:PORT, or unix:PATH"),
        }
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The mode of the Unix socket, which decides about the users that may connect: in octal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SocketMode(pub(crate) u32);

impl SocketMode {
    /// Only the issuer's own user.
    pub(crate) const PRIVATE: Self = Self(0o600);
}

impl FromStr for SocketMode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_octal = text.len() >= 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
        mode.map(Self).ok_or("the mode of a socket is 0600 to 0777, in octal digits")
    }
}

/// An entry of the allow-list: an address, or a network with a range of ports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum AllowedServer {
    Address(SocketAddr),
    Network(AllowedNetwork),
}

impl FromStr for AllowedServer {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let network = || text.parse().map(Self::Network);
        text.parse().map(Self::Address).or_else(|_| network()).map_err(|_| {
            "a server is an address as 192.0.2.1:40000 or [2001:db8::1]:40000, or a network with ports as \
                 10.0.0.0/8:40000-40999 or [2001:db8::/32]:40000-40999"
        })
    }
}

/// The name of the registry's file, unless another one is configured.
const DEFAULT_FILE: &str = "registry.redb";

/// Where the registry is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RegistrySetting {
    Memory,
    File(PathBuf),
    /// The URL of Redis or Valkey.
    Redis(String),
}

/// A file in the state directory that systemd gives to the issuer, otherwise in the working directory.
impl Default for RegistrySetting {
    fn default() -> Self {
        let folders = std::env::var_os("STATE_DIRECTORY").unwrap_or_default();
        let folder = std::env::split_paths(&folders).next().unwrap_or_default();
        Self::File(folder.join(DEFAULT_FILE))
    }
}

impl fmt::Display for RegistrySetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::File(path) => path.display().fmt(f),
            Self::Redis(url) => f.write_str(url),
        }
    }
}

impl FromStr for RegistrySetting {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" => Err("the registry is `memory`, a file, or redis://HOST:PORT/DATABASE"),
            "memory" => Ok(Self::Memory),
            _ if text.starts_with("redis:") && text.contains('@') => {
                Err("the password of the registry must not be in its URL: give --registry-password-file")
            }
            _ if text.starts_with("redis:") => Ok(Self::Redis(text.to_owned())),
            _ if text.contains("://") => Err("the URL of the registry starts with redis://"),
            _ => Ok(Self::File(text.into())),
        }
    }
}

macro_rules! deserialize_from_str {
    ($($name:ty),*) => {
        $(impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        })*
    };
}

deserialize_from_str!(AllowedServer, BindAddress, RegistrySetting, SocketMode);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registry_is_memory_a_file_or_a_url_without_password() {
        assert_eq!("memory".parse(), Ok(RegistrySetting::Memory));
        assert_eq!("/var/lib/registry".parse(), Ok(RegistrySetting::File("/var/lib/registry".into())));
        let url = "redis://127.0.0.1:6379/0";
        assert_eq!(url.parse(), Ok(RegistrySetting::Redis(url.to_owned())));
        for wrong in ["", "redis://:secret@127.0.0.1", "http://127.0.0.1"] {
            assert!(!wrong.parse::<RegistrySetting>().unwrap_err().contains("secret@"), "{wrong}");
        }
    }

    #[test]
    fn issuer_listens_on_an_address_or_on_a_path() {
        assert_eq!("[::1]:1".parse(), Ok(BindAddress::Tcp("[::1]:1".parse().unwrap())));
        for wrong in ["", "unix:", "localhost:1", "/run/socket", "127.0.0.1"] {
            assert!(wrong.parse::<BindAddress>().is_err(), "{wrong}");
        }
        #[cfg(unix)]
        assert_eq!("unix:/run/a".parse::<BindAddress>().unwrap().to_string(), "unix:/run/a");
        assert_eq!("0660".parse(), Ok(SocketMode(0o660)));
        assert_eq!("600".parse(), Ok(SocketMode::PRIVATE));
        for wrong in ["", "6", "0o600", "+600", "0800", "1777", "rw"] {
            assert!(wrong.parse::<SocketMode>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn server_is_an_address_or_a_network_with_ports() {
        assert!(matches!("192.0.2.1:1".parse(), Ok(AllowedServer::Address(_))));
        assert!(matches!("10.0.0.0/8:1-2".parse(), Ok(AllowedServer::Network(_))));
        assert!(matches!("[2001:db8::1]:1".parse(), Ok(AllowedServer::Address(_))));
        assert!(matches!("[2001:db8::/32]:1-2".parse(), Ok(AllowedServer::Network(_))));
        // The length of the prefix belongs into the brackets: its place must be clear from the message.
        for wrong in ["game.example:1", "[2001:db8::]/32:1-2", "2001:db8::/32:1-2"] {
            let error = wrong.parse::<AllowedServer>().unwrap_err();
            assert!(error.contains("[2001:db8::/32]:40000-40999"), "{wrong}: {error}");
        }
    }
}
