//! The counters of dropped datagrams.

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use slipgate_netcode::discard::{Discard, Discards};

use crate::boundary::put;
use crate::status::{Outcome, SLIPGATE_DONE, SLIPGATE_NONE};

/// Returns the names of the reasons, with a zero at their end.
fn names() -> &'static [CString] {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    NAMES.get_or_init(|| Discard::ALL.iter().map(|reason| CString::new(reason.name()).unwrap_or_default()).collect())
}

/// Writes a counter and its name.
pub(crate) fn write(
    discards: &Discards,
    index: u32,
    count: Option<&mut MaybeUninit<u64>>,
    name: Option<&mut MaybeUninit<*const c_char>>,
) -> Outcome {
    let index = index as usize;
    let (Some(reason), Some(text)) = (Discard::ALL.get(index), names().get(index)) else { return Ok(SLIPGATE_NONE) };
    put(count, discards[*reason]);
    put(name, text.as_ptr());
    Ok(SLIPGATE_DONE)
}
