//! A finding: a sentence, and a remedy if something is wrong.

use serde::Serialize;
use slipgate_session::connection::plain_text;

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    Ok,
    /// It works, but may not in another situation.
    Warning,
    Problem,
}

impl Severity {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// One finding.
#[derive(Serialize, Debug)]
pub(super) struct DoctorFinding {
    pub(super) severity: Severity,
    /// The part that was checked.
    pub(super) check: &'static str,
    pub(super) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

impl DoctorFinding {
    pub(super) fn ok(check: &'static str, text: impl AsRef<str>) -> Self {
        Self { severity: Severity::Ok, check, text: plain_text(text.as_ref()), remedy: None }
    }

    pub(super) fn warning(check: &'static str, text: impl AsRef<str>, remedy: impl AsRef<str>) -> Self {
        let remedy = Some(plain_text(remedy.as_ref()));
        Self { severity: Severity::Warning, check, text: plain_text(text.as_ref()), remedy }
    }

    pub(super) fn problem(check: &'static str, text: impl AsRef<str>, remedy: impl AsRef<str>) -> Self {
        Self { severity: Severity::Problem, ..Self::warning(check, text, remedy) }
    }

    /// Returns the finding as one line of text, or as JSON.
    pub(super) fn show(&self, as_json: bool) -> String {
        if as_json {
            return serde_json::to_string(self).unwrap_or_default();
        }
        let Self { severity, check, text, remedy } = self;
        let remedy = remedy.as_ref().map_or_else(String::new, |remedy| format!("\n         {remedy}"));
        format!("{:8} {check}: {text}{remedy}", severity.name())
    }
}
