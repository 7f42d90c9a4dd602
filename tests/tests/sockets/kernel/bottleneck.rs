//! Three network namespaces in a row: of the sender, of the bottleneck, which `tc tbf` limits, and of the receiver.
//!
//! The limit is not on the interface of the sender, because there the kernel would slow down the socket instead of
//! dropping packets.

use std::fs::File;
use std::io::{Error, Result};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Output};
use std::thread;

use rustix::net::sockopt::set_tcp_congestion;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const RECEIVER: &str = "10.213.2.2";

/// The namespaces. Dropping it removes them.
pub(crate) struct Bottleneck {
    prefix: String,
}

/// An end of the row.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Sender,
    Receiver,
}

impl Bottleneck {
    /// Creates the namespaces with a bottleneck of this rate, in the notation of `tc`, and this number of bytes of
    /// buffer.
    ///
    /// # Errors
    /// Returns the error of the kernel or of its tools.
    pub(crate) fn new(name: &str, rate: &str, buffer: u32) -> Result<Self> {
        let bottleneck = Self { prefix: format!("slg{}{name}", std::process::id() % 100_000) };
        let [a, m, b] = ["a", "m", "b"].map(|letter| format!("{}{letter}", bottleneck.prefix));
        for namespace in [&a, &m, &b] {
            ip(&["netns", "add", namespace])?;
        }
        for (end, near, far) in [(&a, "up0", "up1"), (&b, "down1", "down0")] {
            ip(&["-n", &m, "link", "add", far, "type", "veth", "peer", "name", near, "netns", end])?;
            ip(&["-n", end, "link", "set", near, "up"])?;
            ip(&["-n", &m, "link", "set", far, "up"])?;
        }
        ip(&["-n", &a, "addr", "add", "10.213.1.1/24", "dev", "up0"])?;
        ip(&["-n", &m, "addr", "add", "10.213.1.2/24", "dev", "up1"])?;
        ip(&["-n", &m, "addr", "add", "10.213.2.1/24", "dev", "down0"])?;
        ip(&["-n", &b, "addr", "add", "10.213.2.2/24", "dev", "down1"])?;
        ip(&["-n", &a, "route", "add", "default", "via", "10.213.1.2"])?;
        ip(&["-n", &b, "route", "add", "default", "via", "10.213.2.1"])?;
        ip(&["netns", "exec", &m, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])?;
        bottleneck.limit("add", rate, buffer)?;
        Ok(bottleneck)
    }

    /// Changes the rate of the bottleneck from now on.
    pub(crate) fn set_rate(&self, rate: &str, buffer: u32) -> Result<()> {
        self.limit("change", rate, buffer)
    }

    fn limit(&self, verb: &str, rate: &str, buffer: u32) -> Result<()> {
        let (middle, limit) = (format!("{}m", self.prefix), buffer.to_string());
        // The bucket holds one packet. A larger one fills while the controller empties the queue, and the next packets
        // pass above the rate without a delay: that is not what a line of this rate does.
        let tbf = ["tbf", "rate", rate, "burst", "1600", "limit", &limit];
        run("tc", &[&["-n", &middle, "qdisc", verb, "dev", "down0", "root"], &tbf[..]].concat()).map(drop)
    }

    /// Returns the packets that the buffer of the bottleneck dropped.
    pub(crate) fn dropped(&self) -> Result<u64> {
        self.qdisc_number("(dropped ", ",")
    }

    /// Returns the bytes that passed the bottleneck, including the headers of Ethernet.
    pub(crate) fn carried_bytes(&self) -> Result<u64> {
        self.qdisc_number("Sent ", " bytes")
    }

    /// Returns a number in the report of `tc` on the bottleneck, by the text around it.
    fn qdisc_number(&self, before: &str, after: &str) -> Result<u64> {
        let middle = format!("{}m", self.prefix);
        let report = run("tc", &["-s", "-n", &middle, "qdisc", "show", "dev", "down0"])?;
        let report = String::from_utf8_lossy(&report.stdout).into_owned();
        let number = report.split_once(before).and_then(|(_, rest)| rest.split_once(after));
        let number = number.and_then(|(number, _)| number.trim().parse().ok());
        number.ok_or_else(|| Error::other(format!("tc does not report it: {report}")))
    }

    /// Runs `act` in the namespace of an end: sockets that it opens stay there.
    pub(crate) fn within<T: Send>(&self, end: End, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let letter = match end {
            End::Sender => "a",
            End::Receiver => "b",
        };
        let path = format!("/run/netns/{}{letter}", self.prefix);
        let entered = || {
            let namespace = File::open(path)?;
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            act()
        };
        thread::scope(|scope| scope.spawn(entered).join()).unwrap_or_else(|_| Err(Error::other("a thread panicked")))
    }

    /// Returns the socket of the sender and that of the receiver, connected.
    pub(crate) fn sockets(&self) -> Result<(UdpSocket, UdpSocket)> {
        let receiver = self.within(End::Receiver, || UdpSocket::bind((RECEIVER, 0)))?;
        let address = receiver.local_addr()?;
        let sender = self.within(End::Sender, || {
            let socket = UdpSocket::bind("10.213.1.1:0")?;
            socket.connect(address)?;
            Ok(socket)
        })?;
        receiver.connect(sender.local_addr()?)?;
        Ok((sender, receiver))
    }

    /// Returns a TCP connection of the kernel with this congestion control.
    pub(crate) fn stream(&self, control: &str) -> Result<(TcpStream, TcpStream)> {
        let listener = self.within(End::Receiver, || TcpListener::bind((RECEIVER, 0)))?;
        let address: SocketAddr = listener.local_addr()?;
        let sender = self.within(End::Sender, || TcpStream::connect(address))?;
        // Through the socket, because a namespace may not choose every algorithm as its default.
        set_tcp_congestion(&sender, control)?;
        Ok((sender, listener.accept()?.0))
    }
}

impl Drop for Bottleneck {
    fn drop(&mut self) {
        for letter in ["a", "m", "b"] {
            let _ = ip(&["netns", "del", &format!("{}{letter}", self.prefix)]);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<Output> {
    run("ip", arguments)
}

fn run(program: &str, arguments: &[&str]) -> Result<Output> {
    let output = Command::new(program).args(arguments).output()?;
    if output.status.success() {
        return Ok(output);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(Error::other(format!("{program} {}: {}", arguments.join(" "), errors.trim())))
}
