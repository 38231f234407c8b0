//! Two ends over faulty links, each with its judge. The bytes choose the operations and the faults.

use std::time::Duration;

use protocol_core::mcp::Era;
use protocol_core::{CallTimeouts, Config, RateWindow};

use testkit::config::{app_config, gateway_config};
use testkit::config::{client_config, server_config, with};
use testkit::world::{Wire, World};

/// The maximum number of operations of one input. The others are ignored.
const OPERATIONS: usize = 400;

/// Byte 0: the configuration (bits 0 to 2), the era of a server that has only one (bit 3, see `eras`), links so slow that the answer to a
/// probe is late (bit 4, unless the client's era is [`Era::Legacy`]), and the kind of the links (bit 7). Byte 1: the seed of the links.
/// Byte 2: the way in which the run ends. Byte 3: the protocol is Tesseron (bit 7); otherwise the eras of MCP that the ends speak (bits 5
/// and 2). The rest: operations of [`testkit::world::ops`], four bytes each.
pub fn pair(data: &[u8]) {
    let ([variant, seed, ending, protocol], rest) = super::head(data);
    let (client, server) = match protocol & 0x80 {
        0 => {
            let (client, server) = eras(variant, protocol);
            configs(
                variant,
                with(client_config(), |config| config.era = client),
                with(server_config(), |config| config.era = server),
            )
        }
        _ => configs(variant, gateway_config(), app_config()),
    };
    let wire = if variant & 0x80 == 0 { Wire::Messages } else { Wire::Bytes };
    let is_slow = client.era != Era::Legacy && variant & 0x10 != 0;
    let mut world = World::of_sessions(client, server, wire, seed.into());
    if is_slow {
        (0..2).for_each(|at| world.faults(at, |faults| faults.latency = Duration::from_millis(300)));
    }
    world.deliver_all();
    let (operations, _) = rest.as_chunks::<4>();
    for operation in operations.iter().take(OPERATIONS) {
        world.apply(*operation);
    }
    world.finish(ending);
}

/// The era of the client, and that of the server. A client that chooses its era (bit 5) has a server of both eras, or, with bit 2, a server
/// of the one era that bit 3 of `variant` selects.
fn eras(variant: u8, protocol: u8) -> (Era, Era) {
    match (protocol & 0x20, protocol & 0x04) {
        (0, 0) => (Era::Legacy, Era::Auto),
        (0, _) => (Era::Modern, Era::Auto),
        (_, 0) => (Era::Auto, Era::Auto),
        _ if variant & 0x08 == 0 => (Era::Auto, Era::Legacy),
        _ => (Era::Auto, Era::Modern),
    }
}

/// Configurations with small timeouts, rates and limits, which are soon reached.
fn configs(variant: u8, client: Config, server: Config) -> (Config, Config) {
    let events = if variant & 1 == 0 { 8 } else { 100 };
    let client = with(client, |config| {
        let (idle, max_total) = (Some(Duration::from_millis(900)), Some(Duration::from_secs(4)));
        config.timeouts.probe = Some(Duration::from_millis(500));
        config.timeouts.call = CallTimeouts::NONE.with_idle(idle).with_max_total(max_total).with_reset_on_progress(true);
        (config.limits.in_flight, config.limits.events, config.limits.ended_ids) = (6, events, 4);
    });
    let server = with(server, |config| {
        config.progress.window = RateWindow::new(3, Duration::from_millis(400));
        config.timeouts.serve = (variant & 4 == 0).then_some(Duration::from_millis(1500));
        config.timeouts.input = Some(Duration::from_millis(700));
        config.timeouts.response_gap = Duration::from_millis(if variant & 2 == 0 { 0 } else { 40 });
        config.timeouts.call.idle = Some(Duration::from_millis(900));
        (config.limits.in_flight, config.limits.events, config.limits.ended_ids) = (5, events, 4);
    });
    (client, server)
}
