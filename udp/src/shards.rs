//! Several sockets on one port, one for each thread: the system sends all datagrams of one sender to the same one.
//!
//! ```text
//!                     ┌ hash of both addresses (the system's own) ┐        ┌─▶ shard 0
//!   datagram ─▶ port ─┤                                           ├ mod N ─┼─▶ shard 1
//!                     └ or the CPU that it arrived on             ┘        └─▶ shard 2
//! ```
//!
//! Linux alone does so (`SO_REUSEPORT`). On macOS and Windows an option of the same or a similar name lets one socket
//! have everything, so more than one shard is refused there.

use std::io;
use std::net::SocketAddr;

use super::Sockets;
use super::port::Sharing;

/// By what the system chooses the shard of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Steering {
    /// By a hash of both addresses and ports: a client stays on one shard for as long as it sends from one port.
    #[default]
    Hash,
    /// By the CPU on which the datagram arrived, so that a shard that is pinned to that CPU has it in its caches.
    ///
    /// Only where the network card spreads flows over CPUs for good (receive side scaling, one queue for each CPU, no
    /// `irqbalance`): a client whose datagrams arrive on another CPU comes to a shard that does not know it, and is lost.
    /// On loopback that is the CPU of the sender.
    Cpu,
}

impl Steering {
    /// As a stable word, for logs and settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Cpu => "cpu",
        }
    }
}

impl Sockets {
    /// Binds so many sockets to each address, which may be one of IPv4 and one of IPv6: one of each for a shard. A port
    /// that any other program has is refused, even if that one shares its port too.
    ///
    /// # Errors
    /// As [`bind`](Self::bind); `Unsupported` for more than one shard where systems do not spread datagrams over sockets,
    /// all but Linux; `InvalidInput` for none.
    pub fn bind_shards(addresses: &[SocketAddr], shards: u16) -> io::Result<Vec<Self>> {
        match shards {
            0 => Err(io::Error::new(io::ErrorKind::InvalidInput, "a server has at least one shard")),
            1 => Ok(vec![Self::bind(addresses)?]),
            _ if !cfg!(target_os = "linux") => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this system does not spread the datagrams of one port over several sockets, only Linux does: use one \
                 shard, or one server on each of several ports",
            )),
            _ => {
                let first = Self::bind_sharing(addresses, Sharing::First)?;
                let bound = first.local_addresses();
                let others = (1..shards).map(|_| Self::bind_sharing(&bound, Sharing::Next));
                std::iter::once(Ok(first)).chain(others).collect()
            }
        }
    }

    /// Says how the datagrams of a port are spread over the sockets of [`bind_shards`](Self::bind_shards), of which there
    /// are so many: told to any of them, it is so for all. From [`Steering::Cpu`] there is no way back. One
    /// shard has everything, however it is steered.
    ///
    /// # Errors
    /// For [`Steering::Cpu`] and several shards: `Unsupported` on all systems but Linux; when the system refuses it.
    pub fn steer(&self, steering: Steering, shards: u16) -> io::Result<()> {
        match steering {
            Steering::Hash => Ok(()),
            // The port of one shard is not shared, and the system refuses to spread its datagrams.
            Steering::Cpu if shards < 2 => Ok(()),
            Steering::Cpu => self.ports().try_for_each(|(_, port)| by_cpu(port, shards)),
        }
    }
}

#[cfg(target_os = "linux")]
fn by_cpu(port: &super::port::Port, shards: u16) -> io::Result<()> {
    super::system::steer_by_cpu(std::os::fd::AsFd::as_fd(&port.socket), shards)
}

#[cfg(not(target_os = "linux"))]
fn by_cpu(_: &super::port::Port, _: u16) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
    use std::time::Duration;

    use super::*;
    use crate::ReceiveBatch;

    const ANY: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

    fn shards(count: u16) -> Vec<Sockets> {
        Sockets::bind_shards(&[ANY.into()], count).unwrap()
    }

    /// How many datagrams each shard gets until all have come.
    fn arrived(shards: &mut [Sockets], count: usize) -> Vec<usize> {
        let mut counts = vec![0; shards.len()];
        let mut batch = ReceiveBatch::default();
        for _ in 0..1000 {
            for (shard, count) in shards.iter_mut().zip(&mut counts) {
                shard.wait(Duration::from_millis(1)).unwrap();
                shard.receive(&mut batch);
                *count += batch.len();
            }
            if counts.iter().sum::<usize>() >= count {
                return counts;
            }
        }
        panic!("{counts:?} of {count} arrived");
    }

    #[test]
    fn senders_spread_over_the_shards_and_each_stays_on_one() {
        let mut shards = shards(4);
        let to = shards[0].local_addresses()[0];
        assert!(shards.iter().all(|shard| shard.local_addresses() == [to]));
        let senders: Vec<_> = (0..64).map(|_| UdpSocket::bind(ANY).unwrap()).collect();
        let round = |shards: &mut [Sockets]| {
            senders.iter().for_each(|sender| assert_eq!(sender.send_to(b"here", to).unwrap(), 4));
            arrived(shards, senders.len())
        };
        let first = round(&mut shards);
        // That one of four gets none of 64 happens once in 25 million.
        assert!(first.iter().all(|count| *count > 0), "{first:?}");
        for _ in 0..3 {
            assert_eq!(round(&mut shards), first);
        }
    }

    #[test]
    fn a_port_that_is_shared_already_is_refused_to_another_server() {
        let shards = shards(2);
        let taken = shards[0].local_addresses();
        for count in [1, 2] {
            let refused = Sockets::bind_shards(&taken, count).map(|_| ()).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        }
        assert_eq!(Sockets::bind_shards(&taken, 0).map(|_| ()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn steered_by_cpu_everything_from_one_cpu_comes_to_one_shard() {
        let mut shards = shards(2);
        shards[1].steer(Steering::Hash, 2).unwrap();
        shards[1].steer(Steering::Cpu, 2).unwrap();
        let to = shards[0].local_addresses()[0];
        let cpu = pinned();
        for _ in 0..64 {
            UdpSocket::bind(ANY).unwrap().send_to(b"here", to).unwrap();
        }
        let mut expected = [0, 0];
        expected[cpu % 2] = 64;
        assert_eq!(arrived(&mut shards, 64), expected);
    }

    #[test]
    fn both_families_have_a_port_each_that_all_shards_share() {
        let mut shards = Sockets::bind_shards(&[ANY.into(), (Ipv6Addr::LOCALHOST, 0).into()], 2).unwrap();
        let to = shards[0].local_addresses();
        assert!(to.len() == 2 && shards[1].local_addresses() == to);
        let send = || {
            for to in &to {
                for _ in 0..64 {
                    UdpSocket::bind((to.ip(), 0)).unwrap().send_to(b"here", to).unwrap();
                }
            }
        };
        send();
        let spread = arrived(&mut shards, 128);
        assert!(spread.iter().all(|count| *count > 0), "{spread:?}");
        shards[1].steer(Steering::Cpu, 2).unwrap();
        let cpu = pinned();
        send();
        let mut expected = [0, 0];
        expected[cpu % 2] = 128;
        assert_eq!(arrived(&mut shards, 128), expected);
    }

    #[test]
    fn one_shard_has_everything_however_it_is_steered() {
        let mut shards = shards(1);
        [Steering::Hash, Steering::Cpu].iter().for_each(|steering| shards[0].steer(*steering, 1).unwrap());
        UdpSocket::bind(ANY).unwrap().send_to(b"here", shards[0].local_addresses()[0]).unwrap();
        assert_eq!(arrived(&mut shards, 1), [1]);
    }

    /// Pins this thread to a CPU that it may use, and answers which.
    fn pinned() -> usize {
        crate::system::pin_to_one_cpu()
    }

    #[test]
    fn a_sleeper_is_woken_by_another_thread_and_is_not_taken_to_have_datagrams() {
        let mut sockets = shards(2).remove(0);
        let waker = sockets.waker().unwrap();
        let start = std::time::Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                waker.wake();
            });
            sockets.wait(Duration::from_secs(20)).unwrap();
        });
        assert!(start.elapsed() < Duration::from_secs(10) && sockets.is_drained());
    }
}
