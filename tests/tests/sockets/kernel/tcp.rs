//! A TCP of the kernel that always has data to send.

use std::io::{Read, Result, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::bottleneck::Bottleneck;

/// Runs `act` beside a TCP with this congestion control, and returns the bytes that the TCP carried.
///
/// # Errors
/// Returns an error if the kernel has no such congestion control.
pub(crate) fn beside_tcp<T>(bottleneck: &Bottleneck, control: &str, act: impl FnOnce() -> T) -> Result<(T, usize)> {
    let (upload, download) = bottleneck.stream(control)?;
    let done = AtomicBool::new(false);
    Ok(thread::scope(|scope| {
        let sink = scope.spawn(|| drain(download));
        scope.spawn(|| fill(upload, &done));
        let done = EndOf(&done);
        let acted = act();
        drop(done);
        (acted, sink.join().unwrap_or(0))
    }))
}

/// Stops threads, also when a test panics: a scope waits for its threads.
pub(crate) struct EndOf<'a>(pub(crate) &'a AtomicBool);

impl Drop for EndOf<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn fill(mut stream: TcpStream, done: &AtomicBool) {
    // A full path blocks a write; it must not block for ever.
    let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
    while !done.load(Ordering::Relaxed) {
        let _ = stream.write(&[0; 16 * 1024]);
    }
}

fn drain(mut stream: TcpStream) -> usize {
    let mut bytes = vec![0; 64 * 1024];
    let mut total = 0;
    while let Ok(length @ 1..) = stream.read(&mut bytes) {
        total += length;
    }
    total
}
