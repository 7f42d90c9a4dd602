//! The system calls that carry many datagrams at once: `recvmmsg`, and `sendmmsg` with or without `UDP_SEGMENT`.
//!
//! The crate's only unsafe code. It knows addresses and buffers; what a refusal means is for its callers.

#![allow(unsafe_code)]

use std::io;
use std::mem::{self, MaybeUninit};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use libc::{c_int, c_uint, c_void, iovec, mmsghdr, sockaddr_in, sockaddr_in6, socklen_t};

use super::batch::BATCH;

/// One message of a call: a datagram, or several that the kernel cuts apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Where it goes.
    pub(super) to: SocketAddr,
    /// How many of the call's pieces it takes, at least 1.
    pub(super) pieces: usize,
    /// Bytes of each datagram but the last, if the pieces are datagrams of their own (`UDP_SEGMENT`).
    pub(super) segment: Option<u16>,
}

/// Room for a sender's name, of either family: the larger one's size and alignment.
type Name = sockaddr_in6;

/// Room for one control message that holds a `u16`, aligned as its header asks.
#[derive(Clone, Copy)]
#[repr(C)]
union Control {
    _aligned: libc::cmsghdr,
    _bytes: [u8; CONTROL_BYTES],
}

// SAFETY: `CMSG_SPACE` computes with its argument alone.
const CONTROL_BYTES: usize = unsafe { libc::CMSG_SPACE(size_of::<u16>() as c_uint) } as usize;

/// Receives as many datagrams as wait, each into a room of its own, and tells sender and length of each in order.
///
/// # Errors
/// Those of `recvmmsg`; `WouldBlock` when nothing waits.
pub(super) fn receive<const N: usize>(
    socket: BorrowedFd<'_>,
    rooms: &mut [[u8; N]],
    mut arrived: impl FnMut(SocketAddr, usize),
) -> io::Result<usize> {
    let mut names = [const { MaybeUninit::<Name>::uninit() }; BATCH];
    let mut pieces = [const { MaybeUninit::<iovec>::uninit() }; BATCH];
    let mut headers = [const { MaybeUninit::<mmsghdr>::uninit() }; BATCH];
    let mut asked: c_uint = 0;
    for (((room, name), piece), header) in rooms.iter_mut().zip(&mut names).zip(&mut pieces).zip(&mut headers) {
        let piece = piece.write(iovec { iov_base: room.as_mut_ptr().cast(), iov_len: N });
        let header = header.write(empty_header());
        header.msg_hdr.msg_name = name.write(unnamed()) as *mut Name as *mut c_void;
        header.msg_hdr.msg_namelen = size_of::<Name>() as socklen_t;
        header.msg_hdr.msg_iov = piece;
        header.msg_hdr.msg_iovlen = 1;
        asked += 1;
    }
    // SAFETY: the first `asked` headers are written. Each points to a name and to one piece, which live until this
    // function returns, and each piece to a room of N bytes, which `rooms` borrows for as long.
    let count = unsafe {
        libc::recvmmsg(socket.as_raw_fd(), headers.as_mut_ptr().cast(), asked, libc::MSG_DONTWAIT as _, ptr::null_mut())
    };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    for (name, header) in names.iter().zip(&headers).take(count.min(asked as usize)) {
        // SAFETY: no more are taken than were asked for, and all of those are written.
        let (name, header) = unsafe { (name.assume_init_ref(), header.assume_init_ref()) };
        arrived(address(name), header.msg_len as usize);
    }
    Ok(count)
}

/// Sends messages whose pieces lie one after another in `pieces`, and answers how many left: the next one failed.
///
/// # Errors
/// Those of `sendmmsg`, when the first message did not leave.
pub(super) fn send<'a>(
    socket: BorrowedFd<'_>,
    messages: impl Iterator<Item = Message>,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> io::Result<usize> {
    let mut iovecs = [const { MaybeUninit::<iovec>::uninit() }; BATCH];
    let mut ready = 0;
    for (room, piece) in iovecs.iter_mut().zip(pieces) {
        room.write(iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() });
        ready += 1;
    }
    let mut names = [const { MaybeUninit::<Name>::uninit() }; BATCH];
    let mut controls = [const { MaybeUninit::<Control>::uninit() }; BATCH];
    let mut headers = [const { MaybeUninit::<mmsghdr>::uninit() }; BATCH];
    let own = iovecs.as_mut_ptr().cast::<iovec>();
    let (mut asked, mut first): (c_uint, usize) = (0, 0);
    for (((message, name), control), header) in messages.zip(&mut names).zip(&mut controls).zip(&mut headers) {
        let last = first + message.pieces;
        debug_assert!(message.pieces > 0 && last <= ready, "a message has its pieces");
        if last > ready {
            break;
        }
        let header = &mut header.write(empty_header()).msg_hdr;
        header.msg_iov = own.wrapping_add(first);
        header.msg_iovlen = message.pieces as _;
        first = last;
        header.msg_namelen = write_name(name.write(unnamed()), message.to);
        header.msg_name = name.as_mut_ptr().cast();
        if let Some(bytes) = message.segment {
            // SAFETY: all zeros are a value of either field, for both are plain numbers.
            header.msg_control = (control.write(unsafe { mem::zeroed() }) as *mut Control).cast();
            header.msg_controllen = CONTROL_BYTES as _;
            write_segment(header, bytes);
        }
        asked += 1;
    }
    // SAFETY: the first `asked` headers are written. Each points to a name, to as many written pieces as it says, and to
    // none or one written control message; all of them live until this function returns, and so do the bytes that the
    // pieces point to. The kernel writes to the headers how much left, and reads the rest.
    let count = unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr().cast(), asked, FLAGS as _) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// `SOL_UDP` and `UDP_SEGMENT` (linux/udp.h), which not every C library names.
const SOL_UDP: c_int = 17;
const UDP_SEGMENT: c_int = 103;

const FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// What the kernel has dropped of what arrived for this socket since it was opened, modulo 2^32: datagrams for which
/// its receive buffer had no room, and those that its filter or their checksum refused. `None` where it does not tell.
///
/// DECISION: asked for when somebody wants to know. Told with datagrams (`SO_RXQ_OVFL`), it would cost each of them a
/// control message, and the drops after the last one would never be told.
pub(super) fn drops(socket: BorrowedFd<'_>) -> Option<u32> {
    let mut info = [0_u32; libc::SK_MEMINFO_DROPS as usize + 1];
    let mut bytes = size_of_val(&info) as socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to `info`, which is that large, and of which any bits are values.
    let result = unsafe {
        let (level, option) = (libc::SOL_SOCKET, libc::SO_MEMINFO);
        libc::getsockopt(socket.as_raw_fd(), level, option, info.as_mut_ptr().cast(), &mut bytes)
    };
    let told = result == 0 && bytes as usize == size_of_val(&info);
    info.last().copied().filter(|_| told)
}

/// Has the kernel send IPv4 datagrams of this socket whole or not at all, and answers whether that is news: then it says
/// `EMSGSIZE` of one that a path is known to be too narrow for, where it would have cut it.
///
/// The bytes on the wire are the same: the kernel forbids others to cut them by default. But it draws no
/// identification for them (RFC 6864, section 4.1: what cannot be cut needs none), which saves it 5 % of an echo.
pub(super) fn keep_whole(socket: BorrowedFd<'_>) -> bool {
    change_discovery(socket, libc::IP_PMTUDISC_WANT, libc::IP_PMTUDISC_DO)
}

/// Takes back what [`keep_whole`] did, and answers whether there was something to take back.
pub(super) fn let_cut(socket: BorrowedFd<'_>) -> bool {
    change_discovery(socket, libc::IP_PMTUDISC_DO, libc::IP_PMTUDISC_WANT)
}

/// Changes how a socket heeds the MTU of paths, if it does `from` now: where an operator has chosen otherwise for the whole
/// machine, that stays.
fn change_discovery(socket: BorrowedFd<'_>, from: c_int, to: c_int) -> bool {
    let mut now: c_int = -1;
    let mut bytes = size_of_val(&now) as socklen_t;
    let (level, option) = (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER);
    // SAFETY: the kernel writes at most `bytes` bytes to `now`, and reads as many from `to`; both are that large and plain
    // numbers.
    unsafe {
        let asked = libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut now).cast(), &mut bytes);
        asked == 0
            && now == from
            && libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const to).cast(), bytes) == 0
    }
}

/// Has the datagrams of all sockets on this one's port go to the socket whose number, in the order of binding, is that of
/// the CPU they arrived on, modulo so many: a program of three instructions that the kernel runs
/// (`SO_ATTACH_REUSEPORT_CBPF`).
///
/// # Errors
/// When the system refuses it.
pub(super) fn steer_by_cpu(socket: BorrowedFd<'_>, shards: u16) -> io::Result<()> {
    let instruction = |code: c_uint, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let cpu = (libc::SKF_AD_OFF + libc::SKF_AD_CPU) as u32;
    let mut program = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, cpu),
        instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, u32::from(shards.max(1))),
        instruction(libc::BPF_RET | libc::BPF_A, 0),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel reads a `sock_fprog`, which is as large as it is said to be, and copies the instructions to which
    // it points, which live until this function returns and are as many as it says.
    let result = unsafe {
        let (level, option) = (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF);
        let bytes = size_of_val(&program) as socklen_t;
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const program).cast(), bytes)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// From now on the kernel refuses to change this socket's filter (`SO_LOCK_FILTER`).
#[cfg(test)]
pub(super) fn lock_filter(socket: BorrowedFd<'_>) {
    let on: c_int = 1;
    // SAFETY: the kernel reads a plain number, which is as large as it is said to be.
    let result = unsafe {
        let (level, option) = (libc::SOL_SOCKET, libc::SO_LOCK_FILTER);
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const on).cast(), size_of_val(&on) as socklen_t)
    };
    assert_eq!(result, 0);
}

/// Pins this thread to the first CPU that it may use, and answers which that is.
#[cfg(test)]
pub(super) fn pin_to_one_cpu() -> usize {
    // SAFETY: all zeros are a set without CPUs; the calls read or write a set of the size that they are told, and the
    // macros' numbers stay below its size.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        let cpu = (0..libc::CPU_SETSIZE as usize).find(|cpu| libc::CPU_ISSET(*cpu, &set)).unwrap();
        let mut one: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(cpu, &mut one);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &one), 0);
        cpu
    }
}

fn empty_header() -> mmsghdr {
    // SAFETY: all zeros are a value of this struct: null pointers, and no lengths. (Some systems' structs have private
    // padding, so that it cannot be written down as one.)
    unsafe { mem::zeroed() }
}

fn unnamed() -> Name {
    // SAFETY: all zeros are a value of this struct, which holds plain numbers.
    unsafe { mem::zeroed() }
}

/// Writes the header's one control message: the size of the segments.
fn write_segment(header: &mut libc::msghdr, bytes: u16) {
    // SAFETY: the header's control points to CONTROL_BYTES bytes, aligned, which is room for one control message with a
    // u16; so the first message exists, and its data may be written, which `write_unaligned` does wherever it lies. No
    // reference is made to the message: it would be one to its head alone, and the data lies behind that.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(header);
        (*message).cmsg_level = SOL_UDP;
        (*message).cmsg_type = UDP_SEGMENT;
        (*message).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as c_uint) as _;
        ptr::write_unaligned(libc::CMSG_DATA(message).cast::<u16>(), bytes);
    }
}

/// Writes an address as the kernel reads it, and answers how many bytes it takes.
fn write_name(name: &mut Name, address: SocketAddr) -> socklen_t {
    match address {
        SocketAddr::V4(v4) => {
            // SAFETY: all zeros are a value of this struct, which holds plain numbers.
            let mut short: sockaddr_in = unsafe { mem::zeroed() };
            short.sin_family = libc::AF_INET as _;
            short.sin_port = v4.port().to_be();
            short.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
            // SAFETY: the longer struct has room for the shorter one, and an alignment that suits it.
            unsafe { ptr::from_mut(name).cast::<sockaddr_in>().write(short) };
            size_of::<sockaddr_in>() as socklen_t
        }
        SocketAddr::V6(v6) => {
            name.sin6_family = libc::AF_INET6 as _;
            name.sin6_port = v6.port().to_be();
            name.sin6_flowinfo = v6.flowinfo();
            name.sin6_addr.s6_addr = v6.ip().octets();
            name.sin6_scope_id = v6.scope_id();
            size_of::<sockaddr_in6>() as socklen_t
        }
    }
}

/// Reads an address as the kernel wrote it. A family that no such socket has would be port 0 of no host, whom nobody
/// knows and nobody can answer.
fn address(name: &Name) -> SocketAddr {
    match c_int::from(name.sin6_family) {
        libc::AF_INET => {
            // SAFETY: the longer struct holds at least the shorter one's bytes, all of them written, and is aligned for
            // it; any bits are a value of it.
            let short = unsafe { ptr::from_ref(name).cast::<sockaddr_in>().read() };
            let ip = Ipv4Addr::from(u32::from_be(short.sin_addr.s_addr));
            SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(short.sin_port)))
        }
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            SocketAddr::V6(SocketAddrV6::new(ip, u16::from_be(name.sin6_port), name.sin6_flowinfo, name.sin6_scope_id))
        }
        _ => SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)),
    }
}

/// Receives a datagram and answers its traffic class byte, if the socket was asked to tell it.
#[cfg(test)]
pub(super) fn receive_traffic_class(socket: BorrowedFd<'_>) -> Option<u8> {
    let mut bytes = [0_u8; 64];
    let mut controls = [0_u64; 8];
    let mut piece = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut header = empty_header().msg_hdr;
    (header.msg_iov, header.msg_iovlen) = (&raw mut piece, 1);
    header.msg_control = controls.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&controls) as _;
    // SAFETY: the header points to one piece and to room for control messages, aligned, as large as it says, all of which
    // live until this function returns; of control messages the kernel has written what the header says then.
    unsafe {
        assert!(libc::recvmsg(socket.as_raw_fd(), &mut header, 0) >= 0);
        let first = libc::CMSG_FIRSTHDR(&header).as_ref()?;
        let told = [(libc::IPPROTO_IP, libc::IP_TOS), (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)];
        // IPv4 tells a byte, IPv6 a number: on little-endian machines both begin with it.
        told.contains(&(first.cmsg_level, first.cmsg_type)).then(|| *libc::CMSG_DATA(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_families_are_read_as_they_were_written() {
        for text in ["192.0.2.7:40000", "0.0.0.0:0", "[2001:db8::1:2]:65535", "[fe80::1%7]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut name = unnamed();
            let bytes = write_name(&mut name, address);
            assert_eq!(bytes, if address.is_ipv4() { 16 } else { 28 });
            assert_eq!(super::address(&name), address);
        }
    }
}
