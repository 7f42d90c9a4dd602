//! The sentences below the goals of `specs/sync-table.md`, with figures of these runs.

use super::cube_tables::{PlayoutRuns, RUN, StateRuns};
use super::lossy::MessageLoss;
use super::playout::PlayoutFigures;
use super::sync_goals::SyncGoal;
use super::wrapped::wrap;

/// The loss of the goals.
const LOSS: f64 = 0.13;

/// The runs that miss one kind of goals.
struct Misses {
    figure: String,
    goal: f64,
    missed: usize,
    runs: usize,
    /// The worst run, and where it was.
    worst: f64,
    place: String,
}

/// Returns the goals that some seed misses, by their figures.
fn misses(goals: &[SyncGoal]) -> Vec<Misses> {
    let mut all: Vec<Misses> = Vec::new();
    for goal in goals {
        let Some(limit) = goal.goal else { continue };
        let (figure, place) = goal.figure.split_once(": ").unwrap_or((&goal.figure, ""));
        let index = all.iter().position(|other| other.figure == figure && other.goal == limit);
        let index = index.unwrap_or_else(|| {
            let (figure, place) = (figure.to_owned(), place.to_owned());
            all.push(Misses { figure, goal: limit, missed: 0, runs: 0, worst: 0.0, place });
            all.len() - 1
        });
        let Some(misses) = all.get_mut(index) else { continue };
        misses.missed += goal.seeds - goal.seeds_within;
        misses.runs += goal.seeds;
        if goal.worst > misses.worst {
            (misses.worst, misses.place) = (goal.worst, place.to_owned());
        }
    }
    all.retain(|misses| misses.missed > 0);
    all
}

/// Returns the text on the goals that are missed, by all seeds or by some.
pub(super) fn text(goals: &[SyncGoal]) -> String {
    let missed = goals.iter().filter(|goal| !goal.reached).count();
    let means = match missed {
        0 => "The means of all seeds reach all goals.".to_owned(),
        1 => "The means of all seeds miss one goal, and reach the others.".to_owned(),
        count => format!("The means of all seeds miss {count} goals, and reach the others."),
    };
    let misses = misses(goals);
    if misses.is_empty() {
        return means + " So does each seed.\n";
    }
    let list = "Some seeds miss a goal; each line counts the runs of one figure and goal:";
    let mut text = wrap(&format!("{means} {list}"), "") + "\n";
    for Misses { figure, goal, missed, runs, worst, place } in misses {
        let place = if place.is_empty() { String::new() } else { format!(" ({place})") };
        let line =
            format!("- {figure}: {missed} of {runs} runs are beyond {goal:.2}, the worst with {worst:.2}{place}");
        text.push_str(&wrap(&line, "  "));
    }
    text
}

/// Returns the text on starved frames and on runs of losses.
pub(super) fn on_playout(playout: &PlayoutRuns) -> String {
    let mean = |loss, rate, part: fn(&PlayoutFigures) -> f64| playout.mean_of(loss, rate, part);
    let delay = mean(MessageLoss::Random(LOSS), 20, |run| run.delay);
    let in_a_row = LOSS.powi(3);
    let (in_a_minute, early) = (in_a_row * 60.0 * 20.0, in_a_row * 25.0 * 20.0);
    let chance = format!(
        "Seeds beyond the goal of starved frames are chance. At 13 % loss, one state of {:.0} comes after three \
         losses in a row, and starves two or three frames at a delay of {delay:.0} ms. {in_a_minute:.1} such \
         states are expected in a minute and {early:.1} from 5 to 30 s, and one of 40 seeds has about three times \
         as many. A delay that covers three losses in a row is 210 ms, so no rule reaches both goals with all \
         seeds.",
        in_a_row.recip(),
    );
    let runs = |rate| {
        let figure = |part| mean(MessageLoss::Runs(LOSS, RUN), rate, part);
        format!("{:.1} % at {:.0} ms", figure(|run| run.starved), figure(|run| run.delay))
    };
    let runs = format!(
        "A path that loses in runs of 100 ms is a choice between delay and starved frames. A delay d starves about \
         0.13 exp((i-d)/100 ms) of the time, with the time i between two states: 0.6 % need 360 ms at 20 states a \
         second. The playout takes a delay with which 0.8 % of the last minute had starved, and learns of longer \
         runs when they come: {}, and at 60 a second {}. A rule that counts late states instead of starved time \
         had, before it was replaced, 1.6 % at 280 ms, and at 60 a second 4.0 % at 141 ms, because a run of losses \
         makes one state late.",
        runs(20),
        runs(60),
    );
    ["\n", &wrap(&chance, ""), "\n", &wrap(&runs, "")].concat()
}

/// Returns the text on the world in which the goals were set.
pub(super) fn on_prototype(states: &StateRuns) -> String {
    let (error, in_prototype) = (states.thesis_error(20, LOSS), 7.6);
    let comparison = if error < in_prototype { "easier" } else { "harder" };
    let text = format!(
        "The goals come from a prototype with another world of cubes, in which 70 % of 504 and 83 % of 1,001 cubes \
         were awake. The method of the thesis erred by {in_prototype} cm there with 20 messages a second and 13 % \
         loss, and by {error:.2} cm here: the goals of errors are {comparison} to reach in this world. The goal of \
         24 kbit/s are 150 bytes a state."
    );
    ["\n", &wrap(&text, ""), "\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(figure: &str, goal: f64, runs: &[f64]) -> SyncGoal {
        SyncGoal::new(figure, goal, runs, |run| *run)
    }

    #[test]
    fn seeds_that_miss_a_goal_are_counted_by_figure() {
        let goals = [
            goal("delay, ms: 20 a second", 165.0, &[164.0, 165.5]),
            goal("delay, ms: 20 a second, 5 % lost", 165.0, &[166.25, 100.0]),
            goal("delay, ms: 60 a second", 65.0, &[60.0, 61.0]),
            goal("jumps", 0.0, &[1.0, 0.0]),
            SyncGoal::comparison("error, cm", &[9.0], |run| *run),
        ];
        let text = text(&goals);
        assert!(text.starts_with("The means of all seeds miss one goal, and reach the others."), "{text}");
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('-')).collect();
        let delay = "- delay, ms: 2 of 4 runs are beyond 165.00, the worst with 166.25 (20 a second, 5 % lost)";
        assert_eq!(lines, [delay, "- jumps: 1 of 2 runs are beyond 0.00, the worst with 1.00"]);
    }

    #[test]
    fn nothing_is_listed_if_each_seed_reaches_its_goals() {
        let text = text(&[goal("jumps", 0.0, &[0.0, 0.0])]);
        assert_eq!(text, "The means of all seeds reach all goals. So does each seed.\n");
    }
}
