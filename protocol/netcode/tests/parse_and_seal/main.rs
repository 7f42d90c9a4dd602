//! Property tests of the public parsers and ciphers.

mod parsers;
mod seals;
