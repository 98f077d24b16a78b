//! What `top` knows and how keys change it. Draws nothing and asks nobody.

use std::collections::VecDeque;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::recent::between;
use crate::trace::control::protocol::{Answer, SetWorkers, WorkersSet};
use crate::trace::{RunReport, RunStats, StageStats, Verdict, verdict};

/// Rates are those of the last so many seconds ...
const RATE_S: f64 = 2.0;
/// ... and the bottleneck that of so many.
const VERDICT_S: f64 = 6.0;

/// All there is to show.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) pid: u32,
    pub(super) name: String,
    /// Reports of the last seconds, the newest last; one at least.
    reports: VecDeque<RunReport>,
    /// The id of the stage that keys are for.
    pub(super) selected: String,
    pub(super) sort: Sort,
    pub(super) paused: bool,
    pub(super) panel: Panel,
    /// Who waits for whom.
    pub(super) waits: Vec<String>,
    /// The workers that a stage was last asked to have, while the run has not answered.
    asked: Option<SetWorkers>,
    /// What was said last about a change.
    pub(super) message: Option<String>,
    pub(super) over: Option<Over>,
}

/// In which order stages are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// As items pass them.
    Pipeline,
    /// Those that hold up the run first.
    Busiest,
}

/// What is shown beside the stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Panel {
    None,
    Waits,
    Help,
}

/// Why there is nothing more to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The run has ended, and the last report is its last.
    Ended,
    /// Its process is gone without a word.
    Gone,
}

/// What a key asks for beyond the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Quit,
    Set(SetWorkers),
}

impl Model {
    /// Begins with a run's first answer.
    pub(super) fn new(first: &Answer) -> Option<Self> {
        let report = first.stats.clone()?;
        Some(Model {
            pid: first.pid,
            name: first.run.clone(),
            selected: report.stages.first().map_or_else(String::new, |stage| stage.id.clone()),
            sort: Sort::Pipeline,
            paused: false,
            panel: Panel::None,
            waits: Vec::new(),
            asked: None,
            message: None,
            over: first.last.then_some(Over::Ended),
            reports: VecDeque::from([report]),
        })
    }

    /// Takes what the run said.
    pub(super) fn take(&mut self, answer: Answer) {
        if let Some(WorkersSet { stage, workers, before }) = answer.set {
            self.message = Some(format!("{stage}: {before} → {workers} workers"));
            self.asked.take_if(|asked| asked.stage == stage && asked.workers == workers);
            // What the next key counts from, before the next report.
            let now = self.reports.back_mut().map(|report| &mut report.stages);
            if let Some(stage) = now.into_iter().flatten().find(|found| found.id == stage) {
                stage.workers_set = workers;
            }
        }
        if let Some(error) = answer.error {
            self.asked = None;
            self.message = Some(error);
        }
        if let Some(waits) = answer.waits {
            self.waits = waits;
        }
        if answer.last {
            self.over = Some(Over::Ended);
        }
        if let Some(report) = answer.stats
            && (!self.paused || answer.last)
        {
            self.reports.push_back(report);
            // The one that is as old as the longest view stays.
            while self.reports.get(1).is_some_and(|second| self.age(second) > VERDICT_S) {
                self.reports.pop_front();
            }
        }
    }

    /// The run can't be reached any more.
    pub(super) fn lose(&mut self) {
        self.over.get_or_insert(Over::Gone);
    }

    fn age(&self, report: &RunReport) -> f64 {
        self.now().seconds - report.seconds
    }

    /// The newest report.
    pub(super) fn now(&self) -> &RunReport {
        self.reports.back().expect("there is one from the beginning")
    }

    /// What the run did in the last so many seconds; since its start, if only one report is there.
    fn last(&self, seconds: f64) -> RunStats {
        let older = self.reports.iter().rev().skip(1);
        let before = older.clone().find(|report| self.age(report) >= seconds);
        match before.or_else(|| older.last()) {
            // After the end nothing is recent any more: the whole run is shown.
            Some(before) if self.over.is_none() => between(before, self.now()),
            _ => between(&nothing(self.now()), self.now()),
        }
    }

    /// What the run did since the report before the newest.
    pub(super) fn last_interval(&self) -> RunStats {
        self.last(0.0)
    }

    /// What it did within the time that rates are taken over.
    pub(super) fn lately(&self) -> RunStats {
        self.last(RATE_S)
    }

    /// The bottleneck of the last seconds.
    pub(super) fn verdict(&self) -> Verdict {
        verdict(&self.last(VERDICT_S))
    }

    /// The stages in the order of display.
    pub(super) fn sorted(&self, stats: &RunStats) -> Vec<StageStats> {
        let mut stages = stats.stages.clone();
        if self.sort == Sort::Busiest {
            stages.sort_by(|a, b| b.states.busy().total_cmp(&a.states.busy()));
        }
        stages
    }

    /// What a key changes here, and what it asks for beyond.
    pub(super) fn key(&mut self, key: KeyEvent) -> Option<Wish> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        self.message = None;
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Some(Wish::Quit);
            }
            KeyCode::Char('q') => return Some(Wish::Quit),
            KeyCode::Esc if self.panel != Panel::None => self.panel = Panel::None,
            KeyCode::Esc => return Some(Wish::Quit),
            KeyCode::Up | KeyCode::Char('k') => self.choose(-1),
            KeyCode::Down | KeyCode::Char('j') => self.choose(1),
            KeyCode::Char('+' | '=') => return self.more(1),
            KeyCode::Char('-' | '_') => return self.more(-1),
            KeyCode::Char('s') => {
                self.sort = match self.sort {
                    Sort::Pipeline => Sort::Busiest,
                    Sort::Busiest => Sort::Pipeline,
                };
            }
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('b') => self.toggle(Panel::Waits),
            KeyCode::Char('?' | 'h') => self.toggle(Panel::Help),
            _ => {}
        }
        None
    }

    fn toggle(&mut self, panel: Panel) {
        self.panel = if self.panel == panel { Panel::None } else { panel };
    }

    /// Another stage, so many rows further down.
    fn choose(&mut self, down: isize) {
        let stages = self.sorted(&self.last_interval());
        let at = stages.iter().position(|stage| stage.id == self.selected).unwrap_or(0);
        let at = at.saturating_add_signed(down).min(stages.len().saturating_sub(1));
        if let Some(stage) = stages.get(at) {
            self.selected = stage.id.clone();
        }
    }

    /// So many more workers for the selected stage.
    fn more(&mut self, more: isize) -> Option<Wish> {
        if self.over.is_some() {
            return None;
        }
        let stage = self.now().stages.iter().find(|stage| stage.id == self.selected)?;
        let asked = self.asked.as_ref().filter(|asked| asked.stage == stage.id);
        let from = asked.map_or(stage.workers_set, |asked| asked.workers);
        let workers = from.saturating_add_signed(more);
        let set = SetWorkers { stage: stage.id.clone(), workers };
        self.asked = Some(set.clone());
        Some(Wish::Set(set))
    }
}

/// The report of a run that has done nothing yet.
fn nothing(report: &RunReport) -> RunReport {
    RunReport {
        seconds: 0.0,
        items: 0,
        bytes: 0,
        waited_share: 0.0,
        read: 0,
        skipped: 0,
        stages: Vec::new(),
        ..report.clone()
    }
}
