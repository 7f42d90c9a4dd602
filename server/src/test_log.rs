//! A log for tests, which counts lines.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Runs `act`. Returns its result, and the number of its warnings with these words, or with this field and value, as in
/// `seconds=1`. Other threads are not counted.
pub(crate) fn count_warnings<R>(words: &'static str, act: impl FnOnce() -> R) -> (R, usize) {
    count_lines(Level::WARN, words, act)
}

/// Does the same for the lines of this level.
pub(crate) fn count_lines<R>(level: Level, words: &'static str, act: impl FnOnce() -> R) -> (R, usize) {
    let log = LineCount { level, words, count: Arc::default() };
    let result = tracing::subscriber::with_default(log.clone(), act);
    (result, log.count.load(Ordering::Relaxed))
}

/// Counts the lines of a level with some words in their message, or with a field and its value.
#[derive(Clone)]
struct LineCount {
    level: Level,
    words: &'static str,
    count: Arc<AtomicUsize>,
}

impl Visit for LineCount {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let is_meant = match field.name() {
            "message" => format!("{value:?}").contains(self.words),
            name => format!("{name}={value:?}") == self.words,
        };
        self.count.fetch_add(usize::from(is_meant), Ordering::Relaxed);
    }
}

impl Subscriber for LineCount {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == self.level
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
