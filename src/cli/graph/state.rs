//! What the workers of a stage did most of the time, and the colour of that.

use crate::trace::{RunReport, StageReport, percent, rate};

/// What the workers of a stage did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Working,
    Starved,
    Blocked,
    Turn,
    Limit,
}

impl State {
    pub(super) const ALL: [State; 5] =
        [State::Working, State::Starved, State::Blocked, State::Turn, State::Limit];

    pub(super) fn word(self) -> &'static str {
        match self {
            State::Working => "working",
            State::Starved => "starved",
            State::Blocked => "blocked",
            State::Turn => "turn",
            State::Limit => "limit",
        }
    }

    /// Its colour and that of text on it, as in the page about a run.
    pub(super) fn colors(self) -> (&'static str, &'static str) {
        match self {
            State::Working => ("#2b6cb0", "#ffffff"),
            State::Starved => ("#e9edf1", "#1a202c"),
            State::Blocked => ("#3d4653", "#ffffff"),
            State::Turn => ("#b8689a", "#ffffff"),
            State::Limit => ("#c57200", "#ffffff"),
        }
    }
}

/// The border of the stage that limits a run.
pub(super) const CULPRIT: &str = "#d11149";

/// What a stage did in a run.
pub(super) struct Ran {
    /// The share of worker time in each state.
    pub(super) states: [(State, f64); 5],
    pub(super) items_per_s: f64,
    /// Whether it is what limits the run.
    pub(super) is_limit: bool,
}

impl Ran {
    /// What the stage `id` did in the run.
    pub(super) fn of(id: &str, report: &RunReport) -> Option<Self> {
        let stage = report.stages.iter().find(|stage| stage.id == id)?;
        let StageReport { working, starved, blocked, turn, limit, .. } = stage;
        let shares = [working, starved, blocked, turn, limit];
        let states = std::array::from_fn(|n| (State::ALL[n], *shares[n]));
        let items_per_s = stage.items as f64 / report.seconds.max(1e-9);
        let is_limit = report.verdict.stage.as_deref() == Some(id);
        Some(Ran { states, items_per_s, is_limit })
    }

    /// What its workers did most of the time.
    pub(super) fn state(&self) -> State {
        let most = self.states.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        most.map_or(State::Starved, |(state, _)| *state)
    }

    /// `180 items/s, working 91 %, blocked 5 %`.
    pub(super) fn shares(&self) -> String {
        let mut shown = self.states;
        shown.sort_by(|a, b| b.1.total_cmp(&a.1));
        let shown = shown.iter().filter(|(_, share)| *share >= 0.005);
        let each = shown.map(|(state, share)| format!("{} {}", state.word(), percent(*share)));
        let rate = format!("{} items/s", rate(self.items_per_s));
        std::iter::once(rate).chain(each).collect::<Vec<_>>().join(", ")
    }
}
