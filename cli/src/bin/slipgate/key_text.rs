//! The text of a key file, for the commands that write one.

use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::time::UnixSeconds;
use slipgate_token_issuer::key_file::ScheduledKey;
use zeroize::Zeroizing;

/// More than three keys with ids and times need: a growing text would leave copies that are not wiped.
const MAX_TEXT_BYTES: usize = 1024;

/// The text of a key file, newest key first.
pub(crate) struct KeyText(Zeroizing<String>);

impl KeyText {
    /// Returns a text without a key.
    pub(crate) fn new() -> Self {
        let mut text = Zeroizing::new(String::with_capacity(MAX_TEXT_BYTES));
        text.push_str("# Slipgate private keys, newest first. Shared by token issuer and game servers; secret.\n");
        Self(text)
    }

    /// Adds a key without an id, with which issuers seal at once.
    pub(crate) fn add(&mut self, key: &Key) {
        self.add_line(key, None, UnixSeconds(0));
    }

    /// Adds a key with its id and its time.
    pub(crate) fn add_scheduled(&mut self, key: &ScheduledKey) {
        self.add_line(key.key(), key.id(), key.not_before());
    }

    fn add_line(&mut self, key: &Key, id: Option<&str>, not_before: UnixSeconds) {
        self.0.push_str(&Zeroizing::new(hex::encode(key.expose())));
        if let Some(id) = id {
            self.0.push_str(&format!(" id={id}"));
        }
        if not_before.0 > 0 {
            self.0.push_str(&format!(" not-before={}", not_before.0));
        }
        self.0.push('\n');
    }

    /// Returns the bytes of the file.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}
