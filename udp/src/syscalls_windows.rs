//! The only system call of Windows that the standard library lacks.

#![allow(unsafe_code)]

use std::io;
use std::os::windows::io::{AsRawSocket, BorrowedSocket};
use std::ptr;

use windows_sys::Win32::Networking::WinSock::{SIO_UDP_CONNRESET, SOCKET, WSAIoctl};

/// Switches off that reads report ICMP messages of earlier sends (`WSAECONNRESET`): a datagram to one closed port says
/// nothing about the others.
///
/// # Errors
/// The error of `WSAIoctl`.
pub(super) fn ignore_closed_ports(socket: BorrowedSocket<'_>) -> io::Result<()> {
    let (is_reported, mut returned) = (0_u32, 0_u32);
    // SAFETY: the socket is open for the call. Input and counter are live variables of the given sizes, and without an
    // OVERLAPPED structure the call has ended when it returns.
    let status = unsafe {
        WSAIoctl(
            socket.as_raw_socket() as SOCKET,
            SIO_UDP_CONNRESET,
            (&raw const is_reported).cast(),
            size_of::<u32>() as u32,
            ptr::null_mut(),
            0,
            &raw mut returned,
            ptr::null_mut(),
            None,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
