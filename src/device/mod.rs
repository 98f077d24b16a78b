//! Where batches go: devices, their lanes, and calls that run on a lane.
