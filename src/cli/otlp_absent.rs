//! In place of `otlp` where the feature is off: says what to build. There is never a value of these
//! types.

use tracing_subscriber::layer::Identity;

use crate::running::Handle;

/// See `otlp`.
#[derive(Clone, Debug)]
pub(super) enum Collector {}

/// See `otlp`.
pub(super) enum Telemetry {}

pub(super) fn collector(_: &str) -> Result<Collector, String> {
    Err("this forebay was built without OpenTelemetry: build it with `--features otlp`".to_owned())
}

impl Telemetry {
    pub(super) fn to(collector: &Collector) -> Result<Self, String> {
        match *collector {}
    }

    pub(super) fn layer(&self) -> Identity {
        match *self {}
    }

    pub(super) fn send(&mut self, _: Handle) {
        match *self {}
    }

    pub(super) fn finish(self) {
        match self {}
    }
}
