//! Stores that are damaged at random, metadata and chunks alike: an error or other values, but never
//! a panic, a hang or more memory than the store can need. `FOREBAY_FUZZ=100000 cargo test --release
//! fuzz` looks at as many as you like; `FOREBAY_FUZZ_SEED` begins elsewhere.

use forebay::prelude::*;
use serde_json::Value;

use crate::fixture::{Objects, batches, files, spec};
use crate::written;

/// Damaged stores that are looked at.
const STORES: u64 = 1500;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Numbers and texts that metadata has no use for.
fn odd(random: &mut fastrand::Rng) -> Value {
    let texts = ["", "x", "zstd", "<f8", "|S0", "..", "NaN", "sharding_indexed"];
    match random.u8(..12) {
        0 => Value::Null,
        1 => Value::from(0),
        2 => Value::from(-1),
        3 => Value::from(u64::MAX),
        4 => Value::from(1_u64 << 60),
        5 => Value::from(1e300),
        6 => Value::from(random.u32(..1000)),
        7 => Value::from(random.bool()),
        8 => Value::Array(Vec::new()),
        9 => Value::Array(vec![Value::from(random.u64(..)); random.usize(1..5)]),
        10 => Value::Object(serde_json::Map::new()),
        _ => Value::from(*random.choice(texts.iter()).expect("some")),
    }
}

/// Puts something odd at a random place of `value`.
fn damage_json(value: &mut Value, random: &mut fastrand::Rng) {
    match value {
        Value::Object(map) if !map.is_empty() && random.u8(..6) > 0 => {
            let at = random.usize(..map.len());
            let key = map.keys().nth(at).expect("there").clone();
            match random.u8(..8) {
                0 => _ = map.remove(&key),
                _ => damage_json(&mut map[&key], random),
            }
        }
        Value::Array(list) if !list.is_empty() && random.u8(..6) > 0 => {
            let at = random.usize(..list.len());
            match random.u8(..8) {
                0 => _ = list.remove(at),
                1 => list.push(list[at].clone()),
                _ => damage_json(&mut list[at], random),
            }
        }
        other => *other = odd(random),
    }
}

fn damage(bytes: &mut Vec<u8>, random: &mut fastrand::Rng) {
    for _ in 0..random.usize(1..4) {
        if bytes.is_empty() {
            return;
        }
        let at = random.usize(..bytes.len());
        match random.u8(..6) {
            0 => bytes.truncate(at),
            1 => bytes[at] = 0xff,
            2 => bytes.extend(std::iter::repeat_n(0, random.usize(..64))),
            3 => _ = bytes.remove(at),
            4 => bytes.swap(0, at),
            _ => bytes[at] ^= 1 << random.u8(..8),
        }
    }
}

/// Damages one object of a store; says which.
fn damage_one(objects: &mut Objects, random: &mut fastrand::Rng) -> String {
    let at = random.usize(..objects.len());
    let (key, bytes) = objects.iter_mut().nth(at).expect("there");
    match serde_json::from_slice::<Value>(bytes) {
        // Most damage to the text of metadata would only make it no JSON.
        Ok(mut value) if random.u8(..8) > 0 => {
            damage_json(&mut value, random);
            *bytes = serde_json::to_vec(&value).expect("JSON");
        }
        _ => damage(bytes, random),
    }
    key.clone()
}

#[expect(clippy::print_stdout, reason = "says what was looked at")]
#[test]
fn damaged_stores_are_errors_at_worst() {
    let cases = written::cases();
    let seed = number("FOREBAY_FUZZ_SEED", 1);
    let (mut read, mut refused, mut failed) = (0, 0, 0);
    for number in seed..seed + number("FOREBAY_FUZZ", STORES) {
        let mut random = fastrand::Rng::with_seed(number);
        let case = random.choice(&cases).expect("some");
        let mut objects = written::objects(case);
        let key = damage_one(&mut objects, &mut random);
        let what = format!("seed {number}: {} with `{key}` damaged", case["name"]);
        let folder = files(&objects);
        let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
        let window: &[(&str, u64)] = if random.bool() { &[("time", 4)] } else { &[("time", 1)] };
        let spec = spec(&["v"], window);
        if zarr::windows(&store, &spec).is_err() {
            refused += 1;
            continue;
        }
        let pipeline = batches(&store, &spec, 2);
        // A shape that was made larger has as many windows as it says.
        let fault = pipeline.run().expect("runs").take(50).find_map(Result::err);
        match fault {
            None => read += 1,
            Some(fault) => {
                let text = fault.to_string();
                assert!(!text.contains("panic"), "{what}: {text}");
                failed += 1;
            }
        }
    }
    println!("{read} read, {refused} refused at open, {failed} failed");
    assert!(read.min(refused).min(failed) > 0, "every outcome is reached");
}
