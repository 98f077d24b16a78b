//! The terminal while `top` draws on it: keys come in, the run is asked from a thread of its own, and
//! whatever happens the terminal is as it was before.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};

use super::client::Client;
use super::draw::draw;
use super::model::{Model, Over, Panel, Wish};
use crate::cli::interrupt::Interrupted;
use crate::trace::control::protocol::{Answer, Request, What};

/// How long a key may take until it is seen, and an answer until it is drawn.
const GLANCE: Duration = Duration::from_millis(40);

/// Gives the terminal back when it is dropped.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> io::Result<Self> {
        // It also gives the terminal back before a panic is told.
        ratatui::try_init().map(Screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Err(error) = ratatui::try_restore() {
            tracing::debug!(%error, "the terminal is gone");
        }
    }
}

/// Shows a run until it is left; gives what there is to say then.
pub(super) fn show(client: Client, interval: Duration) -> io::Result<String> {
    let Some(mut model) = Model::new(client.first()) else {
        return Err(io::Error::other("the run gives no figures"));
    };
    let interrupted = Interrupted::default();
    interrupted.watch(|| {})?;
    let wants_waits = Arc::new(AtomicBool::new(false));
    let (requests, asked) = sync_channel(16);
    let (told, answers) = sync_channel(16);
    let asks = Arc::clone(&wants_waits);
    let ask = move || ask(client, &asked, &told, interval, &asks);
    // It ends when this end of its channels is dropped, or with the process.
    std::thread::Builder::new().name("forebay:top".into()).spawn(ask)?;
    let mut screen = Screen::open()?;
    let mut stale = true;
    while !interrupted.is_set() {
        loop {
            match answers.try_recv() {
                Ok(Some(answer)) => model.take(answer),
                Ok(None) => model.lose(),
                Err(_) => break,
            }
            stale = true;
        }
        wants_waits.store(model.panel == Panel::Waits, Relaxed);
        if std::mem::take(&mut stale) {
            screen.0.draw(|frame| draw(frame, &model))?;
        }
        if !event::poll(GLANCE)? {
            continue;
        }
        stale = true;
        if let Event::Key(key) = event::read()? {
            match model.key(key) {
                Some(Wish::Quit) => break,
                // More than a run can take are not kept.
                Some(Wish::Set(set)) => _ = requests.try_send(Request::Set(set)),
                None => {}
            }
        }
    }
    drop(screen);
    Ok(match model.over {
        Some(Over::Ended) => format!("{}\n", ending(&model)),
        Some(Over::Gone) => "the run can't be reached any more\n".to_owned(),
        None => String::new(),
    })
}

fn ending(model: &Model) -> String {
    let report = model.now();
    match &report.error {
        Some(error) => format!("{} has ended: {error}", model.name),
        None => format!("{} has ended after {} items", model.name, report.items),
    }
}

/// Asks for figures every `interval`, and at once what a key asks for. The last word is `None` if the
/// run went without one.
fn ask(
    mut client: Client,
    asked: &Receiver<Request>,
    told: &SyncSender<Option<Answer>>,
    interval: Duration,
    wants_waits: &AtomicBool,
) {
    let mut due = Instant::now();
    loop {
        let requests = match asked.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(request) => vec![request],
            Err(RecvTimeoutError::Timeout) => {
                due = Instant::now() + interval;
                let waits = wants_waits.load(Relaxed).then_some(Request::Get(What::Waits));
                [Request::Get(What::Stats)].into_iter().chain(waits).collect()
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        for request in requests {
            let answer = client.ask(&request).ok();
            let ends = answer.as_ref().is_none_or(|answer| answer.last);
            if told.send(answer).is_err() || ends {
                return;
            }
        }
    }
}
