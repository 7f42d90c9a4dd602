//! The stream of states that Agones sends: one JSON object a line, at each change of the game server.

use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

use serde_json::Value;
use tracing::debug;

use crate::agones::on_agones_state;
use crate::back_off::BackOff;
use crate::driver::Driver;
use crate::http::HttpCaller;
use crate::life_cycle::{LifeCycle, LifeState};

/// The time after which a stream is opened again. The first line of each has the present state.
const STREAM_TIME: Duration = Duration::from_secs(20);
/// The maximum length of a line, in bytes.
const MAX_LINE_BYTES: u64 = 1024 * 1024;

/// Watches the game server.
pub(crate) struct AgonesWatch {
    url: String,
    http: HttpCaller,
    life: LifeCycle,
    back_off: BackOff,
}

impl AgonesWatch {
    pub(crate) fn new(port: u16, life: LifeCycle) -> Self {
        let url = format!("http://127.0.0.1:{port}/watch/gameserver");
        Self { url, http: HttpCaller::new(true), life, back_off: BackOff::default() }
    }
}

impl Driver for AgonesWatch {
    fn run(&mut self, state: LifeState) -> Option<Duration> {
        if state >= LifeState::Draining {
            return None;
        }
        let is_open = match self.http.stream(&self.url, STREAM_TIME) {
            Ok(stream) => {
                let life = &self.life;
                for_each_state(stream, |state| {
                    on_agones_state(life, state);
                    !life.is_draining()
                })
            }
            Err(error) => {
                debug!(error, "Agones cannot be watched");
                false
            }
        };
        if is_open {
            self.back_off.on_success();
            return Some(Duration::from_millis(100));
        }
        Some(self.back_off.on_failure())
    }
}

/// Calls `on_state` with each state of the stream, until it returns `false`. Returns whether there was one.
fn for_each_state(stream: impl Read, mut on_state: impl FnMut(&str) -> bool) -> bool {
    let mut stream = BufReader::new(stream);
    let (mut line, mut has_state) = (Vec::new(), false);
    loop {
        line.clear();
        // An error is the end of the stream, or its time limit.
        let read = stream.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
        if !read.is_ok_and(|bytes| bytes > 0) || line.last() != Some(&b'\n') {
            return has_state;
        }
        let value: Value = serde_json::from_slice(&line).unwrap_or_default();
        if let Some(state) = value.pointer("/result/status/state").and_then(Value::as_str) {
            has_state = true;
            if !on_state(state) {
                return true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(text: &str) -> (Vec<String>, bool) {
        let mut states = Vec::new();
        let has_state = for_each_state(text.as_bytes(), |state| {
            states.push(state.to_owned());
            state != "Shutdown"
        });
        (states, has_state)
    }

    #[test]
    fn states_of_whole_lines_are_read() {
        let line = |state: &str| format!("{{\"result\":{{\"status\":{{\"state\":\"{state}\"}}}}}}\n");
        let text = [line("Ready"), "junk\n{}\n[]\n".to_owned(), line("Allocated"), line("Shutdown"), line("Ready")];
        assert_eq!(states(&text.concat()).0, ["Ready", "Allocated", "Shutdown"]);
        assert_eq!(states(line("Ready").trim_end()), (Vec::new(), false), "a line without an end");
        assert_eq!(states(""), (Vec::new(), false));
        let long = format!("{}{}", "x".repeat(2 * 1024 * 1024), line("Ready"));
        assert_eq!(states(&long), (Vec::new(), false), "a line that is too long ends the stream");
    }
}
