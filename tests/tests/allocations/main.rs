//! Tests that count allocations. They are a program of their own, since they replace its allocator by one that counts.

mod hot_paths;
mod load;
mod payloads;
