//! The offer of a WebSocket upgrade in `Sec-WebSocket-Protocol` (`docs/protocols/tesseron.md`, "Binding a WebSocket").

use alloc::string::String;

use super::ClaimCode;

/// The subprotocol that a gateway offers and an app selects.
pub const SUBPROTOCOL: &str = "tesseron-gateway";

/// The prefix of the claim code, in the second subprotocol that a gateway offers.
const BIND: &str = "tesseron-bind.";

/// The subprotocols of Tesseron in an upgrade request.
#[derive(Clone, Debug)]
pub struct Offer {
    /// `true` if [`SUBPROTOCOL`] is among the subprotocols.
    gateway: bool,
    bind: OfferedBind,
}

/// The claim code in an upgrade request.
#[derive(Clone, Debug)]
pub(super) enum OfferedBind {
    None,
    Code(ClaimCode),
    /// An invalid code, or more than one code.
    Malformed,
}

impl Offer {
    /// Parses the values of all headers `Sec-WebSocket-Protocol`. Unknown subprotocols are ignored.
    #[must_use]
    pub fn parse<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let mut offer = Self { gateway: false, bind: OfferedBind::None };
        let elements = values.into_iter().flat_map(|value| value.split(',')).map(|element| element.trim_matches([' ', '\t']));
        for element in elements {
            if element == SUBPROTOCOL {
                offer.gateway = true;
            } else if let Some(code) = element.strip_prefix(BIND) {
                offer.bind = match (offer.bind, ClaimCode::parse(code)) {
                    (OfferedBind::None, Ok(code)) => OfferedBind::Code(code),
                    _ => OfferedBind::Malformed,
                };
            }
        }
        offer
    }

    /// Returns `true` if the request is that of a gateway.
    pub(super) fn is_gateway(&self) -> bool {
        self.gateway
    }

    pub(super) fn bind(&self) -> &OfferedBind {
        &self.bind
    }

    /// The value of the header `Sec-WebSocket-Protocol` in a gateway's request, with the claim code if the app has made one.
    #[must_use]
    pub fn header(code: Option<&ClaimCode>) -> String {
        let mut header = String::from(SUBPROTOCOL);
        if let Some(code) = code {
            header.push(',');
            header.push_str(BIND);
            header.push_str(code.reveal());
        }
        header
    }
}

#[cfg(test)]
// In names of tests, `item` or `bug` and a number cite a rule or a fault (docs/protocols/tesseron.md, "Former numbers").
mod tests {
    use super::*;

    /// The parsed offer as text: `true` if it is that of a gateway, and its claim code.
    fn shown(values: &[&str]) -> String {
        let offer = Offer::parse(values.iter().copied());
        let bind = match &offer.bind {
            OfferedBind::None => "none",
            OfferedBind::Code(code) => code.reveal(),
            OfferedBind::Malformed => "malformed",
        };
        alloc::format!("{} {bind}", offer.gateway)
    }

    #[test]
    fn item_111_an_offer_with_more_than_one_code_is_malformed() {
        assert_eq!(shown(&["tesseron-gateway"]), "true none");
        assert_eq!(shown(&["tesseron-gateway,tesseron-bind.PQ7N-4D"]), "true PQ7N-4D");
        assert_eq!(shown(&["tesseron-gateway,tesseron-bind.A,tesseron-bind.B"]), "true malformed");
        assert_eq!(shown(&["tesseron-bind.A,tesseron-gateway,tesseron-bind.A"]), "true malformed", "the same one twice, too");
        assert_eq!(shown(&["tesseron-bind.!,tesseron-bind.A,tesseron-gateway"]), "true malformed");
    }

    #[test]
    fn item_111_white_space_around_elements_is_ignored_and_several_header_lines_are_one_offer() {
        assert_eq!(shown(&[" tesseron-gateway \t,\t tesseron-bind.pq7n-4d "]), "true PQ7N-4D");
        assert_eq!(shown(&["tesseron-gateway", "tesseron-bind.A"]), "true A");
        assert_eq!(shown(&["tesseron-gateway,,"]), "true none");
        assert_eq!(shown(&["tesseron-gateway,tesseron-bind. A"]), "true malformed");
        assert_eq!(shown(&["tesseron-gateway,tesseron-bind.A B"]), "true malformed");
    }

    #[test]
    fn item_111_an_offer_with_an_invalid_code_is_malformed() {
        let of = |code: &str| shown(&[&alloc::format!("tesseron-gateway,tesseron-bind.{code}")]);
        assert_eq!(of(""), "true malformed");
        assert_eq!(of("a_B-9"), "true A_B-9");
        assert_eq!(of("../x"), "true malformed");
        assert_eq!(of(&"x".repeat(64)), alloc::format!("true {}", "X".repeat(64)));
        assert_eq!(of(&"x".repeat(65)), "true malformed");
    }

    #[test]
    fn only_the_exact_subprotocol_is_that_of_a_gateway() {
        assert_eq!(shown(&[]), "false none");
        assert_eq!(shown(&[""]), "false none");
        assert_eq!(shown(&["chat, superchat"]), "false none");
        assert_eq!(shown(&["Tesseron-Gateway"]), "false none");
        assert_eq!(shown(&["tesseron-gateway2,tesseron-bind"]), "false none");
    }

    #[test]
    fn a_host_reads_the_offer_that_a_gateway_writes() {
        let code = ClaimCode::parse("PQ7N-4D").unwrap();
        assert_eq!(Offer::header(None), "tesseron-gateway");
        assert_eq!(Offer::header(Some(&code)), "tesseron-gateway,tesseron-bind.PQ7N-4D");
        assert_eq!(shown(&[&Offer::header(Some(&code))]), "true PQ7N-4D");
    }
}
