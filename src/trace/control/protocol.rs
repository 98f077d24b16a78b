//! What is said over a control socket: a request a line, an answer a line, both JSON.

use serde::{Deserialize, Serialize};

use crate::trace::RunReport;

/// The version of the answers. Fields are added, never changed.
pub(crate) const VERSION: u32 = 1;
/// A request has no more bytes than this.
pub(crate) const REQUEST_BYTES_MAX: usize = 4096;

/// `{"get": "stats"}` or `{"set": {"stage": "decode", "workers": 5}}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    Get(What),
    Set(SetWorkers),
}

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    /// The figures so far.
    Stats,
    /// Who waits for whom.
    Waits,
}

/// The workers that a stage shall have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetWorkers {
    pub(crate) stage: String,
    pub(crate) workers: usize,
}

/// An answer: what was asked for, or an error.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) version: u32,
    pub(crate) pid: u32,
    /// The pipeline's name.
    pub(crate) run: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stats: Option<RunReport>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waits: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) set: Option<WorkersSet>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// The run has ended; nothing comes after this.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) last: bool,
}

/// The workers of a stage were changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkersSet {
    pub(crate) stage: String,
    pub(crate) workers: usize,
    /// How many it was to have before.
    pub(crate) before: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Request {
    /// The request that a line makes.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| {
            format!(
                "{error}: write {{\"get\": \"stats\"}}, {{\"get\": \"waits\"}} or \
                 {{\"set\": {{\"stage\": \"decode\", \"workers\": 5}}}}"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_one_thing_each() {
        let parsed = |line: &str| Request::parse(line.as_bytes());
        assert_eq!(parsed(r#"{"get":"stats"}"#), Ok(Request::Get(What::Stats)));
        let set = SetWorkers { stage: "decode".into(), workers: 5 };
        let line = r#" {"set": {"stage": "decode", "workers": 5}} "#;
        assert_eq!(parsed(line), Ok(Request::Set(set)));
        for wrong in [
            "",
            "{}",
            "[]",
            "get stats",
            r#"{"get":"secrets"}"#,
            r#"{"get":"stats","set":{"stage":"a","workers":1}}"#,
            r#"{"set":{"stage":"a","workers":-1}}"#,
            r#"{"set":{"stage":"a","workers":1.5}}"#,
            r#"{"set":{"stage":"a","workers":1,"more":2}}"#,
            r#"{"set":{"stage":"a"}}"#,
            "{\"get\":\"\u{0}\"}",
        ] {
            let error = parsed(wrong).expect_err(wrong);
            assert!(error.contains(r#"write {"get": "stats"}"#), "{error}");
        }
        assert!(Request::parse(b"\xff\xfe{").is_err());
        assert!(Request::parse("[".repeat(REQUEST_BYTES_MAX).as_bytes()).is_err());
    }
}
