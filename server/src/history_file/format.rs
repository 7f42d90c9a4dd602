//! The bytes of a history file: header, confirmation, records and their chained checks (`specs/hardening.md`, H4).

use std::io;

use slipgate_netcode::crypto::digest::{Digest, DigestKey};
use slipgate_netcode::time::UnixSeconds;
use slipgate_netcode::token::history::UsedToken;
use zeroize::Zeroizing;

use super::HistoryFileError;

const MAGIC: &[u8; 16] = b"slipgate-hist-3\n";
/// The magic bytes of the format without chained checks.
const OLD_MAGIC: &[u8; 16] = b"slipgate-hist-2\n";
/// The offset of the digest key.
const DIGEST_KEY_OFFSET: u64 = 16;
/// The offset of the confirmation.
pub(super) const CONFIRMATION_OFFSET: u64 = 80;
pub(super) const CONFIRMATION_BYTES: usize = 24;
pub(super) const HEADER_BYTES: usize = 104;
const OLD_HEADER_BYTES: usize = 64;
pub(super) const RECORD_BYTES: usize = 32;

/// The first 8 bytes of a keyed digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Check(pub(super) [u8; 8]);

impl From<Digest> for Check {
    fn from(digest: Digest) -> Self {
        let [check @ .., _, _, _, _, _, _, _, _] = digest.0;
        Self(check)
    }
}

/// The part of the header that stays until the file is rewritten, and the key of all checks.
pub(super) struct HistoryHeader {
    pub(super) digest_key: Zeroizing<[u8; 32]>,
    checks: DigestKey,
    /// The file has every token that was used from this second on.
    pub(super) since: UnixSeconds,
    /// How many records earlier versions of the file dropped as expired. It numbers the records.
    pub(super) dropped: u64,
    /// The latest expiry of a dropped record. A clock that shows an earlier time was stepped back since.
    pub(super) dropped_until: UnixSeconds,
}

impl HistoryHeader {
    /// Returns the header of a new file with a random digest key.
    pub(super) fn new(since: UnixSeconds) -> io::Result<Self> {
        Ok(Self::of(&slipgate_os::entropy::bytes()?, since, 0, UnixSeconds(0)))
    }

    fn of(digest_key: &[u8; 32], since: UnixSeconds, dropped: u64, dropped_until: UnixSeconds) -> Self {
        let checks = DigestKey::from(&DigestKey::from(digest_key).full(&[b"history file check"]));
        Self { digest_key: Zeroizing::new(*digest_key), checks, since, dropped, dropped_until }
    }

    /// Returns the check of the header, with which the chain of the records begins.
    pub(super) fn check(&self) -> Check {
        let [since, dropped, until] = [self.since.0, self.dropped, self.dropped_until.0].map(u64::to_le_bytes);
        self.checks.digest(&[MAGIC, self.digest_key.as_slice(), &since, &dropped, &until]).into()
    }

    /// Returns the header of a rewritten file.
    pub(super) fn rewritten(&self, since: UnixSeconds, dropped: u64, dropped_until: UnixSeconds) -> Self {
        Self::of(&self.digest_key, since, dropped, dropped_until)
    }

    /// Returns the check of a record behind a record with the check `before`.
    fn record_check(&self, before: Check, used: UsedToken) -> Check {
        self.checks.digest(&[&before.0, &used.name.0, &used.expires.0.to_le_bytes()]).into()
    }

    /// Appends a record to `buf`, and returns its check.
    pub(super) fn emit_record(&self, before: Check, used: UsedToken, buf: &mut Vec<u8>) -> Check {
        let check = self.record_check(before, used);
        buf.extend_from_slice(&used.name.0);
        buf.extend_from_slice(&used.expires.0.to_le_bytes());
        buf.extend_from_slice(&check.0);
        check
    }

    /// Returns the confirmation that the file holds all records up to `end`.
    pub(super) fn confirmation(&self, end: ChainEnd) -> [u8; CONFIRMATION_BYTES] {
        let confirmed = self.number_of(end).to_le_bytes();
        let check: Check = self.checks.digest(&[b"confirmation", &self.check().0, &confirmed, &end.check.0]).into();
        let mut bytes = [0; CONFIRMATION_BYTES];
        let fields = confirmed.iter().chain(&end.check.0).chain(&check.0);
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = *from);
        bytes
    }

    /// Returns the number of the next record, which counts the records of all versions of the file.
    pub(super) const fn number_of(&self, end: ChainEnd) -> u64 {
        self.dropped.saturating_add(end.records)
    }

    /// Returns the mark of this number of records for the lock file: it names the file by its key.
    pub(super) fn lock_mark(&self, confirmed: u64) -> LockMark {
        let file: Check = self.checks.digest(&[b"history file name"]).into();
        let check = self.checks.digest(&[b"lock mark", &file.0, &confirmed.to_le_bytes()]).into();
        LockMark { file, confirmed, check }
    }

    /// Appends the header up to the confirmation.
    fn emit_unconfirmed(&self, buf: &mut Vec<u8>) {
        buf.extend_from_slice(MAGIC);
        buf.extend_from_slice(self.digest_key.as_slice());
        buf.extend_from_slice(&self.since.0.to_le_bytes());
        buf.extend_from_slice(&self.dropped.to_le_bytes());
        buf.extend_from_slice(&self.dropped_until.0.to_le_bytes());
        buf.extend_from_slice(&self.check().0);
    }

    /// Returns the header with the confirmation of all records up to `end`.
    pub(super) fn confirmed_header(&self, end: ChainEnd) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(HEADER_BYTES));
        self.emit_unconfirmed(&mut bytes);
        bytes.extend_from_slice(&self.confirmation(end));
        bytes
    }

    /// Appends the header of a whole file with these records, then the records. Returns the end of their chain.
    pub(super) fn emit(&self, records: impl Iterator<Item = UsedToken>, buf: &mut Vec<u8>) -> ChainEnd {
        self.emit_unconfirmed(buf);
        let mut end = ChainEnd { records: 0, check: self.check() };
        let confirmation_at = buf.len();
        buf.extend_from_slice(&[0; CONFIRMATION_BYTES]);
        for used in records {
            end = ChainEnd { records: end.records + 1, check: self.emit_record(end.check, used, buf) };
        }
        let confirmation = self.confirmation(end);
        buf.iter_mut().skip(confirmation_at).zip(confirmation).for_each(|(to, from)| *to = from);
        end
    }
}

/// The last record of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ChainEnd {
    /// The number of records in the file.
    pub(super) records: u64,
    /// The check of the last one, or of the header if there is none.
    pub(super) check: Check,
}

impl ChainEnd {
    /// Returns the offset behind the last record, in bytes.
    pub(super) const fn offset(self) -> u64 {
        HEADER_BYTES as u64 + self.records * RECORD_BYTES as u64
    }
}

/// What the lock file knows of the history file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LockMark {
    pub(super) file: Check,
    pub(super) confirmed: u64,
    pub(super) check: Check,
}

impl LockMark {
    /// The mark of a lock file that was missing: it fits to no history, so any may be an older copy.
    pub(super) const UNKNOWN: Self = Self { file: Check([0; 8]), confirmed: u64::MAX, check: Check([0; 8]) };
}

/// How much of a history file is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Remains {
    /// All confirmed records.
    Whole,
    /// Confirmed records may be missing. With the format without confirmations, any cut end counts.
    Shortened,
}

/// The content of a history file.
pub(super) struct ParsedHistory {
    pub(super) header: HistoryHeader,
    pub(super) used: Vec<UsedToken>,
    pub(super) end: ChainEnd,
    /// Bytes behind the last valid record.
    pub(super) torn_bytes: usize,
    pub(super) remains: Remains,
    pub(super) version: FormatVersion,
}

/// The format of a history file that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FormatVersion {
    /// `slipgate-hist-2`: each record has a check of its own.
    Separate,
    /// `slipgate-hist-3`.
    Chained,
}

impl ParsedHistory {
    /// Parses a history file of either format.
    ///
    /// # Errors
    /// - `NotAHistory` when it does not start with the magic bytes.
    /// - `Damaged` when a header's check is wrong, or a record in the middle.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, HistoryFileError> {
        if bytes.starts_with(MAGIC) {
            Self::parse_chained(bytes)
        } else if bytes.starts_with(OLD_MAGIC) {
            Self::parse_separate(bytes)
        } else {
            Err(HistoryFileError::NotAHistory)
        }
    }

    fn parse_chained(bytes: &[u8]) -> Result<Self, HistoryFileError> {
        let (header, check, confirmation) = split_header(bytes).ok_or(too_short(bytes))?;
        if header.check() != check {
            return Err(HistoryFileError::Damaged(DIGEST_KEY_OFFSET));
        }
        let records = bytes.get(HEADER_BYTES..).unwrap_or_default();
        // The check of each record covers the bytes of the one before, so a bad record does not hide a good one behind.
        let mut before = check;
        let parsed = parse_records(records, HEADER_BYTES, |record| {
            let is_valid = record.check == header.record_check(before, record.used);
            before = record.check;
            is_valid
        })?;
        let checks = parsed.iter().map(|record| record.check);
        let ends = std::iter::once(check).chain(checks).zip(0..).map(|(check, records)| ChainEnd { records, check });
        // A file holds all confirmed records if its confirmation is that of one of its records.
        let mut end = ChainEnd { records: 0, check };
        let mut remains = Remains::Shortened;
        for candidate in ends {
            let is_confirmed = Some(header.number_of(candidate)) == confirmed_number(confirmation);
            if is_confirmed && header.confirmation(candidate) == *confirmation {
                remains = Remains::Whole;
            }
            end = candidate;
        }
        let used: Vec<_> = parsed.iter().map(|record| record.used).collect();
        let torn_bytes = records.len() - used.len() * RECORD_BYTES;
        Ok(Self { header, used, end, torn_bytes, remains, version: FormatVersion::Chained })
    }

    fn parse_separate(bytes: &[u8]) -> Result<Self, HistoryFileError> {
        let (header, check) = split_old_header(bytes).ok_or(too_short(bytes))?;
        let old = header.checks.digest(&[OLD_MAGIC, header.digest_key.as_slice(), &header.since.0.to_le_bytes()]);
        if Check::from(old) != check {
            return Err(HistoryFileError::Damaged(DIGEST_KEY_OFFSET));
        }
        let records = bytes.get(OLD_HEADER_BYTES..).unwrap_or_default();
        let parsed = parse_records(records, OLD_HEADER_BYTES, |record| {
            let (name, expires) = (record.used.name.0, record.used.expires.0.to_le_bytes());
            record.check == header.checks.digest(&[&name, &expires]).into()
        })?;
        let used: Vec<_> = parsed.iter().map(|record| record.used).collect();
        let torn_bytes = records.len() - used.len() * RECORD_BYTES;
        let remains = if torn_bytes == 0 { Remains::Whole } else { Remains::Shortened };
        let end = ChainEnd { records: 0, check: header.check() };
        Ok(Self { header, used, end, torn_bytes, remains, version: FormatVersion::Separate })
    }
}

/// Returns the error of a file that ends within its header.
const fn too_short(bytes: &[u8]) -> HistoryFileError {
    HistoryFileError::Damaged(bytes.len() as u64)
}

/// Returns the header, its stored check and the confirmation.
fn split_header(bytes: &[u8]) -> Option<(HistoryHeader, Check, &[u8; CONFIRMATION_BYTES])> {
    let (digest_key, rest) = bytes.get(MAGIC.len()..)?.split_first_chunk()?;
    let (since, rest) = rest.split_first_chunk()?;
    let (dropped, rest) = rest.split_first_chunk()?;
    let (until, rest) = rest.split_first_chunk()?;
    let (check, rest) = rest.split_first_chunk()?;
    let [since, dropped, until] = [since, dropped, until].map(|bytes| u64::from_le_bytes(*bytes));
    let header = HistoryHeader::of(digest_key, UnixSeconds(since), dropped, UnixSeconds(until));
    Some((header, Check(*check), rest.first_chunk()?))
}

fn split_old_header(bytes: &[u8]) -> Option<(HistoryHeader, Check)> {
    let (digest_key, rest) = bytes.get(OLD_MAGIC.len()..)?.split_first_chunk()?;
    let (since, rest) = rest.split_first_chunk()?;
    let header = HistoryHeader::of(digest_key, UnixSeconds(u64::from_le_bytes(*since)), 0, UnixSeconds(0));
    Some((header, Check(*rest.first_chunk()?)))
}

fn confirmed_number(confirmation: &[u8; CONFIRMATION_BYTES]) -> Option<u64> {
    confirmation.first_chunk().map(|number| u64::from_le_bytes(*number))
}

/// A record and its stored check.
struct StoredRecord {
    used: UsedToken,
    check: Check,
}

impl StoredRecord {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (name, rest) = bytes.split_first_chunk()?;
        let (expires, rest) = rest.split_first_chunk()?;
        let used = UsedToken { name: Digest(*name), expires: UnixSeconds(u64::from_le_bytes(*expires)) };
        Some(Self { used, check: Check(*rest.first_chunk()?) })
    }
}

/// Parses every record up to a torn end. A valid record behind an invalid one means damage, not a torn end.
fn parse_records(
    bytes: &[u8],
    start: usize,
    mut is_valid: impl FnMut(&StoredRecord) -> bool,
) -> Result<Vec<StoredRecord>, HistoryFileError> {
    let mut records = Vec::with_capacity(bytes.len() / RECORD_BYTES);
    let mut bad = None;
    for (index, bytes) in bytes.chunks_exact(RECORD_BYTES).enumerate() {
        let Some(record) = StoredRecord::parse(bytes) else { break };
        match (is_valid(&record), bad) {
            (true, None) => records.push(record),
            (true, Some(offset)) => return Err(HistoryFileError::Damaged(offset)),
            (false, _) => bad = bad.or(Some((start + index * RECORD_BYTES) as u64)),
        }
    }
    Ok(records)
}
