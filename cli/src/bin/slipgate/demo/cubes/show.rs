//! The figures in a terminal, as lines, or as JSON; and the outcome.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use slipgate_cli::Failure;
use slipgate_cli::output::{print_frame, print_line};

use super::knobs::{Knobs, THESIS_SNAPSHOTS, TICKS};
use super::meter::PaneFigures;
use super::pane::{Pane, PaneKind, PaneTraffic, Panes, fewest_frames};
use crate::demo::show::Style;

/// The fewest compared frames of a pane that say something: half a second.
const MIN_FRAMES: u64 = 30;
/// The share of frames below which a machine is too slow.
const MIN_PACE: f64 = 0.9;
/// The methods that are compared: the thesis's, and ours.
const PAIRS: [(PaneKind, PaneKind); 2] =
    [(PaneKind::ThesisSnapshots, PaneKind::OurSnapshots), (PaneKind::ThesisStates, PaneKind::OurStates)];

pub(super) struct CubeScreen {
    style: Style,
    /// The lines of the table in the terminal, which the next one overwrites.
    drawn: usize,
}

impl CubeScreen {
    pub(super) const fn new(style: Style) -> Self {
        Self { style, drawn: 0 }
    }

    pub(super) fn introduce(&self, knobs: Knobs, page: Option<&str>) {
        if self.style == Style::Json {
            print_line(&json!({ "event": "start", "page": page, "knobs": knobs }).to_string());
            return;
        }
        print_line(&description(knobs));
        if let Some(page) = page {
            print_line(&format!("Open {page} in a browser of this machine: W A S D, G and H move a cube."));
        }
        print_line("");
    }

    /// Shows knobs that the page has changed.
    pub(super) fn change(&mut self, knobs: Knobs) {
        if self.style == Style::Json {
            print_line(&json!({ "event": "knobs", "knobs": knobs }).to_string());
            return;
        }
        print_line("");
        print_line(&description(knobs));
        print_line("");
        // The next table is below these lines.
        self.drawn = 0;
    }

    /// Shows the figures of the last seconds.
    pub(super) fn progress(&mut self, panes: &Panes) {
        match self.style {
            Style::Json => print_line(&progress_json(panes).to_string()),
            Style::Live => {
                let (mut frame, mut lines) = (String::new(), table(panes, |figures| figures.error_p99));
                lines.push(slow_machine(fewest_frames(panes)).unwrap_or_default());
                if self.drawn > 0 {
                    let _ = write!(frame, "\x1b[{}A", self.drawn);
                }
                self.drawn = lines.len();
                lines.iter().for_each(|line| frame.push_str(&format!("\x1b[K{line}\n")));
                print_frame(frame.as_bytes());
            }
            Style::Lines => {}
        }
    }

    /// Prints the figures of the whole time, and returns success only if ours err less than the thesis's.
    pub(super) fn summarise(&self, panes: &Panes, knobs: Knobs) -> Result<(), Failure> {
        let figures = |kind| panes.get(kind as usize).map(|pane: &Arc<Pane>| pane.figures()).unwrap_or_default();
        let outcome = outcome(knobs.rate, figures);
        if self.style == Style::Json {
            let summary = json!({ "event": "summary", "ok": outcome.is_ok(), "panes": panes_json(panes) });
            print_line(&summary.to_string());
            return outcome;
        }
        print_line("");
        table(panes, |figures| figures.total_p99).iter().for_each(|line| print_line(line));
        print_line("");
        if outcome.is_ok() {
            print_line("SUCCESS: slipgate-sync errs less than the thesis's methods, in snapshots and in states");
        }
        outcome
    }
}

/// Returns the knobs as a sentence.
fn description(knobs: Knobs) -> String {
    let Knobs { objects, rate, loss, runs, latency, jitter } = knobs;
    let runs = if runs > 0 { format!(" in runs of {runs} ms") } else { String::new() };
    format!(
        "{objects} cubes, {rate} states a second; {loss} % of datagrams lost{runs}; {latency} to {} ms each way",
        latency + jitter
    )
}

/// Returns a figure with its unit, or a dash if nothing was measured.
fn cell(figure: Option<f64>, decimals: usize, unit: &str) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.decimals$} {unit}"))
}

/// Returns the table of all clients, with the errors that `error` returns.
fn table(panes: &Panes, error: fn(&PaneFigures) -> Option<f64>) -> Vec<String> {
    let mut lines = vec![format!(
        "{:<34}{:>11}{:>11}{:>10}{:>10}{:>10}",
        "", "error p99", "jump p99", "behind", "starved", "kbit/s"
    )];
    for kind in PaneKind::CLIENTS {
        let Some((figures, traffic)) = panes.get(kind as usize).map(|pane| pane.figures()) else { continue };
        lines.push(format!(
            "{:<34}{:>11}{:>11}{:>10}{:>10}{:>10.1}",
            kind.name(),
            cell(error(&figures), 2, "cm"),
            cell(figures.jump_p99, 2, "cm"),
            cell(figures.delay, 0, "ms"),
            cell(figures.total_starved, 2, "%"),
            traffic.kilobits,
        ));
    }
    lines
}

/// Returns what to say if a pane shows fewer frames than there are ticks.
fn slow_machine(frames: Option<f64>) -> Option<String> {
    let frames = frames.filter(|frames| *frames < MIN_PACE * f64::from(TICKS))?;
    Some(format!("This machine is too slow: {frames:.0} of {TICKS} frames a second. Choose fewer --objects."))
}

fn progress_json(panes: &Panes) -> Value {
    json!({ "event": "progress", "frames_per_second": fewest_frames(panes), "panes": panes_json(panes) })
}

/// Returns all figures of the clients by their names.
pub(super) fn panes_json(panes: &Panes) -> Value {
    let entries = PaneKind::CLIENTS.into_iter().filter_map(|kind| {
        let (figures, traffic) = panes.get(kind as usize)?.figures();
        Some((kind.name().to_owned(), json!({ "figures": figures, "traffic": traffic })))
    });
    Value::Object(entries.collect::<Map<_, _>>())
}

/// Returns success if each client was compared, refused nothing, and ours err less than the thesis's.
fn outcome(rate: u32, of: impl Fn(PaneKind) -> (PaneFigures, PaneTraffic)) -> Result<(), Failure> {
    for kind in PaneKind::CLIENTS {
        let (figures, traffic) = of(kind);
        if figures.compared < MIN_FRAMES {
            return Err(Failure::run_time(format!(
                "the client with {} was compared with the server in {} frames, and {MIN_FRAMES} are needed: let the \
                 demo run longer (--for), or with fewer --objects if this machine is too slow",
                kind.name(),
                figures.compared
            )));
        }
        if traffic.unreadable > 0 {
            return Err(Failure::run_time(format!("the client with {} refused messages of the server", kind.name())));
        }
    }
    for (thesis, ours) in PAIRS {
        let [their_error, our_error] = [thesis, ours].map(|kind| of(kind).0.total_p99.unwrap_or_default());
        if our_error >= their_error {
            return Err(Failure::run_time(larger_error(rate, (ours, our_error), (thesis, their_error))));
        }
    }
    Ok(())
}

/// Returns the message of a method of ours that errs as much as the thesis's.
fn larger_error(rate: u32, (ours, our_error): (PaneKind, f64), (thesis, their_error): (PaneKind, f64)) -> String {
    let is_snapshots = thesis == PaneKind::ThesisSnapshots;
    let their_rate = if is_snapshots { THESIS_SNAPSHOTS } else { rate };
    let mut text = format!(
        "{} errs by {our_error} cm with {rate} states a second, {} by {their_error} cm with {their_rate}",
        ours.name(),
        thesis.name()
    );
    if is_snapshots && rate < THESIS_SNAPSHOTS {
        text.push_str(": --rate does not change the thesis's snapshots, and fewer states than those may err more");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures of a client that erred by this many centimetres.
    fn erring(total_p99: f64) -> (PaneFigures, PaneTraffic) {
        (
            PaneFigures { total_p99: Some(total_p99), compared: MIN_FRAMES, ..PaneFigures::default() },
            PaneTraffic::default(),
        )
    }

    /// Ours err by 1 and 2 cm, the thesis's by 10 and 5.
    fn good(kind: PaneKind) -> (PaneFigures, PaneTraffic) {
        erring(match kind {
            PaneKind::ThesisSnapshots => 10.0,
            PaneKind::ThesisStates => 5.0,
            PaneKind::OurSnapshots => 1.0,
            PaneKind::OurStates | PaneKind::Predicted | PaneKind::Server => 2.0,
        })
    }

    /// Returns the outcome where one client has other figures.
    fn outcome_with(client: PaneKind, figures: (PaneFigures, PaneTraffic)) -> Result<(), String> {
        let of = |kind| if kind == client { figures } else { good(kind) };
        outcome(20, of).map_err(|failure| failure.to_string())
    }

    #[test]
    fn figure_that_was_not_measured_is_a_dash() {
        assert_eq!([cell(None, 2, "cm"), cell(Some(0.0), 2, "cm")], ["-", "0.00 cm"]);
    }

    #[test]
    fn slow_machine_is_named() {
        assert_eq!([None, Some(60.0), Some(54.0)].map(slow_machine), [const { None }; 3]);
        let line = slow_machine(Some(43.4)).unwrap();
        assert!(line.contains("43 of 60 frames"), "{line}");
    }

    #[test]
    fn demo_succeeds_if_ours_err_less() {
        assert!(outcome(20, good).is_ok());
        // The predicted cube has no method of the thesis beside it.
        assert_eq!(outcome_with(PaneKind::Predicted, erring(90.0)), Ok(()));
    }

    #[test]
    fn demo_fails_if_one_of_ours_errs_as_much_as_the_thesis() {
        for (client, error) in [(PaneKind::OurSnapshots, 10.0), (PaneKind::OurStates, 5.0), (PaneKind::OurStates, 6.0)]
        {
            let message = outcome_with(client, erring(error)).unwrap_err();
            assert!(message.contains(&format!("{} errs by {error} cm", client.name())), "{message}");
        }
    }

    #[test]
    fn message_has_the_rates_that_were_compared() {
        let message = |rate, of: PaneKind, theirs: PaneKind| larger_error(rate, (of, 9.0), (theirs, 3.0));
        let snapshots = |rate| message(rate, PaneKind::OurSnapshots, PaneKind::ThesisSnapshots);
        let states = message(6, PaneKind::OurStates, PaneKind::ThesisStates);
        assert!(snapshots(12).ends_with("9 cm with 12 states a second, thesis, snapshots by 3 cm with 10"));
        assert!(snapshots(6).contains("by 3 cm with 10: --rate does not change"), "{}", snapshots(6));
        assert!(states.ends_with("9 cm with 6 states a second, thesis, states by 3 cm with 6"), "{states}");
    }

    #[test]
    fn demo_fails_if_a_client_was_not_compared_or_refused_messages() {
        for client in PaneKind::CLIENTS {
            let (figures, traffic) = good(client);
            let idle = (PaneFigures { compared: MIN_FRAMES - 1, ..figures }, traffic);
            let refusing = (figures, PaneTraffic { unreadable: 1, ..traffic });
            for (figures, reason) in [(idle, "in 29 frames, and 30 are needed"), (refusing, "refused messages")] {
                let message = outcome_with(client, figures).unwrap_err();
                assert!(message.contains(client.name()) && message.contains(reason), "{message}");
            }
        }
    }
}
