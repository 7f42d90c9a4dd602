//! The line between clients and server: no impairment, or one of the presets.

use slipgate_sim::{Conditions, Preset};

/// The lines in the order of their keys, `1` to `5`.
pub(super) const LINES: [Line; 5] = [
    Line(None),
    Line(Some(Preset::WifiBad)),
    Line(Some(Preset::FourG)),
    Line(Some(Preset::Satellite)),
    Line(Some(Preset::DslBufferbloat)),
];

/// A line; `None` has no impairment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Line(pub(super) Option<Preset>);

impl Line {
    /// Returns the line of a key.
    pub(super) fn of_key(key: char) -> Option<Self> {
        let index = (key.to_digit(10)? as usize).checked_sub(1)?;
        LINES.get(index).copied()
    }

    pub(super) const fn name(self) -> &'static str {
        match self.0 {
            None => "perfect",
            Some(preset) => preset.name(),
        }
    }

    /// Returns what the line does to datagrams, for a person.
    pub(super) const fn description(self) -> &'static str {
        match self.0 {
            None => "loopback of this machine: no delay, no loss",
            Some(Preset::WifiBad) => "8 to 20 ms each way, 2 % lost in bursts, short stalls, 20 Mbit/s",
            Some(Preset::FourG) => "25 to 35 ms each way, stalls at handovers, 25 Mbit/s down, 8 up",
            Some(Preset::Satellite) => "270 to 280 ms each way, 0.5 % lost in bursts, 25 Mbit/s down, 3 up",
            Some(Preset::DslBufferbloat) => "15 ms each way, 16 Mbit/s down, 1 up, a buffer of a second",
        }
    }

    /// Returns the conditions to the server and to the client.
    pub(super) fn conditions(self) -> (Conditions, Conditions) {
        self.0.map_or((Conditions::perfect(), Conditions::perfect()), |preset| (preset.up(), preset.down()))
    }
}

#[cfg(test)]
mod tests {
    use slipgate_sim::{Loss, RateLimit};

    use super::*;

    #[test]
    fn each_preset_and_no_impairment_have_a_key() {
        assert_eq!("12345".chars().filter_map(Line::of_key).collect::<Vec<_>>(), LINES);
        assert!(['0', '6', 'a', '²'].into_iter().all(|key| Line::of_key(key).is_none()));
        assert!(Preset::ALL.into_iter().all(|preset| LINES.contains(&Line(Some(preset)))));
    }

    /// The descriptions state the figures of the presets.
    #[test]
    fn descriptions_match_the_conditions() {
        for line in &LINES[1..] {
            let (up, down) = line.conditions();
            let (from, to) = (down.latency.as_millis(), (down.latency + down.jitter).as_millis());
            let text = line.description();
            assert!(
                text.starts_with(&format!("{from} to {to} ms")) || text.starts_with(&format!("{from} ms")),
                "{text}"
            );
            let mbit = |limit: Option<RateLimit>| limit.expect("each preset has a rate").rate.to_string();
            for rate in [mbit(down.rate), mbit(up.rate)] {
                let number = rate.split_whitespace().next().expect("a number");
                assert!(text.contains(number), "{text}: {rate}");
            }
            let has_losses = !matches!(down.loss, Loss::Random(_));
            assert_eq!(text.contains("lost in bursts"), has_losses, "{text}");
        }
    }
}
