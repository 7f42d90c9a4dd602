//! Messages with a type: from values to bytes, and back within bounds that the sender of the bytes cannot stretch.
