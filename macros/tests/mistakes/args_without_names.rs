#[macros::args]
struct Add(u8, u8);

#[macros::args]
fn add() {}

#[macros::args(strict)]
struct Sub {
    a: u8,
}

fn main() {}
