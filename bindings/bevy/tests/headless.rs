//! A client and a server, each in a headless app of 600 updates.

use bevy_app::{App, Update};
use bevy_ecs::prelude::*;
use bevy_slipgate::*;
use slipgate::client::{Client, CloseKind, ConnectToken, Event};
use slipgate::server::keys::Key;
use slipgate::server::{Clock, Server, ServerConfig, Sockets};
use slipgate::{Channel, ChannelId, Layout, Traffic};
use slipgate_token_issuer::{Issuer, Limits, TokenRequest, system_entropy, wall_clock};

const CHAT: ChannelId = ChannelId(0);
const UPDATES: u32 = 600;
const PROTOCOL_ID: u64 = 7;

fn traffic() -> Traffic {
    let mut layout = Layout::builder();
    layout.add(Channel::reliable_ordered("chat"));
    Traffic::channels(layout.build().unwrap())
}

/// What the client's systems have seen.
#[derive(Resource, Default)]
struct Seen {
    echoes: Vec<u32>,
    sent: u32,
    frames_connected: u32,
    times_connected: u32,
    times_ended: u32,
    times_redirected: u32,
    ended: Option<CloseKind>,
}

/// Starts a server, and returns it with a token of a client for it.
fn start_server() -> (SlipgateServer, ConnectToken) {
    let key = Key::from([7; 32]);
    let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
    let (addresses, clock) = (sockets.local_addresses(), Clock::start());
    let config = ServerConfig::new(PROTOCOL_ID, 4, &addresses);
    let server = Server::new(sockets, config, key.clone().into(), clock.now()).unwrap();
    let server = server.with_traffic(traffic()).unwrap();
    let issuer = Issuer::new(PROTOCOL_ID, key.into(), &addresses, Limits::default()).unwrap();
    // Tokens of the server's first millisecond may count as older than it.
    std::thread::sleep(std::time::Duration::from_millis(5));
    let minted = issuer.mint(&TokenRequest::new(5), wall_clock(), &mut system_entropy().unwrap()).unwrap();
    (SlipgateServer::new(server, clock), minted.token)
}

/// Starts both apps. `copies` says whether the plugins copy the messages.
fn start(copies: bool) -> (App, App) {
    let (server, token) = start_server();
    let mut client = SlipgateClient::new(Client::new().unwrap().with_traffic(traffic()).unwrap());
    client.connect(token).unwrap();

    let mut app = App::new();
    app.add_plugins(SlipgateClientPlugin { copy_messages: copies }).insert_resource(client);
    app.init_resource::<Seen>();
    app.add_systems(Update, (send.run_if(client_connected), count.run_if(client_just_connected)));
    app.add_systems(Update, ended.run_if(client_just_ended));
    if copies {
        app.add_systems(Update, read_copies);
    } else {
        app.add_systems(Update, read_lent.before(send));
    }
    (app, server_app(server, copies))
}

/// Returns the app of a server that returns all messages.
fn server_app(server: SlipgateServer, copies: bool) -> App {
    let mut app = App::new();
    app.add_plugins(SlipgateServerPlugin { copy_messages: copies }).insert_resource(server);
    if copies {
        app.add_systems(Update, echo_copies.run_if(server_running));
    } else {
        app.add_systems(Update, echo_lent.run_if(server_running));
    }
    app
}

fn send(mut client: ResMut<SlipgateClient>, mut seen: ResMut<Seen>) {
    seen.frames_connected += 1;
    let number = seen.sent;
    if client.client().send_message(CHAT, &number.to_le_bytes()).is_ok() {
        seen.sent += 1;
    }
}

fn count(mut seen: ResMut<Seen>) {
    seen.times_connected += 1;
}

fn ended(mut seen: ResMut<Seen>) {
    seen.times_ended += 1;
}

fn read_lent(mut client: ResMut<SlipgateClient>, mut seen: ResMut<Seen>) {
    while let Some(event) = client.next_event() {
        match event {
            Event::Message { bytes, .. } => seen.echoes.push(u32::from_le_bytes(bytes.try_into().unwrap())),
            Event::Ended { reason } => seen.ended = Some(reason.kind),
            Event::Redirected { .. } => seen.times_redirected += 1,
            _ => {}
        }
    }
}

fn read_copies(
    mut messages: MessageReader<ServerMessage>,
    mut ends: MessageReader<ClientEnded>,
    mut redirects: MessageReader<ClientRedirected>,
    mut seen: ResMut<Seen>,
) {
    for message in messages.read() {
        seen.echoes.push(u32::from_le_bytes(message.bytes.as_slice().try_into().unwrap()));
    }
    for end in ends.read() {
        seen.ended = Some(end.reason.kind);
    }
    seen.times_redirected += redirects.read().count() as u32;
}

fn echo_lent(mut server: ResMut<SlipgateServer>) {
    let mut replies = Vec::new();
    while let Some(event) = server.next_event() {
        if let slipgate::server::Event::Message { client, channel, bytes, .. } = event {
            replies.push((client, channel, bytes.to_vec()));
        }
    }
    for (client, channel, bytes) in replies {
        server.server().send_message(client, channel, &bytes).unwrap();
    }
}

fn echo_copies(mut server: ResMut<SlipgateServer>, mut messages: MessageReader<ClientMessage>) {
    for message in messages.read() {
        server.server().send_message(message.client, message.channel, &message.bytes).unwrap();
    }
}

fn runs_600_updates(copies: bool) {
    let (mut client, mut server) = start(copies);
    for update in 0..UPDATES {
        client.update();
        server.update();
        std::thread::sleep(std::time::Duration::from_millis(2));
        if update == UPDATES - 100 {
            server.world_mut().resource_mut::<SlipgateServer>().server().stop("until tomorrow");
        }
    }
    let seen = client.world().resource::<Seen>();
    assert!(seen.frames_connected > 100, "{} frames", seen.frames_connected);
    assert!(seen.echoes.len() > 100, "{} echoes", seen.echoes.len());
    // Each message has returned once, in order.
    assert!(seen.echoes.iter().copied().eq(0..seen.echoes.len() as u32));
    assert_eq!((seen.times_connected, seen.times_ended), (1, 1));
    assert_eq!(seen.ended, Some(CloseKind::ServerStopped));
}

#[test]
fn lent_messages_return_within_600_updates() {
    runs_600_updates(false);
}

#[test]
fn copied_messages_return_within_600_updates() {
    runs_600_updates(true);
}

fn follows_a_redirect(copies: bool) {
    let (mut client, mut first) = start(copies);
    let (second, token) = start_server();
    let mut second = server_app(second, copies);
    let mut token = Some(token);
    for _ in 0..UPDATES {
        for app in [&mut client, &mut first, &mut second] {
            app.update();
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
        if client.world().resource::<Seen>().echoes.len() > 10
            && let Some(token) = token.take()
        {
            let mut server = first.world_mut().resource_mut::<SlipgateServer>();
            let id = server.server().clients().next().unwrap();
            server.server().client(id).unwrap().redirect(token, "the other server").unwrap();
        }
        if client.world().resource::<Seen>().times_connected == 2 {
            break;
        }
    }
    let seen = client.world().resource::<Seen>();
    assert_eq!((seen.times_connected, seen.times_redirected, seen.times_ended), (2, 1, 0));
    let connected = second.world_mut().resource_mut::<SlipgateServer>().server().connected_count();
    assert_eq!((connected, seen.ended), (1, None));
}

#[test]
fn client_follows_a_redirect() {
    follows_a_redirect(false);
    follows_a_redirect(true);
}
