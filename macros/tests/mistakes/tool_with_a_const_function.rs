#[macros::tool]
const fn one() -> u8 {
    1
}

fn main() {}
