//! The flags of a group of registered servers, for tools that request tokens of an issuer.

use std::net::SocketAddr;

use clap::Args;
use slipgate_cli::values::ProtocolId;
use slipgate_client::fetch::FetchRequest;

#[derive(Args, Clone, Default)]
pub(crate) struct GroupFlags {
    /// Request tokens for this group of servers that register with the issuer, instead of addresses
    #[arg(long, value_name = "NAME", requires = "issuer", conflicts_with = "server")]
    pub(crate) group: Option<String>,

    /// Preferred region of the group; may be repeated, the best one first [default: none]
    #[arg(long, value_name = "NAME", requires = "group", conflicts_with = "server")]
    pub(crate) region: Vec<String>,
}

impl GroupFlags {
    /// Returns the request for a token of this group or for these servers, without a client id.
    pub(crate) fn request(&self, servers: Vec<SocketAddr>, protocol_id: Option<ProtocolId>) -> FetchRequest {
        FetchRequest {
            servers: Some(servers).filter(|servers| !servers.is_empty()),
            group: self.group.clone(),
            regions: self.region.clone(),
            protocol_id: protocol_id.map(|id| id.0),
            ..FetchRequest::default()
        }
    }
}
