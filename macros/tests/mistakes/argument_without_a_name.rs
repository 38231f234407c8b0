#[macros::tool]
async fn add(
    /// The numbers.
    (a, b): (u8, u8),
) {
}

fn main() {}
