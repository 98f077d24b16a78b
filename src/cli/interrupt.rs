//! Ctrl-C and SIGTERM: what they ask for in turn, and at last the end of the process.

use std::io;
use std::sync::{Arc, OnceLock};

use tokio::signal::unix::{SignalKind, signal};

use super::Exit;
use crate::trace::control::folder::remove_sockets;

/// Whether the process was asked to end, and how it then exits.
#[derive(Clone, Debug, Default)]
pub(super) struct Interrupted(Arc<OnceLock<Exit>>);

impl Interrupted {
    pub(super) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// What the process exits with, if it was asked to end.
    pub(super) fn exit(&self) -> Option<Exit> {
        self.0.get().copied()
    }

    /// Does `end` when the process is asked to end, and ends it when it is asked again. The thread
    /// lives as long as the process.
    pub(super) fn watch(&self, end: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.watch_each([Box::new(end)])
    }

    /// Does the first of `ends` when the process is asked to end, the next one when it is asked again,
    /// and ends it when none is left.
    pub(super) fn watch_each<const N: usize>(
        &self,
        ends: [Box<dyn FnOnce() + Send>; N],
    ) -> io::Result<()> {
        let interrupted = self.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (mut interrupts, mut terminations) = {
            let _guard = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        let watch = move || {
            runtime.block_on(async {
                let mut ends = ends.into_iter();
                loop {
                    let exit = tokio::select! {
                        _ = interrupts.recv() => Exit::Interrupted,
                        _ = terminations.recv() => Exit::Terminated,
                    };
                    interrupted.0.get_or_init(|| exit);
                    match ends.next() {
                        Some(end) => end(),
                        None => {
                            // Nothing else of this process will.
                            remove_sockets();
                            std::process::exit(exit as i32)
                        }
                    }
                }
            });
        };
        std::thread::Builder::new().name("forebay:signals".into()).spawn(watch).map(drop)
    }
}
