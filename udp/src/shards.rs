//! Shards: several sockets on one port, one for each thread. The system sends all datagrams of a sender to one of them.
//!
//! ```text
//!                     ┌ hash of both addresses (the system's own) ┐        ┌─▶ shard 0
//!   datagram ─▶ port ─┤                                           ├ mod N ─┼─▶ shard 1
//!                     └ or the CPU that it arrived on             ┘        └─▶ shard 2
//! ```
//!
//! Only Linux supports this (`SO_REUSEPORT`). A similar option of macOS and Windows lets one socket receive everything,
//! so more than one shard is refused there.

use std::io;
use std::net::SocketAddr;

use super::Sockets;
use super::bound_socket::PortSharing;

/// How the system chooses the shard of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Steering {
    /// A hash of both addresses and ports decides. A client stays on one shard as long as it sends from one port.
    #[default]
    Hash,
    /// The CPU on which the datagram arrived decides, so that a shard pinned to that CPU finds the datagram in its
    /// caches.
    ///
    /// This requires a network card that assigns flows to CPUs permanently (receive side scaling, one queue for each
    /// CPU, no `irqbalance`). If the datagrams of a client arrive on another CPU, they reach a shard that does not know
    /// it, and the connection is lost. The CPU of the sender decides on loopback.
    Cpu,
}

impl Steering {
    /// Returns the name as a stable word for logs and settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Cpu => "cpu",
        }
    }
}

impl Sockets {
    /// Binds `shards` sets of sockets to the same addresses, at most one IPv4 and one IPv6 address. A port that another
    /// program has is refused even if that program shares its port too.
    ///
    /// # Errors
    /// The errors of [`bind`](Self::bind); `Unsupported` for more than one shard on systems other than Linux;
    /// `InvalidInput` for no shard.
    pub fn bind_shards(addresses: &[SocketAddr], shards: u16) -> io::Result<Vec<Self>> {
        match shards {
            0 => Err(io::Error::new(io::ErrorKind::InvalidInput, "a server has at least one shard")),
            1 => Ok(vec![Self::bind(addresses)?]),
            _ if !cfg!(target_os = "linux") => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "only Linux distributes the datagrams of one port over several sockets: use one \
                 shard, or one server on each of several ports",
            )),
            _ => {
                let first = Self::bind_sharing(addresses, PortSharing::First)?;
                let bound = first.local_addresses();
                let others = (1..shards).map(|_| Self::bind_sharing(&bound, PortSharing::Next));
                std::iter::once(Ok(first)).chain(others).collect()
            }
        }
    }

    /// Sets how datagrams are distributed over the `shards` sockets of [`bind_shards`](Self::bind_shards). A call on
    /// any of them applies to all. [`Steering::Cpu`] cannot be reverted. A single shard receives everything in both
    /// modes.
    ///
    /// # Errors
    /// `Unsupported` for [`Steering::Cpu`] and several shards on systems other than Linux; the error of the system if
    /// it refuses the program.
    pub fn steer(&self, steering: Steering, shards: u16) -> io::Result<()> {
        match steering {
            Steering::Hash => Ok(()),
            // The system refuses the program on a port that is not shared.
            Steering::Cpu if shards < 2 => Ok(()),
            Steering::Cpu => self.bound().try_for_each(|(_, port)| by_cpu(port, shards)),
        }
    }
}

#[cfg(target_os = "linux")]
fn by_cpu(port: &super::bound_socket::BoundSocket, shards: u16) -> io::Result<()> {
    super::syscalls::steer_by_cpu(std::os::fd::AsFd::as_fd(&port.socket), shards)
}

#[cfg(not(target_os = "linux"))]
fn by_cpu(_: &super::bound_socket::BoundSocket, _: u16) -> io::Result<()> {
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

    /// Receives until `count` datagrams have arrived. Returns how many each shard received.
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
    fn senders_spread_and_each_stays_on_one_shard() {
        let mut shards = shards(4);
        let to = shards[0].local_addresses()[0];
        assert!(shards.iter().all(|shard| shard.local_addresses() == [to]));
        let senders: Vec<_> = (0..64).map(|_| UdpSocket::bind(ANY).unwrap()).collect();
        let round = |shards: &mut [Sockets]| {
            senders.iter().for_each(|sender| assert_eq!(sender.send_to(b"here", to).unwrap(), 4));
            arrived(shards, senders.len())
        };
        let first = round(&mut shards);
        // The probability that one of four shards gets none of 64 senders is 1 in 25 million.
        assert!(first.iter().all(|count| *count > 0), "{first:?}");
        for _ in 0..3 {
            assert_eq!(round(&mut shards), first);
        }
    }

    #[test]
    fn shared_port_is_refused_to_another_server() {
        let shards = shards(2);
        let taken = shards[0].local_addresses();
        for count in [1, 2] {
            let refused = Sockets::bind_shards(&taken, count).map(|_| ()).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        }
        assert_eq!(Sockets::bind_shards(&taken, 0).map(|_| ()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn cpu_steering_sends_one_cpus_datagrams_to_one_shard() {
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
    fn shards_share_one_port_of_each_family() {
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
    fn one_shard_receives_everything_in_both_modes() {
        let mut shards = shards(1);
        [Steering::Hash, Steering::Cpu].iter().for_each(|steering| shards[0].steer(*steering, 1).unwrap());
        UdpSocket::bind(ANY).unwrap().send_to(b"here", shards[0].local_addresses()[0]).unwrap();
        assert_eq!(arrived(&mut shards, 1), [1]);
    }

    /// Pins this thread to a CPU and returns which.
    fn pinned() -> usize {
        crate::syscalls::pin_to_one_cpu()
    }

    #[test]
    fn waker_ends_a_wait_without_reporting_datagrams() {
        let mut sockets = shards(2).remove(0);
        let waker = sockets.waker().unwrap();
        let start = std::time::Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                waker.wake();
            });
            sockets.wait(Duration::from_secs(120)).unwrap();
        });
        assert!(start.elapsed() < Duration::from_secs(60) && sockets.is_drained());
    }
}
