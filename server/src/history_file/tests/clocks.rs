//! Wall clocks that are stepped while the server runs and between its starts.

use slipgate_netcode::time::{Instant, UnixMillis};
use std::time::Duration;

use super::*;

const HOUR: u64 = 3600;

/// The wall clock shows `unix` seconds, `monotonic` seconds after the start.
fn at(monotonic: u64, unix: u64) -> Now {
    Now { monotonic: Instant::from_start(Duration::from_secs(monotonic)), unix: UnixMillis::from(UnixSeconds(unix)) }
}

fn expiring(number: u8, expires: u64) -> UsedToken {
    UsedToken { expires: UnixSeconds(expires), ..used(number) }
}

/// Opens the history at `unix` seconds, and lets its clocks show `now`.
fn open_at(folder: &TestFolder, unix: u64) -> (HistoryFile, Arc<Mutex<Now>>) {
    let mut history = HistoryFile::open(folder.file(), UnixSeconds(unix)).unwrap();
    let now = Arc::new(Mutex::new(at(0, unix)));
    let clocks = Arc::clone(&now);
    history.read_clocks = Box::new(move || *clocks.lock().unwrap());
    (history, now)
}

#[test]
fn clock_stepped_ahead_drops_no_token_in_a_rewrite() {
    let folder = TestFolder::new("stepped-ahead");
    let (mut history, now) = open_at(&folder, 1000);
    history.store(&[expiring(1, 1045)]).unwrap();
    *now.lock().unwrap() = at(10, 1010 + HOUR);
    history.store(&[expiring(2, 1050 + HOUR)]).unwrap();
    history.rewrite(&[expiring(3, 1051 + HOUR)]).unwrap();
    assert_eq!(history.kept().used.len(), 3);
    // 45 s after its use by the monotonic clock the first one has expired.
    *now.lock().unwrap() = at(44, 1044 + HOUR);
    history.rewrite(&[]).unwrap();
    assert_eq!(history.kept().used.len(), 3);
    *now.lock().unwrap() = at(45, 1045 + HOUR);
    history.rewrite(&[]).unwrap();
    assert_eq!(history.kept().used, [expiring(2, 1050 + HOUR), expiring(3, 1051 + HOUR)]);
    // The clock is right again, 46 s after the start of the server, and another server starts.
    drop(history);
    let (history, _) = open_at(&folder, 1046);
    assert_eq!((history.origin, history.kept().used.len()), (HistoryOrigin::Continued, 2));
}

#[test]
fn tokens_dropped_by_a_wrong_clock_are_refused_when_it_is_right() {
    let folder = TestFolder::new("dropped");
    let (mut history, _) = open_at(&folder, 1000);
    history.store(&[expiring(1, 1045), expiring(2, 1030)]).unwrap();
    drop(history);
    // A start an hour ahead drops both. Neither is in the next file, but until when they count is.
    for _ in 0..2 {
        let (history, _) = open_at(&folder, 1010 + HOUR);
        assert_eq!(history.kept().dropped_until, UnixSeconds(1045), "fresh tokens expire later");
        assert_eq!((history.origin, history.len()), (HistoryOrigin::Continued, 0));
    }
    for (unix, origin) in [(1020, HistoryOrigin::ClockSteppedBack), (1044, HistoryOrigin::ClockSteppedBack)] {
        let open = || open_at(&folder, unix).0;
        let (history, warnings) = count_warnings("the wall clock was stepped back", open);
        assert_eq!((history.origin, history.since(), warnings), (origin, UnixSeconds(1045), 1));
        for configured in [TokenCutoff::AtStart, TokenCutoff::None] {
            assert_eq!(history.token_cutoff(configured), TokenCutoff::At(UnixSeconds(1045).into()));
        }
    }
    let (history, warnings) = count_warnings("the wall clock was stepped back", || open_at(&folder, 1045).0);
    assert_eq!((history.origin, warnings), (HistoryOrigin::Continued, 0), "the dropped tokens have expired");
}

#[test]
fn expiry_dropped_by_a_running_server_is_in_its_file() {
    let folder = TestFolder::new("dropped-running");
    let (mut history, now) = open_at(&folder, 1000);
    // The clock is 50 s ahead for longer than a token lives.
    *now.lock().unwrap() = at(10, 1060);
    history.store(&[expiring(1, 1105)]).unwrap();
    *now.lock().unwrap() = at(60, 1110);
    history.rewrite(&[]).unwrap();
    assert!(history.kept().used.is_empty());
    drop(history);
    let (history, _) = open_at(&folder, 1070);
    assert_eq!(history.token_cutoff(TokenCutoff::AtStart), TokenCutoff::At(UnixSeconds(1105).into()));
}

/// Opens a file of a clock that was ahead with the right one. It must accept what is minted from now on.
fn check_that_no_fresh_token_is_refused(folder: &TestFolder, unix: u64) {
    let open = || open_at(folder, unix).0;
    let (history, warnings) = count_warnings("the wall clock was far ahead", open);
    assert_eq!((history.origin, history.since(), warnings), (HistoryOrigin::ClockWasAhead, UnixSeconds(unix + 1), 1));
    for configured in [TokenCutoff::AtStart, TokenCutoff::None] {
        assert_eq!(history.token_cutoff(configured), TokenCutoff::AtStart, "tokens from before are refused");
    }
    assert!(history.kept().dropped_until <= UnixSeconds(unix));
    drop(history);
    let (history, warnings) = count_warnings("the wall clock was", || open_at(folder, unix + 5).0);
    assert_eq!((history.origin, history.since(), warnings), (HistoryOrigin::Continued, UnixSeconds(unix + 1), 0));
    assert!(history.kept().dropped_until <= UnixSeconds(unix + 5));
}

#[test]
fn file_created_with_a_clock_ahead_locks_no_player_out() {
    for ahead in [61, HOUR, 24 * HOUR] {
        let folder = TestFolder::new(&format!("created-ahead-{ahead}"));
        let (mut history, _) = open_at(&folder, 1000 + ahead);
        history.store(&[expiring(1, 1045)]).unwrap();
        drop(history);
        check_that_no_fresh_token_is_refused(&folder, 1000);
        assert_eq!(open_at(&folder, 1010).0.len(), 1, "a used token stays used");
    }
    // A minute is waited for.
    let folder = TestFolder::new("created-a-minute-ahead");
    drop(open_at(&folder, 1059));
    let (history, _) = open_at(&folder, 1000);
    assert_eq!(history.token_cutoff(TokenCutoff::AtStart), TokenCutoff::At(UnixSeconds(1060).into()));
}

#[test]
fn token_dropped_by_a_clock_far_ahead_locks_no_player_out() {
    let folder = TestFolder::new("dropped-far-ahead");
    let (mut history, now) = open_at(&folder, 1000);
    *now.lock().unwrap() = at(10, 1010 + HOUR);
    history.store(&[expiring(1, 1050 + HOUR)]).unwrap();
    *now.lock().unwrap() = at(60, 1060 + HOUR);
    history.rewrite(&[]).unwrap();
    drop(history);
    check_that_no_fresh_token_is_refused(&folder, 1070);
}
