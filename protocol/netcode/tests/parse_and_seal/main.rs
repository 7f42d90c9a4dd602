//! Parsers and ciphers from outside: properties of what they accept, and of what they write.

mod parsers;
mod seals;
