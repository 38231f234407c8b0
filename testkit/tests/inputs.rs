//! Generated inputs, by the strategies and by `Arbitrary`: their form, and sessions and worlds that take them without an objection.

#[cfg(feature = "proptest")]
mod strategies {
    use proptest::prelude::*;
    use protocol_core::{Instant, Invoke, Lane, Session};
    use testkit::{Happening, Watched, World, config, strategies};

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
    use arbitrary::{Arbitrary, Unstructured};
    use protocol_core::Json;
    use testkit::fuzz::{DICTIONARY, Frame, HostileFrame, Operations, SEEDS};
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
    fn the_seeds_are_json_and_the_dictionary_has_more_than_thirty_entries() {
        for (name, text) in SEEDS {
            assert!(Json::parse(text).is_ok(), "{name}");
        }
        assert!(DICTIONARY.lines().filter(|line| line.starts_with('"')).count() > 30);
    }
}
