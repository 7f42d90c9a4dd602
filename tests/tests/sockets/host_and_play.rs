//! The player who hosts a game: a client and a server in one program, with payloads between them and nothing else.

use slipgate_client::{Client, ConnectError};
use slipgate_server::{
    ChannelConfig, Clock, Config, Event, Inbox, Key, Kind, Layout, LoopbackError, MAX_PAYLOAD_BYTES, Server, Sockets,
    Traffic,
};

fn server(traffic: Traffic) -> Server {
    let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
    let config = Config::new(77, 1, vec![sockets.local_addresses()[0].into()]);
    Server::new(sockets, config, Key::from_bytes([7; 32]).into(), Clock::start().now())
        .unwrap()
        .carrying(traffic)
        .unwrap()
}

fn client(traffic: Traffic) -> Client {
    Client::new().unwrap().carrying(traffic).unwrap()
}

#[test]
fn the_player_who_hosts_exchanges_payloads_with_the_server() {
    let (mut server, mut client, mut inbox) = (server(Traffic::Payloads), client(Traffic::Payloads), Inbox::default());
    let host = server.connect_loopback(1, [0; 256]).unwrap();
    client.connect_loopback(host.slot(), 1).unwrap();
    assert!(client.state().is_connected());
    server.loopback_send(host, b"ping").unwrap();
    let mut heard = Vec::new();
    while let Some(event) = inbox.next(&mut server) {
        if let Event::Payload { client, bytes, .. } = event {
            heard.extend_from_slice(bytes);
            server.send(client, b"pong").unwrap();
        }
    }
    let mut room = [0; MAX_PAYLOAD_BYTES];
    assert_eq!((&heard[..], server.loopback_receive(host, &mut room)), (&b"ping"[..], Some(4)));
    assert_eq!(&room[..4], b"pong");
    assert_eq!(server.connect_loopback(1, [0; 256]), Err(LoopbackError::ClientIdConnected));
    assert_eq!(server.connect_loopback(2, [0; 256]), Err(LoopbackError::Full));
}

#[test]
fn who_hosts_with_channels_or_packets_is_told_that_no_connection_within_the_program_carries_them() {
    let layout = Layout::new(vec![ChannelConfig::new(Kind::ReliableOrdered)]).unwrap();
    for traffic in [Traffic::channels(layout), Traffic::packets()] {
        let (mut server, mut client) = (server(traffic.clone()), client(traffic));
        assert_eq!(server.connect_loopback(1, [0; 256]), Err(LoopbackError::WrongTraffic));
        assert_eq!(server.connected(), 0, "it has no slot");
        assert_eq!(client.connect_loopback(0, 1), Err(ConnectError::WrongTraffic));
        assert!(!client.state().is_connected());
    }
}
