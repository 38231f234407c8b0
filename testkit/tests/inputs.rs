//! Generated inputs, by the strategies and by `Arbitrary`: their kinds, their form, and sessions and worlds that take them without an
//! objection.

#[cfg(feature = "proptest")]
mod strategies {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    use protocol_core::{Instant, Invoke, Json, Lane, Session};
    use testkit::world::ops;
    use testkit::{Happening, Watched, World, config, strategies};

    /// Values of a strategy, the same in every run.
    fn generated<S: Strategy>(strategy: &S, count: usize) -> Vec<S::Value> {
        let mut runner = TestRunner::deterministic();
        (0..count).map(|_| strategy.new_tree(&mut runner).expect("a value").current()).collect()
    }

    #[test]
    fn every_kind_of_frame_is_generated() {
        let frames: Vec<_> =
            generated(&strategies::frame(), 2000).into_iter().map(|frame| Json::parse(frame).expect("JSON")).collect();
        // A part of each kind that no other kind has.
        for part in [
            r#""result":{}}"#,
            r#""error":{"#,
            r#""method":"notifications/progress""#,
            r#""method":"notifications/cancelled""#,
            r#""method":"ping""#,
            r#""method":"roots/list""#,
            r#""method":"notifications/x""#,
            r#""_meta":{"progressToken":"#,
            r#""io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"progressToken":"#,
            r#""method":"server/discover""#,
            r#""method":"subscriptions/listen""#,
            r#""supportedVersions":["2026-07-28"]"#,
            r#""resultType":"complete","content":[]"#,
            r#""resultType":"input_required""#,
            r#""method":"notifications/subscriptions/acknowledged""#,
            r#""method":"notifications/tools/list_changed""#,
        ] {
            assert!(frames.iter().any(|frame| frame.as_str().contains(part)), "{part}");
        }
    }

    #[test]
    fn every_operation_of_random_recordings_is_generated() {
        let opcodes: BTreeSet<u8> = generated(&strategies::operation(), 5000).into_iter().map(|[opcode, ..]| opcode).collect();
        let expected = (0..ops::OPCODES).chain([ops::OPEN_URL]).filter(|opcode| !ops::ends([*opcode, 0, 0, 0]));
        assert_eq!(opcodes, expected.collect::<BTreeSet<_>>());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_sequence_of_hostile_frames_breaks_a_guarantee(frames in prop::collection::vec(strategies::hostile_frame(), 0..40)) {
            for config in [config::client_config(), config::server_config(), config::app_config(), config::gateway_config()] {
                let mut session = Watched::new(Session::new(config, Instant::ZERO), Instant::ZERO);
                session.judge_mut().distrust_peer();
                for frame in &frames {
                    session.handle_frame(frame.clone(), Lane::CHANNEL, Instant::ZERO).expect("there is room, or the frame is dropped");
                    while session.poll_event().is_some() {}
                    while session.poll_transmit().is_some() {}
                }
            }
        }

        #[test]
        fn a_payload_is_passed_on_unchanged(payload in strategies::payload()) {
            let mut world = World::messages(config::client_config(), config::server_config(), 1);
            let now = world.now();
            world.end_mut(0).invoke(Invoke::call_tool("t", payload), now).expect("accepted");
            world.settle();
            prop_assert_eq!(world.coverage().of(Happening::Request), 1);
        }

        #[test]
        fn a_recording_is_read_as_it_was_written(recording in strategies::recording(20)) {
            prop_assert_eq!(recording.to_string().parse(), Ok(recording));
        }
    }
}

#[cfg(feature = "arbitrary")]
mod arbitrary_inputs {
    use std::collections::BTreeSet;

    use arbitrary::{Arbitrary, Unstructured};
    use protocol_core::Json;
    use testkit::fuzz::{DICTIONARY, Frame, HostileFrame, Operations, SEEDS};
    use testkit::world::ops;
    use testkit::{Campaign, Happening, Rng, World, config};

    fn bytes(seed: u64, length: usize) -> Vec<u8> {
        let mut rng = Rng::new(seed);
        (0..length).map(|_| rng.number() as u8).collect()
    }

    #[test]
    fn frames_are_json_and_hostile_ones_often_are_not() {
        let mut broken = 0;
        for seed in 0..500 {
            let data = bytes(seed, 200);
            let frame = Frame::arbitrary(&mut Unstructured::new(&data)).expect("enough bytes").0;
            assert!(Json::parse(frame.clone()).is_ok(), "{frame:?}");
            let hostile = HostileFrame::arbitrary(&mut Unstructured::new(&data)).expect("enough bytes").0;
            broken += usize::from(Json::parse(hostile).is_err());
        }
        assert!((100..450).contains(&broken), "{broken}");
    }

    #[test]
    fn every_seed_and_every_other_kind_of_frame_is_generated() {
        let frame = |seed| Frame::arbitrary(&mut Unstructured::new(&bytes(seed, 200))).expect("enough bytes").0;
        let mut frames: BTreeSet<String> = (0..3000).map(|seed| String::from_utf8(frame(seed).to_vec()).expect("UTF-8")).collect();
        for (name, text) in SEEDS {
            assert!(frames.remove(text), "{name}");
        }
        for (begin, part) in [
            (r#"{"jsonrpc":"2.0","id":"#, r#","result":{"#),
            (r#"{"jsonrpc":"2.0","id":"#, r#","error":{"code":"#),
            (r#"{"jsonrpc":"2.0","id":"#, r#","method":""#),
            (r#"{"jsonrpc":"2.0","id":""#, r#","method":""#),
            (r#"{"jsonrpc":"2.0","method":""#, r#","params":{"#),
        ] {
            assert!(frames.iter().any(|frame| frame.starts_with(begin) && frame.contains(part)), "{begin} {part}");
        }
    }

    #[test]
    fn every_operation_that_ends_nothing_is_generated() {
        let operations =
            |seed| Operations::arbitrary(&mut Unstructured::new(&bytes(seed, 400))).expect("enough bytes").0.operations;
        let opcodes: BTreeSet<u8> = (0..60).flat_map(operations).map(|[opcode, ..]| opcode % ops::PLACES).collect();
        let expected = (0..ops::PLACES).filter(|opcode| !ops::ends([*opcode, 0, 0, 0]));
        assert_eq!(opcodes, expected.collect::<BTreeSet<_>>());
    }

    #[test]
    fn arbitrary_operations_can_be_applied_to_a_world() {
        let mut campaign = Campaign::new(&[Happening::Call, Happening::Result, Happening::Progress]);
        for seed in 0..60 {
            let data = bytes(seed, 400);
            let Operations(recording) = Operations::arbitrary(&mut Unstructured::new(&data)).expect("enough bytes");
            campaign.case(&recording, |recording| {
                let mut world = World::messages(config::client_config(), config::server_config(), recording.seed);
                recording.play(&mut world);
                world.finish(0);
                world.coverage()
            });
        }
        campaign.finish();
    }

    #[test]
    fn the_seeds_are_json_and_the_dictionary_has_their_methods() {
        for line in DICTIONARY.lines() {
            let is_entry = line.len() > 2 && line.starts_with('"') && line.ends_with('"');
            assert!(is_entry || line.starts_with('#'), "{line}");
        }
        for (name, text) in SEEDS {
            let seed = Json::parse(text).expect(name);
            let messages = if seed.is_array() { seed.elements().collect() } else { vec![seed] };
            for method in messages.iter().filter_map(|message| message.member("method")?.as_text()) {
                let entry = format!(r#""\"{method}\"""#);
                assert!(DICTIONARY.lines().any(|line| line == entry), "{name}: {entry}");
            }
        }
    }
}
