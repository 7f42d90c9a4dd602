//! The protocol without sockets: test vectors, other implementations, and worlds in virtual time.

mod ack_checks;
mod acknowledged;
mod channel_worlds;
mod client_floods;
mod clients;
mod close_reasons;
mod connection_seeds;
mod connection_worlds;
mod connections;
mod disconnect_table;
mod false_acks;
mod floods;
mod game_state;
mod handshake;
mod hashing;
mod hostile_acknowledgements;
mod hostile_mixes;
mod hostile_servers;
mod idle;
mod interop_netcode_official;
mod interop_reliable;
mod interop_renetcode;
mod lockout;
mod long_paths;
mod malicious_peers;
mod memory;
mod missing_acks;
mod mixed_traffic;
mod netcode_official;
mod redirects;
mod reliable_exchange;
mod restart;
mod server_reports;
mod sessions;
mod slow_paths;
mod slow_transfers;
mod takeover;
mod tokens;
mod transfers;
mod typed_messages;
mod uplink;
mod vectors_channels;
mod vectors_packets;
mod vectors_reliable;
mod vectors_replay;
mod vectors_server_decisions;
mod vectors_session;
mod vectors_sessions;
mod vectors_tokens;
mod wakeups;
mod world_checks;

use slipgate_tests::counting::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
