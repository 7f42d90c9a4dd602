//! The requests of the benchmark, and connections to the issuer.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::program::{MAX_WAIT, Program, TestFolder};

/// The issuer's address, and what is sent to it.
pub(crate) struct Requests {
    pub(crate) server: SocketAddr,
    pub(crate) health: Vec<u8>,
    pub(crate) mint: Vec<u8>,
    /// A request for a token with an API key that the issuer does not know.
    pub(crate) wrong_key: Vec<u8>,
}

impl Requests {
    pub(crate) fn new(program: &Program, folder: &TestFolder) -> Self {
        let key = folder.api_key.expose();
        let wrong = format!("{}{}", &key[..4], "0".repeat(key.len() - 4));
        Self {
            server: program.url("").strip_prefix("http://").unwrap().parse().unwrap(),
            health: b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
            mint: mint_with(key),
            wrong_key: mint_with(&wrong),
        }
    }

    /// Opens a connection as a backend does.
    pub(crate) fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.server, MAX_WAIT)?;
        stream.set_read_timeout(Some(MAX_WAIT))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Opens a connection of an attack, without waiting. Its close leaves no state in the attacker's system.
    pub(crate) fn connect_at_once(&self, from: Ipv4Addr) -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.set_linger(Some(Duration::ZERO))?;
        if from != Ipv4Addr::LOCALHOST {
            socket.bind(&SocketAddr::from((from, 0)).into())?;
        }
        match socket.connect(&self.server.into()) {
            Err(error) if error.raw_os_error() != Some(IN_PROGRESS) && error.kind() != ErrorKind::WouldBlock => {
                Err(error)
            }
            _ => Ok(socket.into()),
        }
    }

    /// Mints a token. Returns the body of the response.
    pub(crate) fn body_of_a_token(&self) -> Vec<u8> {
        let mut stream = self.connect().unwrap();
        stream.write_all(&self.mint).unwrap();
        let (mut response, mut buf) = (Vec::new(), [0; 8192]);
        while !response.ends_with(b"]}") {
            let count = stream.read(&mut buf).unwrap();
            response.extend_from_slice(&buf[..count]);
        }
        let head = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
        response.split_off(head + 4)
    }

    /// Mints a token. Returns whether the issuer answered before the connection ended.
    pub(crate) fn mint_on(&self, stream: &mut TcpStream) -> bool {
        if stream.write_all(&self.mint).is_err() {
            return false;
        }
        let (mut response, mut buf) = (Vec::new(), [0; 8192]);
        while !response.ends_with(b"]}") {
            match stream.read(&mut buf) {
                Ok(count) if count > 0 => response.extend_from_slice(&buf[..count]),
                _ => return false,
            }
        }
        assert!(response.starts_with(b"HTTP/1.1 201 "), "{}", String::from_utf8_lossy(&response));
        true
    }
}

/// `EINPROGRESS` of Linux.
const IN_PROGRESS: i32 = 115;

fn mint_with(key: &str) -> Vec<u8> {
    let body = r#"{"client_id": "77"}"#;
    let head = format!(
        "POST /v1/tokens HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body.as_bytes()].concat()
}
