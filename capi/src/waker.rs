//! A waker: it ends the wait of a server from another thread.

use slipgate_server::sockets::Waker;

use crate::boundary::{free, run, some};
use crate::pointer;
use crate::server::{CServer, waker_of};
use crate::status::SLIPGATE_DONE;

/// A handle that ends the wait of a server.
pub struct CWaker(Waker);

/// Creates a waker, which may outlive the server.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_waker_new(server: Option<&mut CServer>, out: Option<&mut *mut CWaker>) -> i32 {
    let Ok(out) = some(out) else { return crate::status::SLIPGATE_ERROR_ARGUMENT };
    *out = pointer::none();
    waker_of(server, |waker| *out = pointer::give(CWaker(waker)))
}

/// Ends the current wait of the server, or the next one. Any thread may call it at any time.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_waker_wake(waker: Option<&CWaker>) -> i32 {
    run(|| {
        some(waker)?.0.wake();
        Ok(SLIPGATE_DONE)
    })
}

/// Frees a waker. Null is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_waker_free(waker: *mut CWaker) {
    free(waker);
}
