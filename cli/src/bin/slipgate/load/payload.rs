//! The content of a payload, which follows from its number: an echo is checked byte by byte without a copy.

use slipgate_netcode::time::Instant;

/// Writes a payload: the client's mark, the number, the time in nanoseconds, and bytes that follow from the number.
pub(super) fn write_payload(buf: &mut [u8], mark: u64, number: u64, now: Instant) {
    let nanos = u64::try_from(now.since_start().as_nanos()).unwrap_or(u64::MAX);
    let head = [mark, number, nanos].map(u64::to_le_bytes).concat();
    let filler = (0..).map(|index: u64| (number.wrapping_mul(31).wrapping_add(index) & 0xff) as u8);
    buf.iter_mut().zip(head.into_iter().chain(filler)).for_each(|(byte, value)| *byte = value);
}

/// Returns the number and the time of sending of an echo, `None` if it is not one of the client's payloads.
pub(super) fn read_payload(bytes: &[u8], mark: u64) -> Option<(u64, u64)> {
    let word = |index: usize| Some(u64::from_le_bytes(bytes.get(index * 8..index * 8 + 8)?.try_into().ok()?));
    let (number, nanos) = (word(1)?, word(2)?);
    let mut expected = vec![0; bytes.len()];
    write_payload(&mut expected, mark, number, Instant::default());
    let is_right = word(0) == Some(mark) && expected.get(24..) == bytes.get(24..);
    is_right.then_some((number, nanos))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn altered_and_foreign_payloads_are_no_echoes() {
        let now = Instant::default().after(Duration::from_micros(7));
        let mut payload = [0; 100];
        write_payload(&mut payload, 5, 9, now);
        assert_eq!(read_payload(&payload, 5), Some((9, 7000)));
        assert_eq!(read_payload(&payload, 6), None);
        for index in [8, 24, 99] {
            let mut altered = payload;
            altered[index] ^= 1;
            assert_eq!(read_payload(&altered, 5), None, "{index}");
        }
        assert_eq!(read_payload(&payload[..23], 5), None);
    }
}
