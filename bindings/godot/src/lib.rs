//! A Godot extension: the node `SlipgateClient` runs a client's turn in each frame and emits signals.

use godot::prelude::*;
use slipgate::client::{Client, Clock, CloseCode, ConnectToken, Event, Inbox};
use slipgate::{Channel, ChannelId, Layout, Traffic};

struct SlipgateExtension;

// SAFETY: the entry point is what the macro generates, once in this library.
#[gdextension]
unsafe impl ExtensionLibrary for SlipgateExtension {}

/// A client. Add its channels, then connect.
#[derive(GodotClass)]
#[class(init, base = Node)]
struct SlipgateClient {
    base: Base<Node>,
    /// The channels that were added: kind and name.
    channels: Vec<(i64, String)>,
    open: Option<OpenClient>,
}

struct OpenClient {
    client: Client,
    inbox: Inbox,
    clock: Clock,
}

/// Something to emit after the turn, when the client is no longer borrowed.
enum Emitted {
    Connected,
    Message(i64, PackedByteArray),
    Ended(GString),
}

#[godot_api]
impl SlipgateClient {
    #[signal]
    fn connected();
    #[signal]
    fn message(channel: i64, bytes: PackedByteArray);
    // The reason is a sentence for the player.
    #[signal]
    fn ended(reason: GString);

    #[constant]
    const UNRELIABLE: i64 = 0;
    #[constant]
    const SEQUENCED: i64 = 1;
    #[constant]
    const RELIABLE_UNORDERED: i64 = 2;
    #[constant]
    const RELIABLE_ORDERED: i64 = 3;

    /// Adds a channel and returns its id. The server needs the same channels in the same order.
    #[func]
    fn add_channel(&mut self, kind: i64, name: GString) -> i64 {
        self.channels.push((kind, name.to_string()));
        self.channels.len() as i64 - 1
    }

    /// Connects with a token of 2048 bytes. Returns an error for the log, or an empty text.
    #[func]
    fn connect_with(&mut self, token: PackedByteArray, version: u32) -> GString {
        match self.try_connect(token.as_slice(), version) {
            Ok(()) => GString::new(),
            Err(error) => GString::from(&error.to_string()),
        }
    }

    /// Queues a message. Returns whether there was room.
    #[func]
    fn send(&mut self, channel: u8, bytes: PackedByteArray) -> bool {
        let sent = self.open.as_mut().map(|open| open.client.send_message(ChannelId(channel), bytes.as_slice()));
        sent.is_some_and(|sent| sent.is_ok())
    }

    /// Leaves with a text for people.
    #[func]
    fn leave(&mut self, text: GString) {
        if let Some(open) = &mut self.open {
            open.client.leave(CloseCode::KICKED, &text.to_string());
        }
    }
}

impl SlipgateClient {
    fn try_connect(&mut self, token: &[u8], version: u32) -> Result<(), Box<dyn std::error::Error>> {
        let mut layout = Layout::builder();
        layout.version = version;
        for (kind, name) in &self.channels {
            let channel = match kind {
                0 => Channel::unreliable(""),
                1 => Channel::sequenced(""),
                2 => Channel::reliable_unordered(""),
                _ => Channel::reliable_ordered(""),
            };
            layout.add(Channel { name: name.clone().into(), ..channel });
        }
        let clock = Clock::start();
        let mut client = Client::new()?.with_traffic(Traffic::channels(layout.build()?))?;
        client.connect(ConnectToken::from_bytes(token)?, clock.now())?;
        self.open = Some(OpenClient { client, inbox: Inbox::default(), clock });
        Ok(())
    }
}

#[godot_api]
impl INode for SlipgateClient {
    fn process(&mut self, _delta: f64) {
        let Some(OpenClient { client, inbox, clock }) = &mut self.open else { return };
        let mut emitted = Vec::new();
        client.begin_turn(clock.now());
        while let Some(event) = inbox.next(client) {
            match event {
                Event::Connected { .. } => emitted.push(Emitted::Connected),
                Event::Message { channel, bytes, .. } => {
                    emitted.push(Emitted::Message(channel.0.into(), PackedByteArray::from(bytes)));
                }
                Event::Ended { reason } => emitted.push(Emitted::Ended(GString::from(&reason.to_string()))),
                _ => {}
            }
        }
        client.end_turn();
        for event in emitted {
            match event {
                Emitted::Connected => self.signals().connected().emit(),
                Emitted::Message(channel, bytes) => self.signals().message().emit(channel, &bytes),
                Emitted::Ended(reason) => self.signals().ended().emit(&reason),
            }
        }
    }
}
