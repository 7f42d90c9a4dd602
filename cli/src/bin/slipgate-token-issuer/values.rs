//! Values of the issuer's settings: servers, and the store of the registry.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};
use slipgate_token_issuer::AllowedNetwork;

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
        text.parse()
            .map(Self::Address)
            .or_else(|_| network())
            .map_err(|_| "a server is an address as 192.0.2.1:40000, or a network with ports as 10.0.0.0/8:40000-40999")
    }
}

/// Where the registry is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RegistrySetting {
    Memory,
    File(PathBuf),
    /// The URL of Redis or Valkey.
    Redis(String),
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

deserialize_from_str!(AllowedServer, RegistrySetting);

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
    fn server_is_an_address_or_a_network_with_ports() {
        assert!(matches!("192.0.2.1:1".parse(), Ok(AllowedServer::Address(_))));
        assert!(matches!("10.0.0.0/8:1-2".parse(), Ok(AllowedServer::Network(_))));
        assert!("game.example:1".parse::<AllowedServer>().is_err());
    }
}
