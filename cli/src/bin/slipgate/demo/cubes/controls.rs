//! The panes, the knobs that are wanted, and the keys: the page and the demo share them.

use std::sync::{Arc, Mutex, PoisonError};

use super::keyboard::Keyboard;
use super::knobs::Knobs;
use super::pane::Panes;

/// The shared values of the page and the demo.
pub(super) struct Controls {
    panes: Mutex<Arc<Panes>>,
    knobs: Mutex<Knobs>,
    pub(super) keyboard: Arc<Keyboard>,
}

impl Controls {
    pub(super) const fn new(panes: Arc<Panes>, knobs: Knobs, keyboard: Arc<Keyboard>) -> Self {
        Self { panes: Mutex::new(panes), knobs: Mutex::new(knobs), keyboard }
    }

    pub(super) fn set_panes(&self, panes: Arc<Panes>) {
        *self.panes.lock().unwrap_or_else(PoisonError::into_inner) = panes;
    }

    pub(super) fn panes(&self) -> Arc<Panes> {
        Arc::clone(&self.panes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn knobs(&self) -> Knobs {
        *self.knobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_knobs(&self, knobs: Knobs) {
        *self.knobs.lock().unwrap_or_else(PoisonError::into_inner) = knobs;
    }
}
