//! Files that were cut, mixed up or exchanged: none admits a used token.

use super::format::Check;
use super::*;

/// How a server starts with a changed file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Start {
    Refused,
    /// It accepts no tokens from before it.
    Cutoff,
    /// It knows all used tokens.
    Whole,
    /// It accepts a used token.
    Replay,
}

/// Opens a changed file, with the lock file that was beside it.
fn start(folder: &TestFolder, bytes: &[u8], names: &[u8], lock: &[u8]) -> Start {
    std::fs::write(folder.file(), bytes).unwrap();
    std::fs::write(folder.0.join("history.lock"), lock).unwrap();
    match open_unlocked(&folder.file()) {
        Err(_) => {
            assert_eq!(std::fs::read(folder.file()).unwrap(), bytes, "a refused file stays as it is");
            Start::Refused
        }
        Ok(history) if history.origin != HistoryOrigin::Continued => {
            assert_eq!(history.since(), UnixSeconds(TODAY.0 + 1));
            // Settings that accept older tokens do so only if neither file knows of an earlier start.
            let accepts_older = history.token_cutoff(TokenCutoff::None) == TokenCutoff::None;
            assert_eq!((accepts_older, history.is_new()), (bytes.is_empty() && lock.is_empty(), accepts_older));
            Start::Cutoff
        }
        Ok(history) if history.kept().used.iter().map(|used| used.name.0[0]).eq(names.iter().copied()) => Start::Whole,
        Ok(_) => Start::Replay,
    }
}

/// Moves the start of a history back, as if it was created long ago.
fn long_ago(folder: &TestFolder, count: u8) -> (Vec<u8>, Vec<u8>) {
    let mut history = folder.open();
    history.header.since = UnixSeconds(10);
    history.needs_full_write = true;
    for number in 0..count {
        history.store(&[used(number)]).unwrap();
    }
    drop(history);
    let lock = std::fs::read(folder.0.join("history.lock")).unwrap();
    (std::fs::read(folder.file()).unwrap(), lock)
}

const RECORDS: usize = 12;

fn record_range(index: usize) -> std::ops::Range<usize> {
    HEADER_BYTES + index * RECORD_BYTES..HEADER_BYTES + (index + 1) * RECORD_BYTES
}

#[test]
fn no_mutation_of_the_file_admits_a_used_token() {
    let folder = TestFolder::new("mutations");
    let (whole, lock) = long_ago(&folder, RECORDS as u8);
    let names: Vec<u8> = (0..RECORDS as u8).collect();
    let mut cases: Vec<(String, Vec<u8>, Start)> = vec![("unchanged".into(), whole.clone(), Start::Whole)];
    for length in 0..whole.len() {
        let start = match length {
            0 => Start::Cutoff,
            length if length < HEADER_BYTES => Start::Refused,
            _ => Start::Cutoff,
        };
        cases.push((format!("cut to {length} bytes"), whole[..length].to_vec(), start));
    }
    for index in 0..RECORDS {
        let is_end = index + 2 >= RECORDS;
        let without: Vec<u8> = [&whole[..record_range(index).start], &whole[record_range(index).end..]].concat();
        cases.push((format!("without record {index}"), without, if is_end { Start::Cutoff } else { Start::Refused }));
        for from in [HEADER_BYTES + index * RECORD_BYTES, HEADER_BYTES + index * RECORD_BYTES + 7] {
            let mut zeroed = whole.clone();
            zeroed[from..].fill(0);
            cases.push((format!("zeros from byte {from}"), zeroed, Start::Cutoff));
            let mut garbled = whole.clone();
            garbled[from..].iter_mut().enumerate().for_each(|(at, byte)| *byte ^= 1 + (at * 31) as u8 % 255);
            cases.push((format!("garbled from byte {from}"), garbled, Start::Cutoff));
        }
        for other in index + 1..RECORDS {
            let mut swapped = whole.clone();
            swapped[record_range(index)].copy_from_slice(&whole[record_range(other)]);
            swapped[record_range(other)].copy_from_slice(&whole[record_range(index)]);
            // Only an end without a good record looks like a crash. A record is good behind its own predecessor.
            let mut behind = index + 1..RECORDS;
            let has_good = behind.any(|at| ![index + 1, other, other + 1].contains(&at));
            let start = if has_good { Start::Refused } else { Start::Cutoff };
            cases.push((format!("records {index} and {other} swapped"), swapped, start));
        }
    }
    for byte in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[byte] ^= 0x10;
        let in_confirmation = (CONFIRMATION_OFFSET as usize..HEADER_BYTES).contains(&byte);
        // No good record follows the last one, nor the check of the one before it.
        let in_end = byte >= record_range(RECORDS - 1).start - size_of::<Check>();
        let start = if in_confirmation || in_end { Start::Cutoff } else { Start::Refused };
        cases.push((format!("byte {byte} flipped"), flipped, start));
    }
    cases.push(("a torn record more".into(), [&whole[..], b"torn!"].concat(), Start::Whole));
    cases.push(("zeros behind it".into(), [&whole[..], &[0; 100]].concat(), Start::Whole));
    let mut replays = 0;
    for (what, bytes, expected) in &cases {
        let found = start(&folder, bytes, &names, &lock);
        replays += if found == Start::Replay { RECORDS } else { 0 };
        assert_eq!(found, *expected, "{what}");
        // The confirmation in the file alone is enough: a power failure may leave an empty lock file.
        let found = start(&folder, bytes, &names, b"");
        replays += if found == Start::Replay { RECORDS } else { 0 };
        assert_eq!(found, *expected, "{what}, with an empty lock file");
    }
    println!("{replays} of {} replays accepted, {} mutations of the file", 2 * cases.len() * RECORDS, cases.len());
    assert_eq!(replays, 0);
}

#[test]
fn older_copy_of_the_file_is_noticed_by_the_lock_file() {
    let folder = TestFolder::new("older-copy");
    let names: Vec<u8> = (0..10).collect();
    let (older, older_lock) = long_ago(&folder, 10);
    assert_eq!(start(&folder, &older, &names, &older_lock), Start::Whole);
    folder.open().store(&[used(99)]).unwrap();
    let lock = std::fs::read(folder.0.join("history.lock")).unwrap();
    assert_eq!(start(&folder, &older, &names, &lock), Start::Cutoff);
    // It is noticed again: numbers that were confirmed once are not used again.
    let lock = std::fs::read(folder.0.join("history.lock")).unwrap();
    assert_eq!(start(&folder, &older, &names, &lock), Start::Cutoff);
    drop(folder.open());
    let (repaired, lock) =
        (std::fs::read(folder.file()).unwrap(), std::fs::read(folder.0.join("history.lock")).unwrap());
    assert_eq!(start(&folder, &repaired, &names, &lock), Start::Whole);
    // Another history in its place is noticed as well. An older copy of both files is not, nor is one alone.
    let (foreign, _) = long_ago(&TestFolder::new("foreign-copy"), 10);
    assert_eq!(start(&folder, &foreign, &names, &lock), Start::Cutoff);
    assert_eq!(start(&folder, &older, &names, &older_lock), Start::Whole);
    assert_eq!(start(&folder, &older, &names, b""), Start::Whole);
}

/// Otherwise an older copy would admit the tokens that were used after it.
#[test]
fn file_without_its_lock_may_be_an_older_copy() {
    let folder = TestFolder::new("missing-lock");
    let (older, _) = long_ago(&folder, 10);
    folder.open().store(&[used(99)]).unwrap();
    std::fs::write(folder.file(), &older).unwrap();
    let lock = folder.0.join("history.lock");
    std::fs::remove_file(&lock).unwrap();
    // A start that fails does not make the file look like one with its lock.
    let in_the_way = folder.0.join("history.new/x");
    std::fs::create_dir_all(&in_the_way).unwrap();
    let _ = folder.refused();
    assert!(!lock.exists(), "a failed start leaves a lock file");
    std::fs::remove_dir_all(folder.0.join("history.new")).unwrap();
    let (history, warnings) = count_warnings("the lock file beside the history file was missing", || folder.open());
    assert_eq!((history.origin, history.since(), warnings), (HistoryOrigin::Shortened, UnixSeconds(TODAY.0 + 1), 1));
    assert_eq!(history.kept().used.len(), 10);
    drop(history);
    // The refusal lasts for one start.
    let (history, warnings) = count_warnings("was missing", || folder.open());
    assert_eq!((history.origin, warnings), (HistoryOrigin::Continued, 0));
    drop(history);
    // A start that was killed after it created the lock file leaves what says so.
    std::fs::remove_file(&lock).unwrap();
    let (mut killed, _) = HistoryLock::take(&folder.file()).unwrap();
    killed.remember(LockMark::UNKNOWN);
    killed.keep();
    drop(killed);
    assert_eq!(folder.open().origin, HistoryOrigin::Shortened);
}

#[test]
fn failed_start_leaves_no_lock_file() {
    let folder = TestFolder::new("failed-start");
    std::fs::write(folder.file(), b"a letter").unwrap();
    set_private(&folder.file());
    let _ = folder.refused();
    assert!(!folder.0.join("history.lock").exists());
}

#[test]
fn lost_history_is_noticed_by_the_lock_file() {
    let folder = TestFolder::new("lost");
    // Nothing is lost with a history that has confirmed no record.
    for (records, is_lost) in [(0, false), (3, true)] {
        let _ = long_ago(&folder, records);
        std::fs::remove_file(folder.file()).unwrap();
        let history = folder.open();
        let expected = if is_lost { TokenCutoff::AtStart } else { TokenCutoff::None };
        assert_eq!((history.token_cutoff(TokenCutoff::None), history.is_new()), (expected, !is_lost));
        drop(history);
        assert_eq!(folder.open().origin, HistoryOrigin::Continued);
    }
}

#[test]
fn cutoff_of_a_shortened_file_lasts_over_further_starts() {
    let folder = TestFolder::new("cutoff-lasts");
    let (whole, lock) = long_ago(&folder, 3);
    assert_eq!(start(&folder, &whole[..length_of(2) as usize], &[], &lock), Start::Cutoff);
    let history = HistoryFile::open(folder.file(), UnixSeconds(3000)).unwrap();
    assert_eq!((history.origin, history.since()), (HistoryOrigin::Continued, UnixSeconds(TODAY.0 + 1)));
    assert_eq!(history.kept().used, [used(0), used(1)]);
}

#[test]
fn foreign_files_are_refused_and_unchanged() {
    let folder = TestFolder::new("foreign");
    for foreign in [&b"x"[..], &b"slipgate-hist-4\n"[..], &[b'#'; 100]] {
        std::fs::write(folder.file(), foreign).unwrap();
        set_private(&folder.file());
        let error = folder.refused();
        assert!(matches!(error, HistoryFileError::NotAHistory), "{error}");
        assert_eq!(std::fs::read(folder.file()).unwrap(), foreign);
    }
}

#[test]
fn any_length_of_a_torn_end_is_cut_off() {
    let folder = TestFolder::with_records("torn", 3);
    let whole = std::fs::read(folder.file()).unwrap();
    let next = [0xaa; 40];
    for torn in 1..=40 {
        std::fs::write(folder.file(), [&whole[..], &next[..torn]].concat()).unwrap();
        let mut history = folder.open();
        assert_eq!((history.origin, history.kept().used.len()), (HistoryOrigin::Continued, 3), "{torn} bytes");
        history.store(&[used(7)]).unwrap();
        drop(history);
        assert_eq!(folder.names(), [0, 1, 2, 7]);
        std::fs::write(folder.0.join("history.lock"), b"").unwrap();
    }
}

#[test]
fn file_of_too_many_records_is_refused_unread() {
    let folder = TestFolder::with_records("size", 1);
    let file = File::options().write(true).open(folder.file()).unwrap();
    // A sparse file uses no room.
    file.set_len(length_of(MAX_RECORDS) + 1).unwrap();
    assert!(matches!(folder.refused(), HistoryFileError::TooLarge));
}
