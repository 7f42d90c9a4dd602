//! Interprets the errors of batched calls: does the system lack the call?

use std::io;

/// Returns whether an error may mean that the system lacks the call (ENOSYS, EOPNOTSUPP, EINVAL) or that a sandbox
/// forbids it (EPERM). The same codes may concern one datagram only, so the caller must confirm it.
pub(super) fn may_be_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL | libc::EPERM))
}

/// Returns whether an error certainly means that the system lacks the call.
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOSYS)
}
