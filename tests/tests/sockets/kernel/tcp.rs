//! A TCP of the kernel's own that always has something to send.

use std::io::{Read, Result, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::place::Place;

/// Does something beside a TCP with this congestion control, and answers how many bytes that one brought over.
///
/// # Errors
/// The kernel has no such congestion control.
pub(crate) fn beside_tcp<T>(place: &Place, control: &str, act: impl FnOnce() -> T) -> Result<(T, usize)> {
    let (upload, download) = place.stream(control)?;
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

/// Tells threads to end, also when a test panics: a scope waits for its threads.
pub(crate) struct EndOf<'a>(pub(crate) &'a AtomicBool);

impl Drop for EndOf<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn fill(mut stream: TcpStream, done: &AtomicBool) {
    // A full path makes a write wait; it must not wait for ever.
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
