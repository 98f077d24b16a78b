//! What is drawn for a run, at several sizes, and what keys do.

use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::draw::draw;
use super::model::{Model, Over, Panel, Wish};
use crate::stage::Kind;
use crate::trace::control::protocol::{Answer, SetWorkers, WorkersSet};
use crate::trace::{
    BufferStats, Delivered, Ended, Meter, RunReport, RunStats, Service, StageStats, States,
};

/// A run after so many seconds, in which `decode` computes all the time.
fn report(seconds: u64, workers_set: usize) -> RunReport {
    let stage = |id: &str, kind, workers: u32, shares: [u64; 5]| {
        let meter = Meter::new(id.into(), kind, workers as usize, Instant::now());
        let [working, starved, blocked, turn, limit] =
            shares.map(|share| Duration::from_millis(share * 10 * seconds) * workers);
        let calls = if kind == Kind::Source { 0 } else { 100 * seconds };
        let service = Service {
            count: calls,
            total_ns: 18_000_000 * calls,
            mean_ns: 18_000_000,
            p50_ns: 18_900_000,
            p90_ns: 30_000_000,
            p99_ns: 120_000_000,
            max_ns: 130_000_000,
        };
        let buffer =
            BufferStats { items: 6, bytes: 3 << 20, items_max: 8, ..BufferStats::default() };
        StageStats {
            states: States { working, starved, blocked, turn, limit, ended: Duration::ZERO },
            items_in: 100 * seconds,
            items_out: 100 * seconds,
            attempts: calls,
            service,
            histogram: vec![(20_000_000, calls)],
            buffer: BufferStats { bytes_max: 1 << 30, ..buffer },
            ..meter.figures(Default::default(), BufferStats::default())
        }
    };
    let mut stages = vec![
        stage("windows", Kind::Source, 1, [1, 0, 99, 0, 0]),
        stage("fetch", Kind::Io, 8, [30, 0, 50, 10, 10]),
        stage("decode", Kind::Cpu, 2, [97, 3, 0, 0, 0]),
        stage("upload", Kind::Device, 1, [10, 90, 0, 0, 0]),
    ];
    stages[2].workers_set = workers_set;
    let stats = RunStats {
        name: "era5".into(),
        elapsed: Duration::from_secs(seconds),
        ended: None,
        items: 100 * seconds,
        bytes: 1_000_000_000 * seconds,
        fingerprint: 7,
        before: 0,
        waited: Duration::from_millis(900 * seconds),
        read: 100 * seconds,
        skipped: 0,
        abandoned: 0,
        unaccounted: 0,
        stages,
        stalls: Vec::new(),
        memory: None,
        process: None,
    };
    RunReport::new(&stats, Delivered { items: stats.items, batches: 0 }, [], None)
}

fn answer(stats: RunReport) -> Answer {
    Answer {
        version: 1,
        pid: 4711,
        run: "era5".into(),
        stats: Some(stats),
        waits: None,
        set: None,
        error: None,
        last: false,
    }
}

fn model() -> Model {
    let mut model = Model::new(&answer(report(10, 2))).unwrap();
    model.take(answer(report(12, 2)));
    model
}

fn drawn(model: &Model, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, model)).unwrap();
    let cells = terminal.backend().buffer().content();
    let lines = cells.chunks(usize::from(width.max(1)));
    lines.map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>()).collect()
}

fn press(model: &mut Model, code: KeyCode) -> Option<Wish> {
    model.key(KeyEvent::new(code, KeyModifiers::NONE))
}

/// `line` as it is drawn, with whatever fills the rest of its row.
fn assert_row(lines: &[String], row: usize, begins: &str) {
    assert!(lines[row].starts_with(begins), "row {row} of\n{}", lines.join("\n"));
}

#[test]
fn a_usual_terminal_shows_all() {
    let lines = drawn(&model(), 80, 24);
    assert_row(
        &lines,
        0,
        "era5 (4711)  running for 12.0 s  100 items/s  1.00 GB/s  you waited 90 %",
    );
    assert_row(&lines, 1, "  stage     kind   wrk items/s could do     p50     p99 workers are");
    assert_row(&lines, 2, "▸ windows source     1     100        –       –       – ▒▒");
    assert_row(&lines, 3, "  fetch       io     8     100      444 18.9 ms  120 ms ███");
    assert_row(&lines, 4, "  decode     cpu     2     100      111 18.9 ms  120 ms ██");
    assert_row(
        &lines,
        5,
        "  ▲ Limit: decode — both workers are computing 97 % of the time (median",
    );
    assert_row(&lines, 8, "  upload");
    assert_row(&lines, 9, "  you                –     100     1000                 █");
    assert_row(&lines, 23, "? help");
    assert!(lines[3].contains('▚') && lines[3].contains('▓'), "turn and limit: {}", lines[3]);
    assert!(lines[4].ends_with("■■■■■□"), "the buffer: {}", lines[4]);
}

#[test]
fn a_small_terminal_shows_what_matters() {
    let lines = drawn(&model(), 40, 10);
    assert_row(&lines, 0, "era5  100 items/s  you wait 90 %");
    assert_row(&lines, 1, "  stage     wrk items/s workers are");
    assert_row(&lines, 2, "▸ windows     1     100 ▒");
    assert_row(&lines, 4, "  decode      2     100 ██");
    assert_row(&lines, 5, "  ▲ Limit: decode — both workers are");
    assert_row(&lines, 7, "  you         –     100 █");
    assert_row(&lines, 9, "? help  + - workers  b waits");
}

#[test]
fn a_large_terminal_shows_the_buffers_in_figures() {
    let lines = drawn(&model(), 160, 40);
    assert!(lines[1].contains("where its workers are"));
    assert!(lines[4].trim_end().ends_with("6, 3.15 MB"), "{}", lines[4]);
    assert!(lines[6].contains("try: more `workers` or cores"), "{}", lines.join("\n"));
}

/// Whatever the size, nothing panics, and what there is room for is there.
#[test]
fn any_size_will_do() {
    let mut model = model();
    model.waits = vec!["you wait".into(), "decode starved".into()];
    for panel in [Panel::None, Panel::Waits, Panel::Help] {
        model.panel = panel;
        for width in (0..130).step_by(7).chain([1, 2, 40, 80]) {
            for height in 0..32 {
                let lines = drawn(&model, width, height);
                if width > 20 && height > 0 {
                    assert!(lines[0].starts_with("era5"));
                }
            }
        }
    }
}

#[test]
fn keys_choose_a_stage_and_change_its_workers() {
    let mut model = model();
    press(&mut model, KeyCode::Down);
    press(&mut model, KeyCode::Down);
    assert_eq!(model.selected, "decode");
    let wish = press(&mut model, KeyCode::Char('+'));
    let set = SetWorkers { stage: "decode".into(), workers: 3 };
    assert_eq!(wish, Some(Wish::Set(set)));
    // Another key before the answer counts from what was asked.
    let set = SetWorkers { stage: "decode".into(), workers: 4 };
    assert_eq!(press(&mut model, KeyCode::Char('+')), Some(Wish::Set(set)));
    let set = SetWorkers { stage: "decode".into(), workers: 3 };
    assert_eq!(press(&mut model, KeyCode::Char('-')), Some(Wish::Set(set)));
    let set = WorkersSet { stage: "decode".into(), workers: 3, before: 2 };
    model.take(Answer { set: Some(set), ..answer(report(13, 3)) });
    assert_row(&drawn(&model, 80, 24), 4, "▸ decode     cpu   2→3 ");
    assert_row(&drawn(&model, 80, 24), 23, "decode: 2 → 3 workers");
    // The order of display changes, the choice does not.
    press(&mut model, KeyCode::Char('s'));
    assert_row(&drawn(&model, 80, 24), 2, "▸ decode");
    assert_row(&drawn(&model, 80, 24), 23, "busiest first");
    let wish = press(&mut model, KeyCode::Char('-'));
    assert_eq!(wish, Some(Wish::Set(SetWorkers { stage: "decode".into(), workers: 2 })));
    // What can't be is told by the run.
    let refused = Answer { stats: None, error: Some("not so many".into()), ..answer(report(1, 1)) };
    model.take(refused);
    assert_row(&drawn(&model, 80, 24), 23, "not so many");
}

#[test]
fn keys_show_who_waits_help_and_pause() {
    let mut model = model();
    model.waits = vec!["you wait".into(), "upload starved".into(), "decode item 41".into()];
    press(&mut model, KeyCode::Char('b'));
    let lines = drawn(&model, 80, 24).join("\n");
    assert!(
        lines.contains("who waits for whom") && lines.contains("└ for decode item 41"),
        "{lines}"
    );
    press(&mut model, KeyCode::Char('?'));
    let lines = drawn(&model, 80, 24).join("\n");
    for part in ["choose a stage", "working", "starved", "blocked", "turn", "limit"] {
        assert!(lines.contains(part), "{part} in {lines}");
    }
    assert_eq!(press(&mut model, KeyCode::Esc), None, "the first leaves the help");
    press(&mut model, KeyCode::Char('p'));
    model.take(answer(report(20, 2)));
    assert_row(&drawn(&model, 80, 24), 0, "era5 (4711)  running for 12.0 s");
    assert_row(&drawn(&model, 80, 24), 23, "PAUSED");
    press(&mut model, KeyCode::Char('p'));
    model.take(answer(report(21, 2)));
    assert_row(&drawn(&model, 80, 24), 0, "era5 (4711)  running for 21.0 s");
    assert_eq!(press(&mut model, KeyCode::Esc), Some(Wish::Quit));
    assert_eq!(press(&mut model, KeyCode::Char('q')), Some(Wish::Quit));
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(model.key(interrupt), Some(Wish::Quit));
}

#[test]
fn a_run_that_ends_says_how() {
    let mut ended = report(14, 2);
    ended.ended = Some(Ended::Failed);
    ended.error = Some("stage `decode` failed on item 3: bad".into());
    let mut model = model();
    model.take(Answer { last: true, ..answer(ended) });
    assert_eq!(model.over, Some(Over::Ended));
    let lines = drawn(&model, 80, 24);
    assert_row(&lines, 0, "era5 (4711)  failed after 14.0 s");
    assert_row(&lines, 23, "the run has ended: stage `decode` failed on item 3: bad");
    assert_eq!(press(&mut model, KeyCode::Char('+')), None);
    let mut model = self::model();
    model.lose();
    assert_row(&drawn(&model, 80, 24), 0, "era5 (4711)  gone after 12.0 s");
}
