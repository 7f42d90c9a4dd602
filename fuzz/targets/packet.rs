//! Any datagram to a server and to a client, from an unknown sender and from a peer with the key.

#![no_main]

use libfuzzer_sys::fuzz_target;
use slipgate_fuzz::{PROTOCOL_ID, associated, key};
use slipgate_netcode::crypto::aead::{NotAuthentic, PacketKey, nonce, portable, ring};
use slipgate_netcode::crypto::key::KeyRing;
use slipgate_netcode::crypto::packet::PacketCipher;
use slipgate_netcode::crypto::replay::ReplayWindow;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::token::redeem::redeem;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_netcode::wire::packet::{Challenge, KeepAlive, PacketHeader, PacketKind, Request};
use slipgate_netcode::wire::{MAX_ENCRYPTED_BYTES, REQUEST_BYTES, TAG_BYTES};

fuzz_target!(|datagram: &[u8]| {
    request(datagram);
    for accepted in [PacketKind::TO_SERVER, PacketKind::TO_CLIENT] {
        if let Ok(header) = PacketHeader::parse(datagram, accepted) {
            assert!(accepted.contains(&header.kind));
            assert!(header.bytes + TAG_BYTES <= datagram.len() && datagram.len() <= MAX_ENCRYPTED_BYTES);
            as_it_is(&header, datagram);
            with_the_right_tag(&header, datagram);
        }
    }
});

fn request(datagram: &[u8]) {
    // The right version and protocol id: otherwise one input in 2^168 would pass these checks.
    let mut datagram = datagram.to_vec();
    if let (REQUEST_BYTES, Some(front)) = (datagram.len(), datagram.get_mut(1..22)) {
        front.copy_from_slice(&associated(0)[..21]);
    }
    if let Ok(request) = Request::parse(&datagram, PROTOCOL_ID) {
        let mut written = [0; REQUEST_BYTES];
        request.emit(PROTOCOL_ID, &mut Writer::new(&mut written));
        assert_eq!(written[..], datagram[..]);
        let redeemed = redeem(&request, PROTOCOL_ID, &KeyRing::from(key())).map(|_| ());
        assert_eq!(redeemed, Err(Discard::TokenNotAuthentic));
    }
}

fn as_it_is(header: &PacketHeader, datagram: &[u8]) {
    let (cipher, mut window) = (PacketCipher::new(PROTOCOL_ID), ReplayWindow::default());
    let opened = cipher.open_fresh(&key(), &mut window, header, &mut datagram.to_vec()).map(|content| content.to_vec());
    // One input in 2^128 opens by chance.
    assert_eq!(opened, Err(Discard::NotAuthentic));
    assert_eq!(window.newest(), None);
    let sealed = &mut datagram[header.bytes..].to_vec();
    let opened = portable::PreparedKey::from(key()).open(nonce(header.sequence), &associated(header.prefix), sealed);
    assert_eq!(opened, Err(NotAuthentic));
}

fn with_the_right_tag(header: &PacketHeader, datagram: &[u8]) {
    let mut sealed = datagram.to_vec();
    let (plain, tag) = sealed[header.bytes..].split_last_chunk_mut::<TAG_BYTES>().expect("a header leaves a tag");
    let content = plain.to_vec();
    *tag = ring::PreparedKey::from(key()).seal(nonce(header.sequence), &associated(header.prefix), plain);
    let mut other = content.clone();
    let portable_key = portable::PreparedKey::from(key());
    assert_eq!(*tag, portable_key.seal(nonce(header.sequence), &associated(header.prefix), &mut other));
    assert_eq!(other, *plain);

    let (cipher, mut window) = (PacketCipher::new(PROTOCOL_ID), ReplayWindow::default());
    let expected = if header.kind.allows_content(content.len()) { Ok(content) } else { Err(Discard::ContentSize) };
    let opened = cipher.open_fresh(&key(), &mut window, header, &mut sealed.clone()).map(|content| content.to_vec());
    assert_eq!(opened, expected);
    let guarded = matches!(header.kind, PacketKind::KeepAlive | PacketKind::Payload | PacketKind::Disconnect);
    assert_eq!(window.newest(), guarded.then_some(header.sequence));
    let again = cipher.open_fresh(&key(), &mut window, header, &mut sealed.clone()).map(|content| content.to_vec());
    assert_eq!(again, if guarded { Err(Discard::Replayed) } else { expected.clone() });

    let Ok(content) = expected else { return };
    match header.kind {
        PacketKind::Challenge | PacketKind::Response => {
            assert_eq!(Challenge::parse(&content).expect("the right size").to_bytes()[..], content);
        }
        PacketKind::KeepAlive => {
            assert_eq!(KeepAlive::parse(&content).expect("the right size").to_bytes()[..], content);
        }
        PacketKind::Denied | PacketKind::Payload | PacketKind::Disconnect => {}
    }
    if PacketHeader::canonical(header.kind, header.sequence) == *header {
        let mut written = [0; MAX_ENCRYPTED_BYTES];
        let length = cipher.seal(&key(), header.kind, header.sequence, &content, &mut written);
        assert_eq!(length.map(|length| &written[..length]), Some(&sealed[..]));
    }
}
