//! What was logged. A test on the simulated GPU is alone in its process.

use std::sync::Mutex;

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Keeps what is logged from now on.
pub(crate) fn keep() {
    tracing_subscriber::fmt().with_ansi(false).with_writer(|| Log).init();
}

/// What was kept so far.
pub(crate) fn kept() -> String {
    String::from_utf8(LOG.lock().unwrap().clone()).unwrap()
}

struct Log;

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
