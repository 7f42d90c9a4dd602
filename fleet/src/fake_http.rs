//! A fake HTTP service for the tests of the drivers: it records requests and replies as a test says.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::population::lock;

/// The longest time until something must have happened.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);

/// A request as it arrived.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct FakeRequest {
    /// The method and the path.
    pub(crate) line: String,
    pub(crate) authorization: Option<String>,
    pub(crate) body: Value,
}

type Respond = dyn Fn(&FakeRequest) -> (u16, String) + Send + Sync;

/// A service on a loopback port.
pub(crate) struct FakeHttp {
    pub(crate) port: u16,
    requests: Arc<Mutex<Vec<FakeRequest>>>,
}

impl FakeHttp {
    /// Starts a service with the responses of this function.
    pub(crate) fn start(respond: impl Fn(&FakeRequest) -> (u16, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, requests) = (listener.local_addr().unwrap().port(), Arc::default());
        let (respond, record): (Arc<Respond>, _) = (Arc::new(respond), Arc::clone(&requests));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (respond, record) = (Arc::clone(&respond), Arc::clone(&record));
                thread::spawn(move || serve(&stream.unwrap(), &*respond, &record));
            }
        });
        Self { port, requests }
    }

    pub(crate) fn requests(&self) -> Vec<FakeRequest> {
        lock(&self.requests).clone()
    }

    /// Returns the bodies of all requests with this method and path.
    pub(crate) fn bodies(&self, line: &str) -> Vec<Value> {
        self.requests().into_iter().filter(|request| request.line == line).map(|request| request.body).collect()
    }

    /// Waits until a condition on the requests holds.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&[FakeRequest]) -> bool) {
        let start = Instant::now();
        while !holds(&self.requests()) {
            assert!(start.elapsed() < MAX_WAIT, "{what}: {:?}", self.requests().last());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Serves one request of a connection, then closes it.
fn serve(mut stream: &TcpStream, respond: &Respond, record: &Mutex<Vec<FakeRequest>>) {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length, mut authorization) = (String::new(), 0, None);
    let _ = reader.read_line(&mut first);
    loop {
        let mut field = String::new();
        if reader.read_line(&mut field).unwrap_or(0) <= 2 {
            break;
        }
        let (name, value) = field.split_once(':').unwrap();
        match name.to_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap(),
            "authorization" => authorization = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    let _ = reader.read_exact(&mut body);
    let line = first.rsplit_once(' ').map_or_else(String::new, |(line, _)| line.to_owned());
    let request = FakeRequest { line, authorization, body: serde_json::from_slice(&body).unwrap_or_default() };
    let (status, body) = respond(&request);
    // Recorded after the decision of the response, so that a test that sees it knows that.
    lock(record).push(request);
    let head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
}
