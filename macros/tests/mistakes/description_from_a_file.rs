#[macros::tool]
/// Resizes.
#[doc = include_str!("resize.md")]
async fn resize() {}

fn main() {}
