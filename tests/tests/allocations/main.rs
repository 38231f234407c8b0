//! Allocations, counted and not timed. They have a program of their own, since its allocator is replaced by one that counts.

mod hot_paths;
mod load;
mod payloads;
