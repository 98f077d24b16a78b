//! Calls on a device. Each worker is a lane: a thread of its own, on which all its calls run.
