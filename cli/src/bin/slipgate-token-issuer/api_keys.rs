//! The accepted API keys: digests of keys without a name, and named keys with scopes.

use slipgate_cli::Failure;
use slipgate_token_issuer::api_key::{ApiKeyDigest, ApiKeyError};
use slipgate_token_issuer::callers::{ApiKeys, Caller, Permission, Scopes};
use slipgate_token_issuer::registry::RegistryName;

use crate::config_file::{NamedKey, PermissionName};

/// Parses the digests. An error names the position of the wrong entry and never quotes it: it may be the key itself.
pub(crate) fn read(digests: &[String], named: Vec<NamedKey>) -> Result<ApiKeys, Failure> {
    let unnamed = parse(digests, "--api-key-digest")?;
    let named = named.into_iter().map(read_named).collect::<Result<Vec<_>, _>>()?;
    ApiKeys::with_named(unnamed, named).map_err(|error| {
        let remedy = match error {
            ApiKeyError::Count(0) => ": `slipgate keygen --bearer` creates a key and its --api-key-digest",
            _ => "",
        };
        Failure::usage(format!("{error}{remedy}"))
    })
}

fn parse(digests: &[String], setting: &str) -> Result<Vec<ApiKeyDigest>, Failure> {
    let parse = |(digest, number): (&String, usize)| {
        let digest = digest.trim().parse();
        digest.map_err(|error| Failure::usage(format!("{setting}, entry {number}: {error}")))
    };
    digests.iter().zip(1..).map(parse).collect()
}

fn read_named(key: NamedKey) -> Result<Caller, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::usage(format!("api_keys: {error}"));
    let id: RegistryName = key.id.parse().map_err(|error| wrong(&error))?;
    let digests = parse(&Vec::from(key.digests), &format!("api_keys, `{id}`"))?;
    let groups = key.groups.map(|groups| groups.iter().map(|group| group.parse()).collect::<Result<Vec<_>, _>>());
    let permissions = key.permissions.unwrap_or_else(|| vec![PermissionName::Mint]);
    let scopes = Scopes {
        permissions: permissions.into_iter().map(Permission::from).collect(),
        groups: groups.transpose().map_err(|error| wrong(&error))?,
        protocol_ids: key.protocol_ids.map(|ids| ids.into_iter().map(|id| id.0).collect()),
        names_client_id: key.names_client_id.unwrap_or(true),
    };
    let limit = key.requests_per_minute.map(|requests| {
        requests.try_into().map_err(|_| wrong(&format!("`{id}`: requests_per_minute must be at least 1")))
    });
    Caller::new(&id, digests, scopes, limit.transpose()?).map_err(|error| wrong(&format!("`{id}`: {error}")))
}

impl From<PermissionName> for Permission {
    fn from(name: PermissionName) -> Self {
        match name {
            PermissionName::Mint => Self::Mint,
            PermissionName::Register => Self::Register,
            PermissionName::Observe => Self::Observe,
        }
    }
}
