//! What device stages did on their devices, as metrics.

use super::{Figure, Sort, Unit, Value, of, point};
use crate::stage::Kind;
use crate::trace::{DeviceStats, RunStats};

/// What the lanes of device stages did, if there are such stages.
pub(super) fn on_devices(stats: &RunStats) -> Vec<Figure> {
    let stages: Vec<_> = stats.stages.iter().filter(|stage| stage.kind == Kind::Device).collect();
    if stages.is_empty() {
        return Vec::new();
    }
    let figure = |name, unit, sort, help, read: fn(&DeviceStats) -> Value| {
        let points = stages.iter().map(|stage| point(of(stage), read(&stage.device))).collect();
        Figure { name, unit, sort, help, points }
    };
    let count = |name, unit, help, read| figure(name, unit, Sort::Counter, help, read);
    vec![
        count(
            "forebay_device_copies",
            Unit::None,
            "Batches copied to or from a device",
            |device| Value::Whole(device.copies),
        ),
        count("forebay_device_copied", Unit::Bytes, "Bytes copied to or from a device", |device| {
            Value::Whole(device.copied_bytes)
        }),
        count(
            "forebay_device_copy",
            Unit::Seconds,
            "How long copies took, by the device's clock",
            |device| Value::Real(device.copy_ns as f64 / 1e9),
        ),
        figure(
            "forebay_device_overlap_ratio",
            Unit::None,
            Sort::Gauge,
            "For which share of the copies' time kernels ran beside them",
            |device| Value::Real(device.overlap_ns as f64 / device.copy_ns.max(1) as f64),
        ),
        count(
            "forebay_device_kernel_batches",
            Unit::None,
            "Batches that kernels worked on",
            |device| Value::Whole(device.kernel_batches),
        ),
        count(
            "forebay_device_kernel",
            Unit::Seconds,
            "How long kernels took, by the device's clock",
            |device| Value::Real(device.kernel_ns as f64 / 1e9),
        ),
        count(
            "forebay_device_pageable_copies",
            Unit::None,
            "Tensors that the host had to copy to pinned memory first",
            |device| Value::Whole(device.pageable_copies),
        ),
    ]
}
