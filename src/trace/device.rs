//! What a stage's lanes did on their device: copies and kernels, timed by the device itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Counts while a stage runs.
#[derive(Debug, Default)]
pub(crate) struct DeviceMeter {
    copies: AtomicU64,
    copied_bytes: AtomicU64,
    copy_ns: AtomicU64,
    overlap_ns: AtomicU64,
    kernel_batches: AtomicU64,
    kernel_ns: AtomicU64,
    pageable_copies: AtomicU64,
}

/// What a stage's lanes did on their device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStats {
    /// Batches that were copied to or from it.
    pub copies: u64,
    /// Bytes that were copied.
    pub copied_bytes: u64,
    /// How long the copies took on the device, in nanoseconds.
    pub copy_ns: u64,
    /// For how much of that kernels of the pipeline's stages ran on the same device, in nanoseconds.
    #[serde(default)]
    pub overlap_ns: u64,
    /// Batches that kernels worked on.
    pub kernel_batches: u64,
    /// How long the kernels took on the device, in nanoseconds.
    pub kernel_ns: u64,
    /// Tensors that the host had to copy to pinned memory first.
    pub pageable_copies: u64,
}

impl DeviceMeter {
    /// A batch was copied.
    pub(crate) fn copied(&self, took: Duration, bytes: u64) {
        self.copies.fetch_add(1, Relaxed);
        self.copied_bytes.fetch_add(bytes, Relaxed);
        self.copy_ns.fetch_add(took.as_nanos() as u64, Relaxed);
    }

    /// For so long a copy and a kernel ran at once.
    pub(crate) fn overlapped(&self, shared: Duration) {
        self.overlap_ns.fetch_add(shared.as_nanos() as u64, Relaxed);
    }

    /// Kernels worked on a batch.
    pub(crate) fn ran(&self, took: Duration) {
        self.kernel_batches.fetch_add(1, Relaxed);
        self.kernel_ns.fetch_add(took.as_nanos() as u64, Relaxed);
    }

    /// A tensor was copied to pinned memory by the host.
    pub(crate) fn pageable(&self) {
        self.pageable_copies.fetch_add(1, Relaxed);
    }

    pub(crate) fn figures(&self) -> DeviceStats {
        DeviceStats {
            copies: self.copies.load(Relaxed),
            copied_bytes: self.copied_bytes.load(Relaxed),
            copy_ns: self.copy_ns.load(Relaxed),
            // Two kernels may run beside one copy.
            overlap_ns: self.overlap_ns.load(Relaxed).min(self.copy_ns.load(Relaxed)),
            kernel_batches: self.kernel_batches.load(Relaxed),
            kernel_ns: self.kernel_ns.load(Relaxed),
            pageable_copies: self.pageable_copies.load(Relaxed),
        }
    }
}

impl DeviceStats {
    /// What was done since `earlier`.
    pub(crate) fn since(&self, earlier: &DeviceStats) -> DeviceStats {
        DeviceStats {
            copies: self.copies.saturating_sub(earlier.copies),
            copied_bytes: self.copied_bytes.saturating_sub(earlier.copied_bytes),
            copy_ns: self.copy_ns.saturating_sub(earlier.copy_ns),
            overlap_ns: self.overlap_ns.saturating_sub(earlier.overlap_ns),
            kernel_batches: self.kernel_batches.saturating_sub(earlier.kernel_batches),
            kernel_ns: self.kernel_ns.saturating_sub(earlier.kernel_ns),
            pageable_copies: self.pageable_copies.saturating_sub(earlier.pageable_copies),
        }
    }
}
