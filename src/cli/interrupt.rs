//! Ctrl-C and SIGTERM: the first asks for an end, the second ends the process at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::signal::unix::{SignalKind, signal};

use super::Exit;
use crate::trace::control::folder::remove_sockets;

/// Whether the process was asked to end.
#[derive(Clone, Debug, Default)]
pub(super) struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Does `end` when the process is asked to end. The thread lives as long as the process.
    pub(super) fn watch(&self, end: impl Fn() + Send + 'static) -> io::Result<()> {
        let interrupted = self.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (mut interrupts, mut terminations) = {
            let _guard = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        let watch = move || {
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        _ = interrupts.recv() => {}
                        _ = terminations.recv() => {}
                    }
                    if interrupted.0.swap(true, Relaxed) {
                        // Nothing else of this process will.
                        remove_sockets();
                        std::process::exit(Exit::Interrupted as i32);
                    }
                    end();
                }
            });
        };
        std::thread::Builder::new().name("forebay:signals".into()).spawn(watch).map(drop)
    }
}
