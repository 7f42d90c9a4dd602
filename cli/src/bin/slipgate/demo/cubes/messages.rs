//! The channels and messages between the server and its clients.

use slipgate_cli::Failure;
use slipgate_lab::sync::thesis::THESIS_STATES;
use slipgate_server::{Channel, ChannelId, Layout, Traffic};
use slipgate_sync::{InputBuffer, InputLog, MAX_INPUT_BYTES, ObjectId};
use slipgate_worlds::{CubeState, PLAYERS};

use super::packed_pose::{POSE_BYTES, PackedPose};

/// States, from the server.
pub(super) const STATE: ChannelId = ChannelId(0);
/// Keys, from the client with its own cube.
pub(super) const INPUT: ChannelId = ChannelId(1);
/// The longest message that leaves in one datagram.
pub(super) const MESSAGE_BYTES: usize = 1100;

/// Returns what both ends send.
pub(super) fn traffic() -> Result<Traffic, Failure> {
    let mut layout = Layout::builder();
    layout.add(Channel::unreliable("state").priority(2).newest_only());
    layout.add(Channel::unreliable("input").priority(3).newest_only());
    layout.build().map(Traffic::channels).map_err(|error| Failure::run_time(error.to_string()))
}

/// A message that ends too early, or has what no server sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unreadable;

/// Removes and returns the first bytes of a message.
pub(super) fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Unreadable> {
    let (first, rest) = bytes.split_first_chunk().ok_or(Unreadable)?;
    *bytes = rest;
    Ok(*first)
}

fn take_floats<const N: usize>(bytes: &mut &[u8]) -> Result<[f32; N], Unreadable> {
    let mut floats = [0.0; N];
    for float in &mut floats {
        *float = f32::from_le_bytes(take(bytes)?);
    }
    if floats.iter().all(|float| float.is_finite()) { Ok(floats) } else { Err(Unreadable) }
}

/// Removes and returns the tick, with which each message of the thesis starts.
pub(super) fn take_tick(bytes: &mut &[u8]) -> Result<u32, Unreadable> {
    take(bytes).map(u32::from_le_bytes)
}

/// Writes the thesis's snapshot: all cubes.
pub(super) fn write_snapshot(tick: u32, states: impl Iterator<Item = CubeState>, message: &mut Vec<u8>) {
    message.clear();
    message.extend(tick.to_le_bytes());
    states.for_each(|state| message.extend(PackedPose::new(state.position, state.rotation).0));
}

/// Returns the poses of a snapshot.
pub(super) fn read_snapshot(bytes: &[u8]) -> impl Iterator<Item = PackedPose> + '_ {
    bytes.as_chunks::<POSE_BYTES>().0.iter().map(|pose| PackedPose(*pose))
}

/// The highest bit of a cube's number in the thesis's messages: the cube rests.
const AT_REST: u16 = 1 << 15;

/// Adds a state of the thesis: 54 bytes.
pub(super) fn write_state(id: usize, state: &CubeState, message: &mut Vec<u8>) {
    let rest = if state.is_at_rest { AT_REST } else { 0 };
    message.extend((id as u16 | rest).to_le_bytes());
    let CubeState { position, rotation, velocity, spin, .. } = state;
    for float in position.iter().chain(rotation).chain(velocity).chain(spin) {
        message.extend(float.to_le_bytes());
    }
}

/// Reads the states of the thesis's message.
pub(super) fn read_states(bytes: &mut &[u8], mut add: impl FnMut(ObjectId, CubeState)) -> Result<(), Unreadable> {
    for _ in 0..THESIS_STATES {
        if bytes.is_empty() {
            break;
        }
        let number = take(bytes).map(u16::from_le_bytes)?;
        let (position, rotation) = (take_floats(bytes)?, take_floats(bytes)?);
        let (velocity, spin) = (take_floats(bytes)?, take_floats(bytes)?);
        let is_at_rest = number & AT_REST != 0;
        add(ObjectId(number & !AT_REST), CubeState { position, rotation, velocity, spin, is_at_rest });
    }
    Ok(())
}

/// Adds the keys of all players that the client has not confirmed, each with its length.
pub(super) fn write_keys(logs: &[InputLog; PLAYERS], message: &mut Vec<u8>) {
    for log in logs {
        let mut buf = [0; MAX_INPUT_BYTES];
        let length = log.write(None, &mut buf);
        message.push(length as u8);
        message.extend(buf.iter().take(length));
    }
}

/// Removes and returns the messages of all players' keys, which may be empty.
pub(super) fn take_keys<'m>(bytes: &mut &'m [u8]) -> Result<[&'m [u8]; PLAYERS], Unreadable> {
    let mut all: [&[u8]; PLAYERS] = [&[]; PLAYERS];
    for keys in &mut all {
        let [length] = take(bytes)?;
        (*keys, *bytes) = bytes.split_at_checked(length.into()).ok_or(Unreadable)?;
    }
    Ok(all)
}

/// Reads the messages of all players' keys, when the server was at `now`.
pub(super) fn read_keys(
    buffers: &mut [InputBuffer; PLAYERS],
    keys: [&[u8]; PLAYERS],
    now: u32,
) -> Result<(), Unreadable> {
    for (buffer, keys) in buffers.iter_mut().zip(keys).filter(|(_, keys)| !keys.is_empty()) {
        buffer.read(keys, now.into()).map_err(|_| Unreadable)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use slipgate_worlds::CubeWorld;

    use super::*;

    #[test]
    fn states_of_the_thesis_come_back() {
        let (world, mut message) = (CubeWorld::new(20), Vec::new());
        (0..20).for_each(|id| write_state(id, &world.state(id).unwrap(), &mut message));
        assert_eq!(message.len(), 20 * 54);
        let (mut rest, mut count) = (&message[..], 0);
        let check = |id: ObjectId, state| {
            count += 1;
            assert_eq!(world.state(id.0.into()), Some(state));
        };
        assert_eq!(read_states(&mut rest, check), Ok(()));
        assert_eq!((count, rest.len()), (20, 0));
    }

    #[test]
    fn cut_messages_are_refused() {
        let (mut message, world) = (Vec::new(), CubeWorld::new(4));
        let mut logs = [(); PLAYERS].map(|()| InputLog::new());
        logs.iter_mut().for_each(|log| log.push(9, 5, None));
        write_keys(&logs, &mut message);
        write_state(3, &world.state(3).unwrap(), &mut message);
        let read = |mut bytes: &[u8]| {
            take_keys(&mut bytes)?;
            if bytes.is_empty() { Err(Unreadable) } else { read_states(&mut bytes, |_, _| ()) }
        };
        assert_eq!(read(&message), Ok(()));
        for length in 0..message.len() {
            assert_eq!(read(&message[..length]), Err(Unreadable), "{length} bytes");
        }
        let end = message.len();
        message[end - 4..].fill(0xff);
        assert_eq!(read(&message), Err(Unreadable), "a number that is none");
    }
}
