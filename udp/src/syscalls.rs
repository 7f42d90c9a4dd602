//! The batched system calls: `recvmmsg`, and `sendmmsg` with or without `UDP_SEGMENT`; and those that the standard
//! library lacks.
//!
//! The only unsafe code of the crate. It knows addresses and buffers; callers interpret errors.

#![allow(unsafe_code)]

use std::io;
use std::mem::{self, MaybeUninit};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

use libc::{c_int, c_uint, c_void, iovec, mmsghdr, sockaddr_in, sockaddr_in6, socklen_t};

use super::batch::BATCH_SIZE;

/// A message of a `sendmmsg` call: a datagram, or several that the kernel segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutgoingMessage {
    /// The destination.
    pub(super) to: SocketAddr,
    /// How many of the call's buffers it consists of, at least 1.
    pub(super) pieces: usize,
    /// The segment size (`UDP_SEGMENT`): the size in bytes of each datagram except the last. `None` for a single
    /// datagram.
    pub(super) segment: Option<u16>,
}

/// Storage for a socket address of either family: the size and alignment of the larger one.
type SocketAddress = sockaddr_in6;

/// Storage for one control message that holds a `u16`, with the alignment of its header.
#[derive(Clone, Copy)]
#[repr(C)]
union ControlBuf {
    _aligned: libc::cmsghdr,
    _bytes: [u8; CONTROL_BYTES],
}

// SAFETY: `CMSG_SPACE` only computes with its argument.
const CONTROL_BYTES: usize = unsafe { libc::CMSG_SPACE(size_of::<u16>() as c_uint) } as usize;

/// Receives waiting datagrams, one into each buffer. Calls `on_datagram` with source and length of each, in order.
/// Returns how many were received.
///
/// # Errors
/// The errors of `recvmmsg`; `WouldBlock` if no datagram waits.
pub(super) fn receive<const N: usize>(
    socket: BorrowedFd<'_>,
    buffers: &mut [[u8; N]],
    mut on_datagram: impl FnMut(SocketAddr, usize),
) -> io::Result<usize> {
    let mut names = [const { MaybeUninit::<SocketAddress>::uninit() }; BATCH_SIZE];
    let mut pieces = [const { MaybeUninit::<iovec>::uninit() }; BATCH_SIZE];
    let mut headers = [const { MaybeUninit::<mmsghdr>::uninit() }; BATCH_SIZE];
    let mut requested: c_uint = 0;
    for (((buffer, name), iov), header) in buffers.iter_mut().zip(&mut names).zip(&mut pieces).zip(&mut headers) {
        let iov = iov.write(iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: N });
        let header = header.write(empty_header());
        header.msg_hdr.msg_name = name.write(empty_address()) as *mut SocketAddress as *mut c_void;
        header.msg_hdr.msg_namelen = size_of::<SocketAddress>() as socklen_t;
        header.msg_hdr.msg_iov = iov;
        header.msg_hdr.msg_iovlen = 1;
        requested += 1;
    }
    // SAFETY: the first `requested` headers are initialized. Each points to a name and to one piece, and each piece to
    // a buffer of N bytes. Names, pieces and buffers live until this function returns.
    let count = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr().cast(),
            requested,
            libc::MSG_DONTWAIT as _,
            ptr::null_mut(),
        )
    };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    for (name, header) in names.iter().zip(&headers).take(count.min(requested as usize)) {
        // SAFETY: the loop reads at most `requested` headers and names, and the kernel or this function initialized
        // them.
        let (name, header) = unsafe { (name.assume_init_ref(), header.assume_init_ref()) };
        on_datagram(address(name), header.msg_len as usize);
    }
    Ok(count)
}

/// Sends messages. `pieces` holds their buffers one after another. Returns how many messages left; the next one failed.
///
/// # Errors
/// The errors of `sendmmsg` for the first message.
pub(super) fn send<'a>(
    socket: BorrowedFd<'_>,
    messages: impl Iterator<Item = OutgoingMessage>,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> io::Result<usize> {
    let mut iovecs = [const { MaybeUninit::<iovec>::uninit() }; BATCH_SIZE];
    let mut ready = 0;
    for (buffer, iov) in iovecs.iter_mut().zip(pieces) {
        buffer.write(iovec { iov_base: iov.as_ptr().cast_mut().cast(), iov_len: iov.len() });
        ready += 1;
    }
    let mut names = [const { MaybeUninit::<SocketAddress>::uninit() }; BATCH_SIZE];
    let mut controls = [const { MaybeUninit::<ControlBuf>::uninit() }; BATCH_SIZE];
    let mut headers = [const { MaybeUninit::<mmsghdr>::uninit() }; BATCH_SIZE];
    let first_iov = iovecs.as_mut_ptr().cast::<iovec>();
    let (mut requested, mut first): (c_uint, usize) = (0, 0);
    for (((message, name), control), header) in messages.zip(&mut names).zip(&mut controls).zip(&mut headers) {
        let last = first + message.pieces;
        debug_assert!(message.pieces > 0 && last <= ready, "each message has its buffers");
        if last > ready {
            break;
        }
        let header = &mut header.write(empty_header()).msg_hdr;
        header.msg_iov = first_iov.wrapping_add(first);
        header.msg_iovlen = message.pieces as _;
        first = last;
        header.msg_namelen = write_address(name.write(empty_address()), message.to);
        header.msg_name = name.as_mut_ptr().cast();
        if let Some(bytes) = message.segment {
            // SAFETY: all zeros are a valid value of either field, because both are plain numbers.
            header.msg_control = (control.write(unsafe { mem::zeroed() }) as *mut ControlBuf).cast();
            header.msg_controllen = CONTROL_BYTES as _;
            write_segment(header, bytes);
        }
        requested += 1;
    }
    // SAFETY: the first `requested` headers are initialized. Each points to a name, to the stated number of pieces, and
    // to at most one control message. These and the bytes behind the pieces are initialized and live until this
    // function returns. The kernel writes only the number of sent bytes into the headers.
    let count = unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr().cast(), requested, FLAGS as _) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// `SOL_UDP` and `UDP_SEGMENT` (linux/udp.h), which some versions of libc do not define.
const SOL_UDP: c_int = 17;
const UDP_SEGMENT: c_int = 103;

const FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// Returns how many datagrams the kernel has dropped for this socket since it was opened, modulo 2^32: for full receive
/// buffers, the filter and wrong checksums. `None` where the kernel does not report it.
///
/// DECISION: it is read on request. Reported with datagrams (`SO_RXQ_OVFL`), it would cost each of them a control
/// message, and drops after the last datagram would never be reported.
pub(super) fn read_drops(socket: BorrowedFd<'_>) -> Option<u32> {
    let mut info = [0_u32; libc::SK_MEMINFO_DROPS as usize + 1];
    let mut bytes = size_of_val(&info) as socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to `info`, which has that size and for which all bit patterns are
    // valid.
    let result = unsafe {
        let (level, option) = (libc::SOL_SOCKET, libc::SO_MEMINFO);
        libc::getsockopt(socket.as_raw_fd(), level, option, info.as_mut_ptr().cast(), &mut bytes)
    };
    let reported = result == 0 && bytes as usize == size_of_val(&info);
    info.last().copied().filter(|_| reported)
}

/// Forbids the kernel to fragment IPv4 datagrams of this socket. Returns whether that is a change. The kernel then
/// reports `EMSGSIZE` for a datagram that exceeds the known MTU of its path instead of fragmenting it.
///
/// The bytes on the wire are the same, because the kernel sets the don't-fragment bit by default. But it draws no
/// identification for such datagrams (RFC 6864, section 4.1), which saves 5 % of an echo.
pub(super) fn forbid_fragmentation(socket: BorrowedFd<'_>) -> bool {
    change_discovery(socket, libc::IP_PMTUDISC_WANT, libc::IP_PMTUDISC_DO)
}

/// Reverts [`forbid_fragmentation`]. Returns whether that is a change.
pub(super) fn allow_fragmentation(socket: BorrowedFd<'_>) -> bool {
    change_discovery(socket, libc::IP_PMTUDISC_DO, libc::IP_PMTUDISC_WANT)
}

/// Changes the path MTU discovery mode of a socket if it is `from` now. Another mode was chosen by an operator for the
/// whole machine, and stays.
fn change_discovery(socket: BorrowedFd<'_>, from: c_int, to: c_int) -> bool {
    let mut now: c_int = -1;
    let mut bytes = size_of_val(&now) as socklen_t;
    let (level, option) = (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER);
    // SAFETY: the kernel writes at most `bytes` bytes to `now` and reads `bytes` bytes from `to`. Both are plain
    // numbers of that size.
    unsafe {
        let requested = libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut now).cast(), &mut bytes);
        requested == 0
            && now == from
            && libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const to).cast(), bytes) == 0
    }
}

/// Distributes the datagrams of the socket's port by CPU: the socket at index (CPU of arrival) modulo `shards`, in the
/// order of binding, receives them. The kernel runs a program of three instructions for that
/// (`SO_ATTACH_REUSEPORT_CBPF`).
///
/// # Errors
/// The error of the system if it refuses the program.
pub(super) fn steer_by_cpu(socket: BorrowedFd<'_>, shards: u16) -> io::Result<()> {
    let instruction = |code: c_uint, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let cpu = (libc::SKF_AD_OFF + libc::SKF_AD_CPU) as u32;
    let mut program = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, cpu),
        instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, u32::from(shards.max(1))),
        instruction(libc::BPF_RET | libc::BPF_A, 0),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel reads a `sock_fprog` of the stated size, and copies the instructions behind its pointer. Their
    // number is the stated one, and they live until this function returns.
    let result = unsafe {
        let (level, option) = (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF);
        let bytes = size_of_val(&program) as socklen_t;
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const program).cast(), bytes)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Locks this socket's filter (`SO_LOCK_FILTER`): the kernel refuses further changes.
#[cfg(test)]
pub(super) fn lock_filter(socket: BorrowedFd<'_>) {
    let on: c_int = 1;
    // SAFETY: the kernel reads a plain number of the stated size.
    let result = unsafe {
        let (level, option) = (libc::SOL_SOCKET, libc::SO_LOCK_FILTER);
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const on).cast(), size_of_val(&on) as socklen_t)
    };
    assert_eq!(result, 0);
}

/// Pins this thread to the first permitted CPU and returns it.
#[cfg(test)]
pub(super) fn pin_to_one_cpu() -> usize {
    // SAFETY: all zeros are an empty set. The calls read or write a set of the stated size, and the macros get CPU
    // numbers below that size.
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

/// Returns how many bytes of the C library's allocator the program uses, modulo 2^32.
#[cfg(target_env = "gnu")]
pub(super) fn used_heap_bytes() -> u32 {
    // SAFETY: it reads counts, under the allocator's locks. (`mallinfo2` needs glibc 2.33.)
    let info = unsafe { libc::mallinfo() };
    // Large allocations are outside of the heap, each with a mapping of its own.
    info.uordblks.cast_unsigned().wrapping_add(info.hblkhd.cast_unsigned())
}

/// Returns freed memory to the system, in whole pages.
#[cfg(target_env = "gnu")]
pub(super) fn return_free_heap() {
    // SAFETY: it changes only memory that is free, under the allocator's locks.
    unsafe { libc::malloc_trim(0) };
}

/// The scheduling attributes of a thread: the first version of the kernel's `sched_attr`, 48 bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct SchedulingAttributes {
    bytes: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// The time slice in nanoseconds, for the usual policy, from Linux 6.12 on; 0 before.
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Returns the time slice of this thread, `None` if the kernel does not report it or the thread has another policy than
/// the usual one.
pub(super) fn time_slice() -> Option<Duration> {
    let attributes = scheduling_attributes().ok()?;
    let is_usual = attributes.policy == libc::SCHED_OTHER.cast_unsigned();
    (is_usual && attributes.runtime > 0).then(|| Duration::from_nanos(attributes.runtime))
}

/// Sets the time slice of this thread, unless it has a shorter one.
///
/// # Errors
/// `Unsupported` if the kernel reports no slice, or the thread has another policy than the usual one; otherwise the
/// error of the system call.
pub(super) fn shorten_time_slice(slice: Duration) -> io::Result<()> {
    let present = time_slice().ok_or(io::ErrorKind::Unsupported)?;
    if present <= slice {
        return Ok(());
    }
    let attributes = SchedulingAttributes { runtime: slice.as_nanos() as u64, ..scheduling_attributes()? };
    let this_thread: libc::pid_t = 0;
    // SAFETY: the kernel reads as many bytes as `bytes` says, which are those of the struct.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, this_thread, &raw const attributes, 0 as c_uint) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn scheduling_attributes() -> io::Result<SchedulingAttributes> {
    let bytes = size_of::<SchedulingAttributes>() as c_uint;
    let mut attributes = SchedulingAttributes::default();
    let this_thread: libc::pid_t = 0;
    // SAFETY: the kernel writes at most `bytes` bytes, which are those of the struct. All bit patterns are valid.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_getattr, this_thread, &raw mut attributes, bytes, 0 as c_uint) };
    if result == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}

fn empty_header() -> mmsghdr {
    // SAFETY: all zeros are a valid value of this struct: null pointers and zero lengths. Some systems have private
    // padding fields in it, so a struct literal is not possible.
    unsafe { mem::zeroed() }
}

fn empty_address() -> SocketAddress {
    // SAFETY: all zeros are a valid value of this struct, which holds plain numbers.
    unsafe { mem::zeroed() }
}

/// Writes the control message with the segment size.
fn write_segment(header: &mut libc::msghdr, bytes: u16) {
    // SAFETY: `msg_control` points to CONTROL_BYTES aligned bytes, the space of one control message with a u16. The
    // first message therefore exists, and its data may be written; `write_unaligned` needs no alignment. No reference
    // to the message is created, because it would cover the message's head but not its data.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(header);
        (*message).cmsg_level = SOL_UDP;
        (*message).cmsg_type = UDP_SEGMENT;
        (*message).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as c_uint) as _;
        ptr::write_unaligned(libc::CMSG_DATA(message).cast::<u16>(), bytes);
    }
}

/// Writes an address in the kernel's format and returns its length in bytes.
fn write_address(name: &mut SocketAddress, address: SocketAddr) -> socklen_t {
    match address {
        SocketAddr::V4(v4) => {
            // SAFETY: all zeros are a valid value of this struct, which holds plain numbers.
            let mut short: sockaddr_in = unsafe { mem::zeroed() };
            short.sin_family = libc::AF_INET as _;
            short.sin_port = v4.port().to_be();
            short.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
            // SAFETY: the longer struct has space for the shorter one, and a sufficient alignment.
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

/// Reads an address in the kernel's format. Another family becomes port 0 of no host, to which no client corresponds
/// and nothing can be sent.
fn address(name: &SocketAddress) -> SocketAddr {
    match c_int::from(name.sin6_family) {
        libc::AF_INET => {
            // SAFETY: the longer struct has all bytes of the shorter one, initialized and aligned, and all bit patterns
            // of the shorter one are valid.
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

/// Receives a datagram. Returns its traffic class byte if the socket is set to report it.
#[cfg(test)]
pub(super) fn receive_traffic_class(socket: BorrowedFd<'_>) -> Option<u8> {
    let mut bytes = [0_u8; 64];
    let mut controls = [0_u64; 8];
    let mut iov = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut header = empty_header().msg_hdr;
    (header.msg_iov, header.msg_iovlen) = (&raw mut iov, 1);
    header.msg_control = controls.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&controls) as _;
    // SAFETY: the header points to one piece and to an aligned buffer of the stated size for control messages. Both
    // live until this function returns. After the call the header states how many bytes of messages the kernel wrote.
    unsafe {
        assert!(libc::recvmsg(socket.as_raw_fd(), &mut header, 0) >= 0);
        let first = libc::CMSG_FIRSTHDR(&header).as_ref()?;
        let reported = [(libc::IPPROTO_IP, libc::IP_TOS), (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)];
        // IPv4 reports a byte and IPv6 an integer; on little-endian machines both begin with the value.
        reported.contains(&(first.cmsg_level, first.cmsg_type)).then(|| *libc::CMSG_DATA(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_families_round_trip() {
        for text in ["192.0.2.7:40000", "0.0.0.0:0", "[2001:db8::1:2]:65535", "[fe80::1%7]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut name = empty_address();
            let bytes = write_address(&mut name, address);
            assert_eq!(bytes, if address.is_ipv4() { 16 } else { 28 });
            assert_eq!(super::address(&name), address);
        }
    }
}
