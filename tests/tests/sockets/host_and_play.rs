//! A player that hosts a game: a client and a server in one process, with only payloads between them.

use slipgate_client::{Client, ConnectError};
use slipgate_server::keys::Key;
use slipgate_server::{
    ChannelConfig, Clock, Event, Inbox, Kind, Layout, LoopbackError, MAX_PAYLOAD_BYTES, SendError, Server,
    ServerConfig, Sockets, Traffic,
};

fn server(traffic: Traffic) -> Server {
    let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
    let config = ServerConfig::new(77, 1, &[sockets.local_addresses()[0]]);
    Server::new(sockets, config, Key::from([7; 32]).into(), Clock::start().now())
        .unwrap()
        .with_traffic(traffic)
        .unwrap()
}

fn client(traffic: Traffic) -> Client {
    Client::new().unwrap().with_traffic(traffic).unwrap()
}

#[test]
fn hosting_player_exchanges_payloads_with_the_server() {
    let (mut server, mut client, mut inbox) = (server(Traffic::Payloads), client(Traffic::Payloads), Inbox::default());
    let host = server.connect_loopback(1, [0; 256]).unwrap();
    client.connect_loopback(host.slot().0, 1).unwrap();
    assert!(client.state().is_connected());
    server.client(host).unwrap().loopback_send(b"ping").unwrap();
    let mut received = Vec::new();
    while let Some(event) = inbox.next(&mut server) {
        if let Event::Payload { client, bytes, .. } = event {
            received.extend_from_slice(bytes);
            server.send(client, b"pong").unwrap();
        }
    }
    let mut buf = [0; MAX_PAYLOAD_BYTES];
    assert_eq!((&received[..], server.client(host).unwrap().loopback_receive(&mut buf)), (&b"ping"[..], Some(4)));
    assert_eq!(&buf[..4], b"pong");
    assert_eq!(server.connect_loopback(1, [0; 256]), Err(LoopbackError::ClientIdConnected));
    assert_eq!(server.connect_loopback(2, [0; 256]), Err(LoopbackError::Full));
}

#[test]
fn hosting_player_receives_the_last_payloads_after_the_end() {
    let (mut server, mut inbox) = (server(Traffic::Payloads), Inbox::default());
    let host = server.connect_loopback(1, [0; 256]).unwrap();
    server.send(host, b"last").unwrap();
    server.client(host).unwrap().disconnect().unwrap();
    let mut ended = 0;
    while let Some(event) = inbox.next(&mut server) {
        ended += u32::from(matches!(event, Event::Disconnected { client, .. } if client == host));
    }
    assert_eq!((ended, server.connected_count(), server.send(host, b"late")), (1, 0, Err(SendError::Gone)));
    let (mut client, mut buf) = (server.client(host).expect("a payload waits"), [0; MAX_PAYLOAD_BYTES]);
    assert_eq!((client.loopback_send(b"late"), client.address()), (Err(SendError::Gone), None));
    assert_eq!((client.loopback_receive(&mut buf), &buf[..4]), (Some(4), &b"last"[..]));
    assert!(server.client(host).is_none());
}

#[test]
fn in_process_client_with_channels_or_packets_is_an_error() {
    let layout = Layout::try_from(vec![ChannelConfig::from(Kind::ReliableOrdered)]).unwrap();
    for traffic in [Traffic::channels(layout), Traffic::packets()] {
        let (mut server, mut client) = (server(traffic.clone()), client(traffic));
        assert_eq!(server.connect_loopback(1, [0; 256]), Err(LoopbackError::WrongTraffic));
        assert_eq!(server.connected_count(), 0, "the client has no slot");
        assert_eq!(client.connect_loopback(0, 1), Err(ConnectError::WrongTraffic));
        assert!(!client.state().is_connected());
    }
}
