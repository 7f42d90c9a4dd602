//! A deterministic simulator of paths, and the scenarios on which congestion avoidance is measured.
