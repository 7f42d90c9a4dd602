//! Pointers of C programs: the only unsafe code of the crate.
//!
//! References to objects and structures are `Option<&T>` in the functions themselves, which C passes as pointers that
//! may be null. The rest are bytes with a length, texts that end with zero, and objects that are given and taken.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::{ptr, slice};

use crate::status::SLIPGATE_ERROR_ARGUMENT;

/// Returns the bytes of a caller. Null is allowed without bytes.
///
/// The caller of the C function guarantees that `bytes` points to `length` readable bytes.
pub(crate) fn bytes<'a>(bytes: *const u8, length: usize) -> Result<&'a [u8], i32> {
    array(bytes, length)
}

/// Returns an array of a caller. Null is allowed without elements.
///
/// The caller of the C function guarantees that `first` points to `count` readable elements.
pub(crate) fn array<'a, T: Copy>(first: *const T, count: usize) -> Result<&'a [T], i32> {
    if count == 0 {
        return Ok(&[]);
    }
    let size = count.checked_mul(size_of::<T>()).filter(|size| isize::try_from(*size).is_ok());
    if first.is_null() || !first.is_aligned() || size.is_none() {
        return Err(SLIPGATE_ERROR_ARGUMENT);
    }
    // SAFETY: the pointer is aligned and not null, the size fits, and the caller guarantees the elements. They are
    // integers, which have no invalid values.
    Ok(unsafe { slice::from_raw_parts(first, count) })
}

/// Returns the array into which a caller wants elements. Null is allowed without elements.
///
/// The caller of the C function guarantees that `first` points to `count` elements of its own.
pub(crate) fn buf<'a, T: Copy>(first: *mut T, count: usize) -> Result<&'a mut [MaybeUninit<T>], i32> {
    if count == 0 {
        return Ok(&mut []);
    }
    let size = count.checked_mul(size_of::<T>()).filter(|size| isize::try_from(*size).is_ok());
    if first.is_null() || !first.is_aligned() || size.is_none() {
        return Err(SLIPGATE_ERROR_ARGUMENT);
    }
    // SAFETY: the pointer is aligned and not null, the size fits, and the caller guarantees the elements.
    Ok(unsafe { slice::from_raw_parts_mut(first.cast(), count) })
}

/// Returns an array of a caller, to read it and to write into it. Null is allowed without elements.
///
/// The caller of the C function guarantees that `first` points to `count` elements, which nobody else uses meanwhile.
pub(crate) fn array_mut<'a, T: Copy>(first: *mut T, count: usize) -> Result<&'a mut [T], i32> {
    let elements = buf(first, count)?;
    // SAFETY: the caller guarantees the elements. They are integers and pointers, which have no invalid values.
    Ok(unsafe { &mut *(ptr::from_mut(elements) as *mut [T]) })
}

/// Returns a text of a caller in UTF-8.
pub(crate) fn text<'a>(text: *const c_char, length: usize) -> Result<&'a str, i32> {
    str::from_utf8(bytes(text.cast(), length)?).map_err(|_| SLIPGATE_ERROR_ARGUMENT)
}

/// Returns a text of a caller in UTF-8 that ends with zero; an empty one for null.
///
/// The caller of the C function guarantees that the text ends with zero.
pub(crate) fn c_text<'a>(text: *const c_char) -> Result<&'a str, i32> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: the pointer is not null, and the caller guarantees a text that ends with zero.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| SLIPGATE_ERROR_ARGUMENT)
}

/// Copies a text into the buffer of a caller, with a zero at its end, cut between two characters if it is too long.
pub(crate) fn write_text(text: &str, to: *mut c_char, capacity: usize) {
    let Ok(to) = buf(to.cast::<u8>(), capacity) else { return };
    let Some(space) = to.len().checked_sub(1) else { return };
    let text = &text.as_bytes().get(..text.floor_char_boundary(space)).unwrap_or_default();
    for (to, byte) in to.iter_mut().zip(text.iter().chain(&[0])) {
        to.write(*byte);
    }
}

/// Gives an object to a caller, which frees it with [`take`].
pub(crate) fn give<T>(object: T) -> *mut T {
    Box::into_raw(Box::new(object))
}

/// Takes an object back from a caller; `None` for null.
///
/// The caller of the C function guarantees that the object is one of [`give`], and was not taken before.
pub(crate) fn take<T>(object: *mut T) -> Option<Box<T>> {
    // SAFETY: the pointer is not null, and the caller guarantees that it is of `give` and used for the last time.
    (!object.is_null()).then(|| unsafe { Box::from_raw(object) })
}

/// Returns a structure of a caller; `None` for null, and an error where no such structure can lie.
///
/// The caller of the C function guarantees that the pointer is null or of a structure that does not change meanwhile.
pub(crate) fn optional<'a, T: Copy>(structure: *const T) -> Result<Option<&'a T>, i32> {
    if !structure.is_aligned() {
        return Err(SLIPGATE_ERROR_ARGUMENT);
    }
    // SAFETY: the caller guarantees the structure. Its fields are integers and pointers, without invalid values.
    Ok(unsafe { structure.as_ref() })
}

/// Returns an object as a C program passes it, for the tests.
#[cfg(test)]
pub(crate) fn object<'a, T>(object: *mut T) -> Option<&'a mut T> {
    // SAFETY: the tests pass objects that they own, from one thread.
    unsafe { object.as_mut() }
}

/// Returns a structure that a function has written, for the tests.
#[cfg(test)]
pub(crate) fn read<T: Copy>(written: &MaybeUninit<T>) -> T {
    // SAFETY: the tests call it after the function has returned `SLIPGATE_DONE`.
    unsafe { written.assume_init() }
}

/// Returns no object, for a call that failed.
pub(crate) const fn none<T>() -> *mut T {
    ptr::null_mut()
}
