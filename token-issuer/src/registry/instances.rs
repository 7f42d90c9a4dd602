//! The runs of the servers with one id. The id belongs to the one that registered last, while that one is alive.
//!
//! A restarted server is a new run, and gets its id at once. Two servers with one id, by a mistake in their settings,
//! would take it from each other each second: the one that was replaced is refused instead.

use std::collections::VecDeque;

use super::name::RegistryName;

/// The maximum number of replaced runs that are remembered for one id.
pub(super) const MAX_REPLACED: usize = 16;

/// The run that has an id, and those that it has replaced.
#[derive(Default)]
pub(super) struct Instances {
    current: Option<RegistryName>,
    /// The last one to be replaced comes last.
    replaced: VecDeque<RegistryName>,
}

impl Instances {
    /// Records a run that sends a heartbeat. Returns whether it has the id from now on: it was not replaced, or the one
    /// that replaced it is dead.
    pub(super) fn accept(&mut self, instance: Option<&RegistryName>, is_alive: bool) -> bool {
        let Some(instance) = instance.filter(|instance| self.current.as_ref() != Some(instance)) else { return true };
        if is_alive && self.replaced.contains(instance) {
            return false;
        }
        self.replaced.retain(|replaced| replaced != instance);
        if let Some(replaced) = self.current.replace(instance.clone()) {
            if self.replaced.len() >= MAX_REPLACED {
                self.replaced.pop_front();
            }
            self.replaced.push_back(replaced);
        }
        true
    }

    /// Returns whether a run that ends may remove its server: another run has not taken its id.
    pub(super) fn may_remove(&self, instance: Option<&RegistryName>) -> bool {
        instance.is_none_or(|instance| self.current.as_ref().is_none_or(|current| current == instance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_runs_are_bounded() {
        let mut instances = Instances::default();
        let name = |number: usize| -> RegistryName { format!("i{number}").parse().unwrap() };
        for number in 0..100 {
            assert!(instances.accept(Some(&name(number)), true));
        }
        assert_eq!(instances.replaced.len(), MAX_REPLACED);
        assert!(!instances.accept(Some(&name(98)), true) && !instances.accept(Some(&name(83)), true));
        assert!(instances.accept(Some(&name(82)), true), "it is forgotten");
    }
}
