//! The boundary: no panic leaves the library, and an object in which one happened is not used again.

use std::mem::MaybeUninit;
use std::panic::{self, AssertUnwindSafe};

use crate::pointer;
use crate::status::{Outcome, SLIPGATE_ERROR_ARGUMENT, SLIPGATE_ERROR_PANIC};

/// An object of a C program. It is poisoned after a panic, because the panic may have left it half changed.
#[derive(Debug)]
pub(crate) struct Guarded<T> {
    value: T,
    is_poisoned: bool,
}

impl<T> Guarded<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { value, is_poisoned: false }
    }

    /// Runs a body with the value, unless an earlier body has panicked.
    #[inline]
    pub(crate) fn run(&mut self, body: impl FnOnce(&mut T) -> Outcome) -> i32 {
        if self.is_poisoned {
            return SLIPGATE_ERROR_PANIC;
        }
        let value = &mut self.value;
        match panic::catch_unwind(AssertUnwindSafe(|| body(value))) {
            Ok(Ok(status) | Err(status)) => status,
            Err(payload) => {
                self.is_poisoned = true;
                // The payload's own destructor could panic. The payload of that panic is leaked.
                if let Err(second) = panic::catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                    std::mem::forget(second);
                }
                SLIPGATE_ERROR_PANIC
            }
        }
    }
}

/// Runs a body that has no object.
pub(crate) fn run(body: impl FnOnce() -> Outcome) -> i32 {
    Guarded::new(()).run(|()| body())
}

/// Frees an object; its destructor may send, and a panic in it must not leave.
pub(crate) fn free<T>(object: *mut T) {
    run(|| {
        drop(pointer::take(object));
        Ok(0)
    });
}

/// Returns the pointer's object, or the error for null.
pub(crate) fn some<T>(pointer: Option<T>) -> Result<T, i32> {
    pointer.ok_or(SLIPGATE_ERROR_ARGUMENT)
}

/// Writes a result where the caller wants it; nothing for null.
pub(crate) const fn put<T: Copy>(out: Option<&mut MaybeUninit<T>>, value: T) {
    if let Some(out) = out {
        out.write(value);
    }
}
