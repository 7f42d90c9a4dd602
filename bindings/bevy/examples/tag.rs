//! A client of the game of tag as a Bevy app, see `tag_server.rs` of the project: each player is an entity. It draws
//! the grid in a terminal.
//!
//! ```console
//! $ cargo run --example tag -- 127.0.0.1:40000 6 Faye
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::io::IsTerminal;
use std::time::Duration;

use bevy_app::{App, AppExit, ScheduleRunnerPlugin, Update};
use bevy_ecs::prelude::*;
use bevy_slipgate::{ClientEnded, ServerMessage, SlipgateClient, SlipgateClientPlugin, client_connected};
use serde::{Deserialize, Serialize};
use slipgate::client::{Client, ConnectToken, decode};
use slipgate::{Channel, ChannelId, Layout, Traffic};
use slipgate_token_issuer::{Issuer, Key, Limits, TokenRequest, system_entropy, wall_clock};

/// The game's id and key: as in `tag/mod.rs`, and only for development.
const PROTOCOL_ID: u64 = 0x7461_6721;
const DEVELOPMENT_KEY: [u8; 32] = *b"a key that every player may have";
const TICK: Duration = Duration::from_millis(50);
const GRID: i8 = 16;

const STEPS: ChannelId = ChannelId(0);
const STATE: ChannelId = ChannelId(1);
const NEWS: ChannelId = ChannelId(2);

#[derive(Serialize, Deserialize)]
struct Step(i8, i8);

/// The state of the game as the server sends it.
#[derive(Deserialize)]
struct GameState {
    it: u64,
    fields: BTreeMap<u64, (i8, i8)>,
}

/// A player on the grid.
#[derive(Component)]
struct PlayerId(u64);

#[derive(Component, Clone, Copy)]
struct Field(i8, i8);

/// This player, and the one that is "it".
#[derive(Resource)]
struct Roles {
    me: u64,
    it: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, id, name] = arguments.as_slice() else { return Err("usage: tag ADDRESS ID NAME".into()) };
    let me = id.parse()?;
    let mut client = SlipgateClient::new(Client::new()?.with_traffic(traffic()?)?);
    client.connect(mint(address, me, name)?)?;
    let mut app = App::new();
    app.add_plugins((ScheduleRunnerPlugin::run_loop(TICK), SlipgateClientPlugin { copy_messages: true }));
    app.insert_resource(client).insert_resource(Roles { me, it: 0 });
    app.add_systems(Update, (read_messages, step.run_if(client_connected), end).chain());
    if std::io::stdout().is_terminal() {
        app.add_systems(Update, draw.after(read_messages));
    }
    app.run();
    Ok(())
}

fn traffic() -> Result<Traffic, Box<dyn Error>> {
    let mut layout = Layout::builder();
    layout.version = 1;
    layout.add(Channel::sequenced("steps"));
    layout.add(Channel::sequenced("state").newest_only());
    layout.add(Channel::reliable_ordered("news"));
    Ok(Traffic::channels(layout.build()?))
}

/// Mints a connect token, which the backend of a real game does.
fn mint(address: &str, id: u64, name: &str) -> Result<ConnectToken, Box<dyn Error>> {
    let key = Key::from(DEVELOPMENT_KEY).into();
    let issuer = Issuer::new(PROTOCOL_ID, key, &[address.parse()?], Limits::default())?;
    let request = TokenRequest { user_data: name.into(), ..TokenRequest::new(id) };
    Ok(issuer.mint(&request, wall_clock(), &mut system_entropy()?)?.token)
}

/// Moves the entities of the players to where the newest state has them.
fn read_messages(
    mut commands: Commands,
    mut messages: MessageReader<ServerMessage>,
    mut roles: ResMut<Roles>,
    mut players: Query<(Entity, &PlayerId, &mut Field)>,
) {
    let mut newest = None;
    for message in messages.read() {
        match message.channel {
            STATE => newest = decode::<GameState>(STATE, &message.bytes).ok(),
            NEWS => println!("{}", String::from_utf8_lossy(&message.bytes)),
            _ => {}
        }
    }
    let Some(GameState { it, mut fields }) = newest else { return };
    roles.it = it;
    for (entity, id, mut field) in &mut players {
        match fields.remove(&id.0) {
            Some((x, y)) => *field = Field(x, y),
            None => commands.entity(entity).despawn(),
        }
    }
    for (id, (x, y)) in fields {
        commands.spawn((PlayerId(id), Field(x, y)));
    }
}

/// Chases the nearest player when this one is "it", and otherwise flees from the player that is.
fn step(mut client: ResMut<SlipgateClient>, roles: Res<Roles>, players: Query<(&PlayerId, &Field)>) {
    let Some((_, Field(x, y))) = players.iter().find(|(id, _)| id.0 == roles.me) else { return };
    let is_it = roles.it == roles.me;
    let others = players.iter().filter(|(id, _)| if is_it { id.0 != roles.me } else { id.0 == roles.it });
    let distance = |field: &&Field| (field.0 - x).abs().max((field.1 - y).abs());
    let Some(Field(to_x, to_y)) = others.map(|(_, field)| field).min_by_key(distance) else { return };
    let step = |from: i8, to: i8| if is_it { (to - from).signum() } else { 1 - 2 * i8::from(to > from) };
    // If it is refused, the next step is newer.
    let _ = client.client().send_typed(STEPS, &Step(step(*x, *to_x), step(*y, *to_y)));
}

fn end(mut ended: MessageReader<ClientEnded>, mut exit: MessageWriter<AppExit>) {
    for ClientEnded { reason } in ended.read() {
        println!("{reason}");
        exit.write(AppExit::Success);
    }
}

/// Draws the grid: `@` is this player, `#` the one that is "it".
fn draw(roles: Res<Roles>, players: Query<(&PlayerId, &Field)>) {
    // Moves the cursor to the top left corner.
    print!("\x1b[H");
    for y in 0..GRID {
        for x in 0..GRID {
            let player = players.iter().find(|(_, field)| (field.0, field.1) == (x, y));
            print!(
                "{}",
                match player {
                    Some((id, _)) if id.0 == roles.it => '#',
                    Some((id, _)) if id.0 == roles.me => '@',
                    Some(_) => 'o',
                    None => '.',
                }
            );
        }
        println!();
    }
}
