//! The boundary, called from Rust. `./check` also runs these tests with the address sanitizer.

use std::mem::MaybeUninit;
use std::ptr;

use crate::client::panic_inside;
use crate::event_batch::EventCopies;
use crate::pointer;
use crate::*;

const KEY: [u8; 32] = [7; 32];

/// A client and a server with channels, and their last events.
struct Pair {
    client: *mut CClient,
    server: *mut CServer,
    address: [u8; 64],
}

impl Pair {
    fn start() -> Self {
        let mut channel = MaybeUninit::uninit();
        assert_eq!(
            slipgate_channel_init(Some(&mut channel), SLIPGATE_RELIABLE_ORDERED, c"chat".as_ptr()),
            SLIPGATE_DONE
        );
        let channels = [pointer::read(&channel)];
        let traffic = CTraffic {
            size: size_of::<CTraffic>() as u32,
            kind: SLIPGATE_CHANNELS,
            channels: channels.as_ptr(),
            count: 1,
            version: 0,
            max_payload_bytes: 0,
        };
        let mut config = MaybeUninit::uninit();
        assert_eq!(slipgate_server_config_init(Some(&mut config)), SLIPGATE_DONE);
        let config = CServerConfig {
            bind: c"127.0.0.1:0".as_ptr(),
            keys: KEY.as_ptr(),
            keys_length: KEY.len(),
            traffic: &raw const traffic,
            flags: SLIPGATE_ACCEPT_OLD_TOKENS,
            ..pointer::read(&config)
        };
        let (mut client, mut server, mut address) = (ptr::null_mut(), ptr::null_mut(), [0; 64]);
        assert_eq!(slipgate_client_new(Some(&traffic), Some(&mut client), ptr::null_mut(), 0), SLIPGATE_DONE);
        assert_eq!(slipgate_server_new(Some(&config), Some(&mut server), ptr::null_mut(), 0), SLIPGATE_DONE);
        let at = address.as_mut_ptr().cast();
        assert_eq!(slipgate_server_address(pointer::object(server), 0, at, address.len()), SLIPGATE_DONE);
        Self { client, server, address }
    }

    fn connect(&self) {
        let claims = CClaims {
            size: size_of::<CClaims>() as u32,
            lifetime_seconds: 0,
            timeout_seconds: 0,
            user_data_length: 0,
            protocol_id: 0,
            client_id: 5,
            servers: self.address.as_ptr().cast(),
            user_data: ptr::null(),
        };
        let mut token = [0; 2048];
        assert_eq!(slipgate_token_issue(Some(&claims), KEY.as_ptr(), token.as_mut_ptr()), SLIPGATE_DONE);
        assert_eq!(slipgate_client_connect(pointer::object(self.client), token.as_ptr(), token.len()), SLIPGATE_DONE);
        self.until(|pair| slipgate_client_state(pointer::object(pair.client)) == 3);
    }

    /// Runs turns in which the server echoes, until the condition holds. Returns the client's messages.
    fn until(&self, condition: impl Fn(&Self) -> bool) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        for _ in 0..20_000 {
            if condition(self) {
                return messages;
            }
            assert_eq!(slipgate_server_begin_turn(pointer::object(self.server)), SLIPGATE_DONE);
            let mut event = MaybeUninit::uninit();
            while slipgate_server_next_event(pointer::object(self.server), Some(&mut event)) == SLIPGATE_DONE {
                let event: CEvent = pointer::read(&event);
                let (client, bytes, length) = (event.client, event.bytes, event.length);
                if event.kind == SLIPGATE_MESSAGE {
                    let sent =
                        slipgate_server_send_message(pointer::object(self.server), client, 0, bytes, length, None);
                    assert_eq!(sent, SLIPGATE_DONE);
                    // The bytes are still lent after the send.
                    assert_eq!(pointer::bytes(bytes, length).map(<[u8]>::len), Ok(length));
                }
            }
            assert_eq!(slipgate_server_end_turn(pointer::object(self.server)), SLIPGATE_DONE);
            assert_eq!(slipgate_client_begin_turn(pointer::object(self.client)), SLIPGATE_DONE);
            while slipgate_client_next_event(pointer::object(self.client), Some(&mut event)) == SLIPGATE_DONE {
                let event: CEvent = pointer::read(&event);
                if event.kind == SLIPGATE_MESSAGE {
                    messages.push(pointer::bytes(event.bytes, event.length).expect("lent bytes").to_vec());
                }
            }
            assert_eq!(slipgate_client_end_turn(pointer::object(self.client)), SLIPGATE_DONE);
            assert_eq!(slipgate_client_wait(pointer::object(self.client), 1000), SLIPGATE_DONE);
            if !messages.is_empty() {
                return messages;
            }
        }
        panic!("the condition did not hold within 20,000 turns");
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        slipgate_server_free(self.server);
        slipgate_client_free(self.client);
    }
}

#[test]
fn messages_of_each_size_return_unchanged() {
    let pair = Pair::start();
    pair.connect();
    // A message of several packets is assembled in other memory than one of a single packet.
    for length in [0, 1, 7, 8, 100, 1000, 1200, 5000, 16_384] {
        let message: Vec<u8> = (0..length).map(|index| index as u8).collect();
        let sent = slipgate_client_send_message(pointer::object(pair.client), 0, message.as_ptr(), message.len(), None);
        assert_eq!(sent, SLIPGATE_DONE, "{length} bytes");
        assert_eq!(pair.until(|_| false), [message], "{length} bytes");
    }
}

#[test]
fn panic_poisons_the_object_which_can_be_freed() {
    let pair = Pair::start();
    pair.connect();
    assert_eq!(panic_inside(pointer::object(pair.client)), SLIPGATE_ERROR_PANIC);
    assert_eq!(slipgate_client_begin_turn(pointer::object(pair.client)), SLIPGATE_ERROR_PANIC);
    assert_eq!(slipgate_client_state(pointer::object(pair.client)), SLIPGATE_ERROR_PANIC);
    // The other object is not affected.
    assert_eq!(slipgate_server_begin_turn(pointer::object(pair.server)), SLIPGATE_DONE);
}

#[test]
fn text_is_cut_between_two_characters() {
    for (capacity, expected) in [(0, ""), (1, ""), (2, "a"), (3, "a"), (4, "aü"), (9, "aüb")] {
        let mut buf = [1_u8; 9];
        pointer::write_text("aüb", buf.as_mut_ptr().cast(), capacity);
        if capacity > 0 {
            let end = buf.iter().position(|byte| *byte == 0).expect("a zero at the end");
            assert_eq!(str::from_utf8(&buf[..end]), Ok(expected), "{capacity}");
        } else {
            assert_eq!(buf, [1; 9]);
        }
    }
}

#[test]
fn lengths_beyond_the_address_space_are_refused() {
    let byte = 1_u8;
    for length in [usize::MAX, isize::MAX as usize + 1] {
        assert_eq!(pointer::bytes(&raw const byte, length), Err(SLIPGATE_ERROR_ARGUMENT));
    }
    assert_eq!(pointer::bytes(ptr::null(), 1), Err(SLIPGATE_ERROR_ARGUMENT));
    assert_eq!(pointer::bytes(ptr::null(), 0), Ok(&[][..]));
    assert!(pointer::array(ptr::without_provenance::<u32>(2), 1).is_err());
}

#[test]
fn every_status_has_a_text() {
    let errors = (-14..=1).chain([SLIPGATE_ERROR_PANIC]);
    let texts: std::collections::BTreeSet<&str> =
        errors.map(|status| pointer::c_text(slipgate_status_text(status)).expect("UTF-8")).collect();
    assert_eq!(texts.len(), 17);
    assert_eq!(pointer::c_text(slipgate_status_text(77)), Ok("an unknown status"));
}

#[test]
fn events_of_one_call_keep_their_bytes_and_a_large_one_ends_it() {
    let sizes = [3_usize, 0, 70_000, 6_000, 80_000, 5];
    // Each event and the next turn overwrite the memory of the one before, as in an inbox.
    let mut memory = vec![0_u8; 80_000];
    let mut numbers = (0_u8..).zip(sizes);
    let (mut copies, mut events) = (EventCopies::default(), [const { MaybeUninit::uninit() }; 4]);
    let mut taken = Vec::new();
    for expected in [4, 1, 1, 0] {
        let filled = copies.fill(&mut events, || {
            let (number, size) = numbers.next()?;
            memory.fill(number);
            Some(TakenEvent::data(SLIPGATE_MESSAGE, 0, number.into(), &memory[..size]))
        });
        memory.fill(u8::MAX);
        assert_eq!(filled, expected, "after {taken:?}");
        for event in &events[..filled] {
            let event: CEvent = pointer::read(event);
            let bytes = pointer::bytes(event.bytes, event.length).expect("lent bytes");
            assert!(bytes.iter().all(|byte| u64::from(*byte) == event.number));
            taken.push(bytes.len());
        }
    }
    assert_eq!(taken, sizes);
}

#[test]
fn event_without_content_has_no_bytes() {
    let (mut copies, mut events) = (EventCopies::default(), [const { MaybeUninit::uninit() }; 1]);
    let mut left = [TakenEvent::Other(CEvent::new(SLIPGATE_CONNECTED))].into_iter();
    assert_eq!(copies.fill(&mut events, || left.next()), 1);
    let event: CEvent = pointer::read(&events[0]);
    assert!(event.bytes.is_null() && event.length == 0);
}

#[test]
fn large_transfer_is_lent_by_the_object_and_ends_its_call() {
    let held = vec![7; 100_000];
    let received = |bytes| TakenEvent::Other(CEvent::new(SLIPGATE_TRANSFER_RECEIVED).lend(&held[..bytes]));
    let mut left = [held.len(), 100].map(received).into_iter();
    let (mut copies, mut events) = (EventCopies::default(), [const { MaybeUninit::uninit() }; 4]);
    for is_copied in [false, true] {
        assert_eq!(copies.fill(&mut events, || left.next()), 1);
        let event: CEvent = pointer::read(&events[0]);
        assert_eq!(event.bytes == held.as_ptr(), !is_copied, "{} bytes", event.length);
    }
}
