//! Any datagram as a packet of reliable 1.0, and as a fragment.

#![no_main]

use libfuzzer_sys::fuzz_target;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_session::wire::reliable::{
    FRAGMENT_HEADER_BYTES, Fragment, FragmentLimits, MAX_HEADER_BYTES, MAX_OVERHEAD_BYTES, MIN_HEADER_BYTES,
    ReliableHeader, is_fragment,
};

fuzz_target!(|datagram: &[u8]| {
    packet(datagram);
    for (max_fragments, fragment_bytes) in [(256, 1024), (16, 100), (16, 1), (1, 0)] {
        fragment(datagram, FragmentLimits { max_fragments, fragment_bytes });
    }
});

fn packet(datagram: &[u8]) {
    let Ok((header, payload)) = ReliableHeader::parse(datagram) else { return };
    assert!(!is_fragment(datagram));
    let read = datagram.len() - payload.len();
    assert!((MIN_HEADER_BYTES..=MAX_HEADER_BYTES).contains(&read));

    let mut written = [0; MAX_HEADER_BYTES];
    let mut writer = Writer::new(&mut written);
    header.emit(&mut writer);
    let bytes = writer.written().expect("the longest header fits");
    assert!(bytes <= read, "the canonical form is the shortest");
    assert_eq!(ReliableHeader::parse(&written[..bytes]), Ok((header, &[][..])));
    // A header of the same size differs at most in the two unused prefix bits.
    assert!(bytes < read || written[1..bytes] == datagram[1..bytes]);

    let arrived: Vec<u16> = header.acks.arrived().map(|sequence| header.acks.ack - sequence).collect();
    assert_eq!(arrived.len() as u32, header.acks.bits.count_ones());
    assert!(arrived.iter().all(|back| header.acks.bits >> back & 1 == 1));
}

fn fragment(datagram: &[u8], limits: FragmentLimits) {
    let Ok(fragment) = Fragment::parse(datagram, limits) else { return };
    assert!(is_fragment(datagram));
    assert!(u16::from(fragment.id) < fragment.count && fragment.count <= limits.max_fragments);
    assert!(fragment.data.len() <= limits.fragment_bytes);
    assert_eq!(fragment.header.is_some(), fragment.id == 0);
    assert!(fragment.header.is_none_or(|header| header.sequence == fragment.sequence));
    assert!(datagram.len() - fragment.data.len() <= MAX_OVERHEAD_BYTES);
    assert!(datagram.len() - fragment.data.len() >= FRAGMENT_HEADER_BYTES);

    let mut written = vec![0; datagram.len()];
    let mut writer = Writer::new(&mut written);
    fragment.emit(&mut writer);
    assert_eq!(writer.written(), Some(datagram.len()));
    assert_eq!(written, datagram, "there is one form only");
}
