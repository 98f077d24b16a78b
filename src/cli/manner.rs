//! How the command talks: whether in colour, and how much it says.

use std::io::IsTerminal as _;

use clap::{ArgAction, ValueEnum};
use tracing::Level;
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry};

use super::otlp::Telemetry;
use super::terminal;

/// What all commands understand.
#[derive(clap::Args)]
pub(super) struct Manner {
    /// Whether there is colour: `auto` on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    color: When,
    /// Says only what is asked for, and what goes wrong
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(super) quiet: bool,
    /// Says more of what happens inside: -v, -vv, -vvv
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
}

/// Crates that talk to stores.
const HTTP_CLIENTS: [&str; 4] = ["hyper", "hyper_util", "h2", "reqwest"];

/// Whether there is colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum When {
    #[default]
    Auto,
    Always,
    Never,
}

impl When {
    /// Whether there is colour on a stream that is a terminal, or not.
    fn holds(self, is_terminal: bool, no_color: bool) -> bool {
        match self {
            When::Auto => is_terminal && !no_color,
            When::Always => true,
            When::Never => false,
        }
    }
}

impl Manner {
    /// From now on the command talks so; what is told to `telemetry` is its own business.
    pub(super) fn adopt(&self, telemetry: Option<&Telemetry>) {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let err = self.color.holds(std::io::stderr().is_terminal(), no_color);
        let out = self.color.holds(std::io::stdout().is_terminal(), no_color);
        terminal::adopt(out, err, self.quiet);
        self.log(telemetry);
    }

    /// What of the library's own log is shown: as the flags say, else as `FOREBAY_LOG` does (`debug`,
    /// or `forebay::item=trace`), else warnings.
    fn log(&self, telemetry: Option<&Telemetry>) {
        let said = match (self.quiet, self.verbose) {
            (true, _) => Some("error"),
            (_, 0) => None,
            (_, 1) => Some("warn,forebay=info"),
            (_, 2) => Some("warn,forebay=debug"),
            _ => Some("info,forebay=trace"),
        };
        let filter = match said {
            Some(said) => EnvFilter::new(said),
            None => {
                EnvFilter::try_from_env("FOREBAY_LOG").unwrap_or_else(|_| EnvFilter::new("warn"))
            }
        };
        // What they say of single requests holds URLs with users and passwords.
        let told = |target: &str, level: &Level| {
            let name = target.split("::").next().unwrap_or_default();
            level <= &Level::WARN || !HTTP_CLIENTS.contains(&name)
        };
        let filter =
            filter.and(filter_fn(move |metadata| told(metadata.target(), metadata.level())));
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(|| terminal::Talk)
            .with_ansi(terminal::has_color())
            .with_target(false)
            .without_time()
            .with_filter(filter);
        let subscriber = Registry::default().with(lines);
        // Not `with` an option: a layer that is not there would make every callsite ask at run time.
        let subscribed = match telemetry {
            Some(telemetry) => subscriber.with(telemetry.layer()).try_init(),
            None => subscriber.try_init(),
        };
        // It fails if the program has a subscriber of its own, which then has its way.
        if let Err(error) = subscribed {
            tracing::debug!(%error, "another subscriber is in place");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_for_terminals_unless_it_is_asked_for() {
        let holds = |when: When| {
            [(true, false), (true, true), (false, false)].map(|(t, n)| when.holds(t, n))
        };
        assert_eq!(holds(When::Auto), [true, false, false]);
        assert_eq!(holds(When::Always), [true, true, true]);
        assert_eq!(holds(When::Never), [false, false, false]);
    }
}
