//! How often objects are encoded: once for all clients with equal knowledge, and not if they find no room.

use super::*;

/// A world of cubes that move at each state, in straight lines with changes that no client predicts.
struct Crowd {
    replicator: Replicator,
    viewers: Vec<ViewerId>,
    cubes: u16,
    tick: u32,
}

impl Crowd {
    fn new(cubes: u16, clients: u16) -> Self {
        let (schema, [cube, _]) = schema();
        let mut replicator = Replicator::new(schema, cubes, clients, 60);
        (0..cubes).for_each(|id| _ = replicator.spawn(ObjectId(id), cube).unwrap());
        let viewers = (0..clients).map(|_| replicator.add_viewer().unwrap()).collect();
        Self { replicator, viewers, cubes, tick: 0 }
    }

    /// Moves all cubes and sends each client messages of this size. `is_lost` has the number of a client. Returns the
    /// records that were sent.
    fn state(&mut self, messages: usize, bytes: usize, is_lost: impl Fn(u16) -> bool) -> usize {
        self.tick += 3;
        for id in 0..self.cubes {
            let part = |factor: u32| ((self.tick * factor + u32::from(id) * 31) % 97) as f32 / 40.0;
            let mut object = self.replicator.object(ObjectId(id)).unwrap();
            object.set_vector(0, [part(7), part(11), part(13)]).unwrap();
        }
        self.replicator.commit(self.tick).unwrap();
        let (mut sent, mut buf) = (0, alloc::vec![0; bytes]);
        for (number, viewer) in (0..).zip(&self.viewers) {
            self.replicator.plan(*viewer, messages, bytes);
            for _ in 0..messages {
                let Some(message) = self.replicator.write(*viewer, &mut buf) else { break };
                sent += message.objects;
                if is_lost(number) {
                    self.replicator.on_lost(*viewer, message.tag);
                } else {
                    self.replicator.on_acknowledged(*viewer, message.tag);
                }
            }
        }
        sent
    }

    /// Returns the encodings and the records of a state.
    fn count(&mut self, messages: usize, bytes: usize, is_lost: impl Fn(u16) -> bool) -> (usize, usize) {
        let before = self.replicator.encoded_count();
        let sent = self.state(messages, bytes, is_lost);
        ((self.replicator.encoded_count() - before) as usize, sent)
    }
}

#[test]
fn clients_with_equal_knowledge_share_encodings() {
    let mut crowd = Crowd::new(50, 10);
    for _ in 0..8 {
        assert_eq!(crowd.count(4, 1000, |_| false), (50, 500));
    }
}

#[test]
fn clients_with_some_states_in_common_share_encodings() {
    let mut crowd = Crowd::new(50, 24);
    // Client `n` got nothing for `n % 4` states: each cube has four baselines.
    for missed in (0..4).rev() {
        crowd.state(4, 1000, |number| number % 4 > missed);
    }
    let (encoded, sent) = crowd.count(4, 1000, |_| false);
    assert_eq!((encoded, sent), (4 * 50, 24 * 50));
}

#[test]
fn objects_that_find_no_room_are_not_encoded() {
    for (messages, bytes) in [(1, 300), (2, 300), (1, 1000)] {
        let mut crowd = Crowd::new(1000, 1);
        (0..60).for_each(|_| _ = crowd.state(messages, bytes, |_| false));
        for _ in 0..20 {
            let (encoded, sent) = crowd.count(messages, bytes, |_| false);
            assert!(sent > 20 && encoded < sent * 5 / 4 + 30, "{encoded} encodings of {sent} records");
        }
    }
}
