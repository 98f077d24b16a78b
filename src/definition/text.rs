//! The text of a definition: read within bounds, and shown without secrets.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::Definition;
use super::tree::{self, Node, Place, Value};

/// A definition of more bytes is refused: it was surely not meant as one.
const BYTES_MAX: u64 = 1 << 20;

/// The text in `file`.
///
/// # Errors
/// It can't be read, is too large, or is no text; in words that come behind "can't read".
pub(super) fn read(file: &Path) -> Result<String, String> {
    let opened = File::open(file).map_err(|error| error.to_string())?;
    let metadata = opened.metadata().map_err(|error| error.to_string())?;
    if metadata.is_dir() {
        return Err("it is a folder: name a file in it".to_owned());
    }
    let mut bytes = Vec::new();
    // What is no file may never end.
    let mut some = opened.take(BYTES_MAX + 1);
    some.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err("it has more than 1 MiB, which no definition needs".to_owned());
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let bytes = error.into_bytes();
        let before = String::from_utf8_lossy(&bytes[..good]).into_owned();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
        format!(
            "line {line}, column {column} is no UTF-8 (a byte {:#04x}): save it as UTF-8",
            bytes[good]
        )
    })
}

impl Definition {
    /// Its text without what may be a secret: values of keys that are called like one, users and
    /// passwords in URLs and what stands behind their `?`.
    pub fn text_without_secrets(&self) -> String {
        let mut places = secrets(&self.text);
        let mut text = self.text.to_string();
        let plain = |c| matches!(c, '"' | '\'');
        let told = places.iter().map(|place| text[place.clone()].trim_matches(plain).to_owned());
        // A variable is no secret; what is one may stand in a comment, too.
        let told: Vec<_> = told.filter(|told| told.len() > 3 && !told.contains("$(")).collect();
        places.sort_by_key(|place| place.start);
        for place in places.into_iter().rev().filter(|place| !place.is_empty()) {
            text.replace_range(place, "\"***\"");
        }
        let text = told.iter().fold(text, |text, told| text.replace(told, "***"));
        crate::store::redacted(&text)
    }
}

/// The text with stars for what may be a secret, so that nothing moves from its place.
pub(super) fn starred(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for place in secrets(text) {
        let is_plain = |byte: &u8| matches!(byte, b'"' | b'\'' | b'\n' | b'\r');
        bytes[place].iter_mut().filter(|byte| !is_plain(byte)).for_each(|byte| *byte = b'*');
    }
    crate::store::starred(&String::from_utf8_lossy(&bytes))
}

/// Where the values of keys that are called like a secret stand.
fn secrets(text: &str) -> Vec<Place> {
    fn of(node: &Node, places: &mut Vec<Place>) {
        match &node.value {
            Value::List(nodes) => nodes.iter().for_each(|node| of(node, places)),
            Value::Map(entries) => {
                for (key, node) in entries {
                    let is_scalar = !matches!(node.value, Value::List(_) | Value::Map(_));
                    if is_scalar && is_secret(&key.text) {
                        places.push(node.place.clone());
                    } else if is_secret(&key.text)
                        && let Some(default) = node.get("default")
                    {
                        places.push(default.place.clone());
                    } else {
                        of(node, places);
                    }
                }
            }
            _ => {}
        }
    }
    let mut places = Vec::new();
    if let Ok(top) = tree::parse(text) {
        of(&top, &mut places);
    }
    places
}

/// Whether what a key of this name holds may be a secret.
fn is_secret(key: &str) -> bool {
    let key = key.to_lowercase();
    ["secret", "token", "password", "passwd", "access_key", "account_key", "sas", "credential"]
        .iter()
        .any(|word| key.contains(word))
}
