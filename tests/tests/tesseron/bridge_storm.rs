//! Storms over a bridge: the fuzz target `bridge`, with operations that depend on a seed alone.

use testkit::Rng;

#[test]
fn no_storm_breaks_a_guarantee_of_a_leg_or_leaves_state_in_the_bridge() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        // The settings of the bridge, then operations of four bytes each.
        let mut data: Vec<u8> = (0..4).map(|_| rng.number() as u8).collect();
        for _ in 0..200 {
            // Mostly calls, cancels, progress, responses, input requests and their answers.
            let opcode = if rng.chance(160) { 3 + rng.below(6) as u8 } else { rng.number() as u8 };
            data.push(opcode);
            data.extend((0..3).map(|_| rng.number() as u8));
        }
        tests::fuzz::bridge(&data);
    }
}
