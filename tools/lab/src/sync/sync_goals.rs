//! The goals of game state, each beside what the seeds reached.

use std::fmt::Write as _;

/// A goal, and what all seeds reached.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct SyncGoal {
    /// The measured figure.
    pub figure: String,
    /// The most that it may be. `None` for a figure that is shown for comparison.
    pub goal: Option<f64>,
    /// The mean of all seeds.
    pub mean: f64,
    /// The worst seed.
    pub worst: f64,
    /// The number of seeds.
    pub seeds: usize,
    /// The number of seeds whose own figure is within the goal: all without one.
    pub seeds_within: usize,
    /// Whether the mean of all seeds is within the goal.
    pub reached: bool,
}

impl SyncGoal {
    /// Returns a figure that has no goal.
    pub(super) fn comparison<F>(figure: &str, runs: &[F], part: impl Fn(&F) -> f64) -> Self {
        Self { goal: None, ..Self::new(figure, f64::INFINITY, runs, part) }
    }

    pub(super) fn new<F>(figure: &str, goal: f64, runs: &[F], part: impl Fn(&F) -> f64) -> Self {
        let figures: Vec<f64> = runs.iter().map(part).collect();
        let seeds = figures.len();
        let mean = figures.iter().sum::<f64>() / seeds.max(1) as f64;
        Self {
            figure: figure.to_owned(),
            goal: Some(goal),
            mean,
            worst: figures.iter().copied().fold(0.0, f64::max),
            seeds,
            seeds_within: figures.iter().filter(|figure| **figure <= goal).count(),
            reached: seeds > 0 && mean <= goal,
        }
    }
}

/// What to run for the goals that are not the same on each machine, and so are no part of the table.
pub const ELSEWHERE: &str = "
cargo bench -p slipgate-tests --bench game_state measures two more goals: the share of a processor (1,000 objects, 200
clients, 20 states a second: at most 30 % of a core), and the allocations of a tick (none).
";

/// Returns the table of goals.
#[must_use]
pub fn table(goals: &[SyncGoal]) -> String {
    let mut text =
        String::from("| figure | goal | mean | worst | seeds within | |\n| --- | --- | --- | --- | --- | --- |\n");
    for SyncGoal { figure, goal, mean, worst, seeds, seeds_within, reached } in goals {
        let mark = match goal {
            None => "no goal",
            Some(_) if *reached => "reached",
            Some(_) => "missed",
        };
        let goal = goal.map_or_else(|| "-".to_owned(), |goal| format!("{goal:.2}"));
        let _ = writeln!(text, "| {figure} | {goal} | {mean:.2} | {worst:.2} | {seeds_within} of {seeds} | {mark} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goal_is_reached_by_the_mean_of_some_runs() {
        let goal = |runs: &[f64]| SyncGoal::new("a", 1.0, runs, |run| *run);
        let within = goal(&[0.5, 1.25]);
        assert!(within.reached && within.worst > 1.2 && (within.seeds, within.seeds_within) == (2, 1), "{within:?}");
        assert!(!goal(&[0.9, 1.2]).reached);
        assert!(!goal(&[]).reached, "nothing was measured");
    }

    #[test]
    fn missed_goal_is_in_the_table_as_missed() {
        let goals = [2.0, 3.0].map(|goal| SyncGoal::new("a, cm", goal, &[2.5], |run| *run));
        let text = table(&[&goals[..], &[SyncGoal::comparison("b, cm", &[9.0], |run| *run)]].concat());
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| a, cm | 2.00 | 2.50 | 2.50 | 0 of 1 | missed |",
                "| a, cm | 3.00 | 2.50 | 2.50 | 1 of 1 | reached |",
                "| b, cm | - | 9.00 | 9.00 | 1 of 1 | no goal |"
            ]
        );
    }
}
